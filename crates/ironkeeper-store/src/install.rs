//! Installation of a leader's snapshot, which replaces all local data.
//!
//! The order of the steps makes a crash at any moment safe. First the log is truncated after the
//! zxid of the snapshot; the removed records are not in the leader's history. Then the snapshot
//! appears under its name. Then newer snapshots are removed, then the log, then older snapshots.
//! Until the newer snapshots are removed, recovery finds the local history or a prefix of it that
//! reaches the snapshot's zxid; afterwards it finds the leader's. At no time does a local record
//! follow the leader's snapshot.

use ironkeeper_proto::Zxid;

use crate::catalog;
use crate::disk::Disk;
use crate::error::{At, StoreError};
use crate::snapshot::writer::SnapshotWriter;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Makes the snapshot at `zxid` the one that recovery loads, and the start of the log.
    ///
    /// The whole content has been written to `tree`, from the header of the file to the end mark of
    /// the nodes; see [`Store::incoming_snapshot_writer`]. An existing
    /// [`LogWriter`](crate::LogWriter) must be dropped first, and no other snapshot may be in
    /// progress.
    pub fn install_snapshot(
        &self,
        zxid: Zxid,
        mut tree: SnapshotWriter<D>,
    ) -> Result<(), StoreError> {
        // The leader does not send the digest of its snapshot, and a fuzzy snapshot may contain
        // later changes than `zxid`. So the file has no digest, like those of older servers.
        tree.seal()?;
        self.cut_log_above(zxid)?;
        let installed = tree.finish()?;
        let mut others = catalog::snapshots(&self.disk, &self.snap_dir)?;
        others.retain(|snapshot| snapshot.path != installed);
        let (older, newer): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|snapshot| snapshot.zxid < zxid);
        for snapshot in newer {
            self.disk.remove(&snapshot.path).at(&snapshot.path, "remove the snapshot")?;
        }
        self.disk.sync_dir(&self.snap_dir).at(&self.snap_dir, "sync the directory")?;
        for log in catalog::logs(&self.disk, &self.log_dir)?.iter().rev() {
            self.disk.remove(&log.path).at(&log.path, "remove the log file")?;
        }
        self.disk.sync_dir(&self.log_dir).at(&self.log_dir, "sync the directory")?;
        for snapshot in older {
            self.disk.remove(&snapshot.path).at(&snapshot.path, "remove the snapshot")?;
        }
        self.disk.sync_dir(&self.snap_dir).at(&self.snap_dir, "sync the directory")
    }
}
