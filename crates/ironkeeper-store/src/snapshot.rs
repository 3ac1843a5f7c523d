//! Snapshots.
//!
//! The stream has the same format with and without compression. The suffix of the file name
//! indicates the compression.

mod inflate;
pub mod reader;
mod snappy;
pub mod writer;

/// The compression of a snapshot file (`snapshot.compression.method`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
}

impl Compression {
    /// Returns the suffix of the file name, after the zxid.
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Snappy => ".snappy",
        }
    }

    /// Parses the value of the setting.
    pub fn from_method(method: &str) -> Option<Compression> {
        match method {
            "" => Some(Compression::None),
            "gz" => Some(Compression::Gzip),
            "snappy" => Some(Compression::Snappy),
            _ => None,
        }
    }

    /// Returns the first bytes of a file.
    pub(crate) fn magic(self) -> &'static [u8] {
        match self {
            Compression::None => b"ZKSN",
            Compression::Gzip => &[0x1f, 0x8b],
            Compression::Snappy => &snappy::MAGIC,
        }
    }
}
