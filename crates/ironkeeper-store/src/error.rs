//! The errors of the store, with messages for the operator.

use std::io;
use std::path::{Path, PathBuf};

use ironkeeper_proto::{Epoch, Zxid};
use thiserror::Error;

/// A failure of the store. Every variant names its file or directory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("{}: cannot {action}: {cause}{}", path.display(), denial(path, cause))]
    Io { path: PathBuf, action: &'static str, cause: io::Error },

    /// Bytes that an interrupted write cannot have left.
    #[error("{}: damaged at offset {offset}: {what}", file.display())]
    Damaged { file: PathBuf, offset: u64, what: String },

    /// Records are missing between two existing records.
    #[error(
        "{}: at offset {offset}: zxid {found} follows {before}: the transactions between them are \
         missing. A log file may have been removed or cut; restore it, or let this server copy the \
         data from its leader by starting it with an empty data directory", file.display()
    )]
    Gap { file: PathBuf, offset: u64, before: Zxid, found: Zxid },

    /// The visitor rejected a record.
    #[error("{}: at offset {offset}: {what}", file.display())]
    Rejected { file: PathBuf, offset: u64, what: String },

    #[error("{}: no usable snapshot: {}", dir.display(), reasons(refused))]
    NoValidSnapshot { dir: PathBuf, refused: Vec<(PathBuf, String)> },

    #[error(
        "{}: there are transactions but no snapshot to apply them to. If the log is complete since \
         the very first transaction, start once with snapshot.trust.empty=true", log.display()
    )]
    LogWithoutSnapshot { log: PathBuf },

    /// An older snapshot can be loaded, but the log after it does not reach the zxid of the newer
    /// one.
    #[error(
        "{}: this snapshot cannot be read ({reason}) and the log ends at {reached}, before it. \
         Starting from an older snapshot would lose transactions; remove the file to accept that",
        file.display()
    )]
    SnapshotLost { file: PathBuf, reason: String, reached: Zxid },

    #[error("{}: the directory does not exist and creating it is switched off", path.display())]
    MissingDirectory { path: PathBuf },

    #[error(
        "{}: a {kind} file in the directory for {expected}: are dataDir and dataLogDir swapped?",
        file.display()
    )]
    Misplaced { file: PathBuf, kind: &'static str, expected: &'static str },

    #[error("{}: another server{} uses this data directory", path.display(), process(*pid))]
    Locked { path: PathBuf, pid: Option<u32> },

    /// The configured directory contains the files of a `version-2` directory.
    #[error(
        "{}: it holds {file}, so it is a version-2 directory itself. Set {key} to its parent{}",
        dir.display(), parent(dir)
    )]
    IsVersionDir { dir: PathBuf, file: String, key: &'static str },

    #[error("{}: {what}", file.display())]
    BadEpochFile { file: PathBuf, what: String },

    #[error("the accepted epoch {} is below the current epoch {}", accepted.0, current.0)]
    AcceptedBelowCurrent { accepted: Epoch, current: Epoch },

    #[error("{}: no state at zxid {zxid} to go back to: {what}", dir.display())]
    CannotTruncate { dir: PathBuf, zxid: Zxid, what: &'static str },

    #[error("a transaction of {len} bytes does not fit in a log record")]
    RecordTooLarge { len: usize },

    /// An earlier write or fsync failed, so the content of the medium is unknown. A snapshot is
    /// abandoned; the log can continue only after a restart.
    #[error("{}: the writer has failed before and must not be used again", path.display())]
    WriterFailed { path: PathBuf },
}

impl StoreError {
    /// Returns whether the only cause is a lack of space on the medium.
    pub fn is_disk_full(&self) -> bool {
        let StoreError::Io { cause, .. } = self else { return false };
        matches!(
            cause.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }

    /// Returns whether the error is caused by the bytes on disk, not by the operating system.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            StoreError::Damaged { .. }
                | StoreError::Gap { .. }
                | StoreError::Rejected { .. }
                | StoreError::NoValidSnapshot { .. }
                | StoreError::SnapshotLost { .. }
        )
    }
}

/// Returns advice for a directory that belongs to another user.
fn denial(path: &Path, cause: &io::Error) -> String {
    if cause.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(
        "; give {} to the user that runs the server (chown -R), or run the server as its owner",
        path.display()
    )
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

fn parent(dir: &Path) -> String {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    absolute.parent().map_or_else(String::new, |parent| format!(", {}", parent.display()))
}

fn reasons(refused: &[(PathBuf, String)]) -> String {
    let listed: Vec<String> =
        refused.iter().map(|(file, reason)| format!("{}: {reason}", file.display())).collect();
    listed.join("; ")
}

/// Adds the file and the attempted action to an error of the operating system.
pub(crate) trait At<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T, StoreError> {
        self.map_err(|cause| StoreError::Io { path: path.to_owned(), action, cause })
    }
}
