//! Snapshots.
//!
//! The stream is the same whether it is compressed or not; the file's suffix tells.

mod inflate;
pub mod reader;
mod snappy;
pub mod writer;

/// How a snapshot file is compressed (`snapshot.compression.method`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
}

impl Compression {
    /// What follows the zxid in a file name.
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Snappy => ".snappy",
        }
    }

    /// Reads the value of the setting.
    pub fn from_method(method: &str) -> Option<Compression> {
        match method {
            "" => Some(Compression::None),
            "gz" => Some(Compression::Gzip),
            "snappy" => Some(Compression::Snappy),
            _ => None,
        }
    }

    /// The first bytes of a file.
    pub(crate) fn magic(self) -> &'static [u8] {
        match self {
            Compression::None => b"ZKSN",
            Compression::Gzip => &[0x1f, 0x8b],
            Compression::Snappy => &snappy::MAGIC,
        }
    }
}
