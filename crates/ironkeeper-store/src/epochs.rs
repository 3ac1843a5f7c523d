//! The epoch files of a voter: `acceptedEpoch` and `currentEpoch`.
//!
//! Each contains one decimal number. Standalone servers do not have these files.

use std::io;

use ironkeeper_proto::{Epoch, Zxid};

use crate::catalog::UNFINISHED_SUFFIX;
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::{At, StoreError};
use crate::store::Store;

const ACCEPTED: &str = "acceptedEpoch";
pub(crate) const CURRENT: &str = "currentEpoch";
/// The maximal length that is read; longer than any number.
const TEXT_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// The latest epoch that this server has accepted: it follows no leader of an earlier one.
    pub accepted: Epoch,
    /// The latest epoch whose leader's history this server has adopted.
    pub current: Epoch,
}

impl<D: Disk> Store<D> {
    /// Reads both epochs and compares them with the last transaction. A missing file is written
    /// with the epoch of that transaction, as happens when a standalone server joins an ensemble.
    ///
    /// The log may have a later epoch than `currentEpoch`, if the server crashed between adopting a
    /// leader's history and writing that epoch. The log of an observer, which accepts no epochs,
    /// can even have a later epoch than `acceptedEpoch`; then `acceptedEpoch` is raised, because a
    /// larger value is always safe.
    ///
    /// The values are durable when this function returns. The previous process may have ended
    /// between a rename and its sync, and an epoch that the file already has is not written again.
    pub fn load_epochs(&self, last_zxid: Zxid) -> Result<Epochs, StoreError> {
        self.disk.sync_dir(&self.snap_dir).at(&self.snap_dir, "sync the directory")?;
        let of_log = last_zxid.epoch();
        let mut current = match self.read_epoch(CURRENT)? {
            Some(current) => current,
            None => {
                self.write_epoch(CURRENT, of_log)?;
                of_log
            }
        };
        if of_log > current {
            // Apache renames without syncing the directory, so a crash can leave the new value
            // under the temporary name while transactions of the new epoch are already in the log.
            // A torn temporary file is ignored.
            let unfinished = match self.read_epoch(&format!("{CURRENT}{UNFINISHED_SUFFIX}")) {
                Err(StoreError::BadEpochFile { .. }) => None,
                read => read?,
            };
            if let Some(unfinished) = unfinished.filter(|unfinished| *unfinished >= of_log) {
                // Written again, because an earlier sync of this file may have failed.
                self.write_epoch(CURRENT, unfinished)?;
                current = unfinished;
            }
        }
        let accepted = match self.read_epoch(ACCEPTED)? {
            Some(accepted) if accepted < current => {
                return Err(StoreError::AcceptedBelowCurrent { accepted, current });
            }
            Some(accepted) if accepted >= of_log => accepted,
            _ => {
                let accepted = of_log.max(current);
                self.write_epoch(ACCEPTED, accepted)?;
                accepted
            }
        };
        Ok(Epochs { accepted, current })
    }

    /// Returns when the epoch is durable. Only then may the server send ACKEPOCH.
    pub fn write_accepted_epoch(&self, epoch: Epoch) -> Result<(), StoreError> {
        self.write_epoch(ACCEPTED, epoch)
    }

    /// Returns when the epoch is durable.
    pub fn write_current_epoch(&self, epoch: Epoch) -> Result<(), StoreError> {
        self.write_epoch(CURRENT, epoch)
    }

    pub(crate) fn read_epoch(&self, name: &str) -> Result<Option<Epoch>, StoreError> {
        let path = self.snap_dir.join(name);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at(&path, "open the epoch file"),
        };
        let mut text = [0; TEXT_MAX];
        let count = read_full(&file, &mut text, 0).at(&path, "read the epoch file")?;
        parse(&text[..count]).map(Some).ok_or_else(|| StoreError::BadEpochFile {
            file: path,
            what: format!(
                "expected a decimal number and nothing else, found {:?}",
                String::from_utf8_lossy(&text[..count])
            ),
        })
    }

    fn write_epoch(&self, name: &str, epoch: Epoch) -> Result<(), StoreError> {
        let unfinished = self.snap_dir.join(format!("{name}{UNFINISHED_SUFFIX}"));
        let mut file = self.disk.create(&unfinished).at(&unfinished, "create the epoch file")?;
        file.write_at(epoch.0.to_string().as_bytes(), 0).at(&unfinished, "write the epoch file")?;
        let path = self.snap_dir.join(name);
        file.sync_data().at(&unfinished, "sync the epoch file")?;
        self.disk.rename(&unfinished, &path).at(&path, "rename the epoch file")?;
        self.disk.sync_dir(&self.snap_dir).at(&self.snap_dir, "sync the directory")
    }
}

/// Parses the first line as strictly as Java's parser: no spaces, not empty.
fn parse(text: &[u8]) -> Option<Epoch> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.split('\n').next()?;
    line.strip_suffix('\r').unwrap_or(line).parse().ok().map(Epoch)
}
