//! The data files in a directory: names, zxids, and the quick check that finds incomplete snapshot
//! files.
//!
//! Apache's rule is looser: it accepts `snapshot.5.anything` as a snapshot, including a complete
//! `snapshot.5.tmp`. This crate accepts exactly the names that a server writes.

use std::path::{Path, PathBuf};

use ironkeeper_proto::Zxid;

use crate::disk::{Disk, DiskFile, read_full};
use crate::error::{At, StoreError};
use crate::snapshot::Compression;

pub(crate) const LOG_PREFIX: &str = "log.";
pub(crate) const SNAPSHOT_PREFIX: &str = "snapshot.";
pub(crate) const UNFINISHED_SUFFIX: &str = ".tmp";
/// The prefix of a file that is being removed. Apache ignores such names.
pub(crate) const DOOMED_PREFIX: &str = "doomed.";
/// The prefix of a snapshot that a leader is sending. A snapshot of the same zxid may be written by
/// this server at the same time.
pub(crate) const INCOMING_PREFIX: &str = "incoming.";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFile {
    /// The zxid of the first record in the file.
    pub zxid: Zxid,
    pub path: PathBuf,
    pub len: u64,
}

/// The file of a snapshot. Its name does not show whether the content is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The snapshot contains every transaction up to this one.
    pub zxid: Zxid,
    pub compression: Compression,
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub len: u64,
}

/// Returns the log files, oldest first.
pub(crate) fn logs<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<LogFile>, StoreError> {
    let mut found: Vec<LogFile> = disk
        .list(dir)
        .at(dir, "list the directory")?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| {
            let zxid = hex_zxid(entry.name.strip_prefix(LOG_PREFIX)?)?;
            Some(LogFile { zxid, path: dir.join(&entry.name), len: entry.len })
        })
        .collect();
    found.sort_by_key(|log| log.zxid);
    Ok(found)
}

/// Returns the snapshot files, newest first.
pub(crate) fn snapshots<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<SnapshotFile>, StoreError> {
    let mut found: Vec<SnapshotFile> = disk
        .list(dir)
        .at(dir, "list the directory")?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| {
            let (zxid, compression) = snapshot_name(&entry.name)?;
            Some(SnapshotFile { zxid, compression, path: dir.join(&entry.name), len: entry.len })
        })
        .collect();
    // Two files of the same zxid differ in compression only. Their order is arbitrary but must not
    // depend on the order of the directory.
    found.sort_by(|a, b| b.zxid.cmp(&a.zxid).then_with(|| a.path.cmp(&b.path)));
    Ok(found)
}

/// Returns the snapshots that were being written when the server stopped.
pub(crate) fn unfinished_snapshots<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Vec<(Zxid, PathBuf)>, StoreError> {
    let entries = disk.list(dir).at(dir, "list the directory")?;
    Ok(entries
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| {
            let (zxid, _) = snapshot_name(entry.name.strip_suffix(UNFINISHED_SUFFIX)?)?;
            Some((zxid, dir.join(&entry.name)))
        })
        .collect())
}

/// Returns the files whose removal or reception was interrupted by a crash.
pub(crate) fn doomed<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let is_doomed =
        |name: &str| name.starts_with(DOOMED_PREFIX) || name.starts_with(INCOMING_PREFIX);
    let entries = disk.list(dir).at(dir, "list the directory")?;
    Ok(entries
        .into_iter()
        .filter(|entry| !entry.is_dir && is_doomed(&entry.name))
        .map(|entry| dir.join(entry.name))
        .collect())
}

pub(crate) fn log_name(zxid: Zxid) -> String {
    format!("{LOG_PREFIX}{:x}", zxid.0)
}

pub(crate) fn snapshot_file_name(zxid: Zxid, compression: Compression) -> String {
    format!("{SNAPSHOT_PREFIX}{:x}{}", zxid.0, compression.suffix())
}

/// Parses `snapshot.<hex>`, with or without the suffix of a compression.
pub(crate) fn snapshot_name(name: &str) -> Option<(Zxid, Compression)> {
    let rest = name.strip_prefix(SNAPSHOT_PREFIX)?;
    let (hex, compression) = match rest.split_once('.') {
        None => (rest, Compression::None),
        Some((hex, "gz")) => (hex, Compression::Gzip),
        Some((hex, "snappy")) => (hex, Compression::Snappy),
        Some(_) => return None,
    };
    Some((hex_zxid(hex)?, compression))
}

/// Returns whether a file of this name belongs in a `version-2` directory.
pub(crate) fn is_data_file(name: &str) -> bool {
    name.strip_prefix(LOG_PREFIX).and_then(hex_zxid).is_some() || snapshot_name(name).is_some()
}

fn hex_zxid(text: &str) -> Option<Zxid> {
    // `from_str_radix` accepts a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    i64::from_str_radix(text, 16).ok().map(Zxid)
}

/// Detects an incomplete snapshot file without reading all of it: a plain file must end with the
/// end of a seal, a compressed file must begin with its magic.
pub(crate) fn looks_whole<D: Disk>(
    disk: &D,
    snapshot: &SnapshotFile,
) -> Result<Result<(), &'static str>, StoreError> {
    const PLAIN_LEN_MIN: u64 = 10;
    const SEAL_END: [u8; 5] = [0, 0, 0, 1, b'/'];
    let path = &snapshot.path;
    let file = disk.open(path).at(path, "open the snapshot")?;
    let len = file.len().at(path, "read the length of the snapshot")?;
    let mut bytes = [0; 8];
    match snapshot.compression {
        Compression::None => {
            if len < PLAIN_LEN_MIN {
                return Ok(Err("the file is too short for a snapshot"));
            }
            let tail = &mut bytes[..SEAL_END.len()];
            let count = read_full(&file, tail, len - SEAL_END.len() as u64)
                .at(path, "read the snapshot")?;
            if count < SEAL_END.len() || tail != SEAL_END {
                return Ok(Err("the end of the file is missing"));
            }
        }
        Compression::Gzip | Compression::Snappy => {
            let magic = snapshot.compression.magic();
            let head = &mut bytes[..magic.len()];
            let count = read_full(&file, head, 0).at(path, "read the snapshot")?;
            if count < magic.len() || head != magic {
                return Ok(Err("the file does not begin as its compression does"));
            }
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_hex_without_leading_zeroes() {
        assert_eq!(log_name(Zxid(0x1_0000_00ab)), "log.1000000ab");
        assert_eq!(snapshot_file_name(Zxid(0), Compression::None), "snapshot.0");
        assert_eq!(snapshot_file_name(Zxid(0xa), Compression::Gzip), "snapshot.a.gz");
        assert_eq!(snapshot_file_name(Zxid(0xa), Compression::Snappy), "snapshot.a.snappy");
    }

    #[test]
    fn only_names_that_servers_write_count() {
        assert_eq!(snapshot_name("snapshot.1f"), Some((Zxid(0x1f), Compression::None)));
        assert_eq!(snapshot_name("snapshot.1f.gz"), Some((Zxid(0x1f), Compression::Gzip)));
        for other in [
            "snapshot.",
            "snapshot.x",
            "snapshot.-5",
            "snapshot.+5",
            "snapshot.5.tmp",
            "snapshot.5.bak",
            "snapshot.5.gz.tmp",
            "snapshot.8000000000000000",
            "snapshot.11111111111111111",
            "Snapshot.5",
            "log.5",
        ] {
            assert_eq!(snapshot_name(other), None, "{other}");
        }
    }
}
