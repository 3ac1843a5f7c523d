//! Taking over a leader's tree: it replaces everything that is there.
//!
//! Safe against a crash at any moment, by the order of the steps. First the log loses what is above the
//! tree, none of which is in the leader's history. Then the snapshot appears. Then snapshots that are
//! newer go, then the log, then older snapshots. Until the newer ones are gone, recovery finds our own
//! history or a beginning of it that reaches to the tree's transaction; from then on, the leader's. Never
//! does a record of our own follow the leader's tree.

use ironkeeper_proto::Zxid;

use crate::catalog;
use crate::disk::Disk;
use crate::error::{At, StoreError};
use crate::snapshot::writer::SnapshotWriter;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Makes the tree at `zxid` the one recovery finds, and the beginning of the log.
    ///
    /// `tree` has been given the whole of it, from a file's header to the end mark of the nodes; see
    /// [`Store::incoming_snapshot_writer`]. A [`LogWriter`](crate::LogWriter) made before must be
    /// dropped first, and no other snapshot may be in the making.
    pub fn install_snapshot(
        &self,
        zxid: Zxid,
        mut tree: SnapshotWriter<D>,
    ) -> Result<(), StoreError> {
        // The leader does not tell its tree's digest, and its tree may be ahead of `zxid` in places,
        // so the file is one without a digest, as older servers write them.
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
