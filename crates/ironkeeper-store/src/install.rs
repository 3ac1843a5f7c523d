//! Taking over a leader's tree: it replaces everything that is there.
//!
//! Safe against a crash at any moment, by the order of the steps. First the log loses what is above the
//! tree, none of which is in the leader's history. Then the snapshot appears. Then snapshots that are
//! newer go, then the log, then older snapshots. Until the newer ones are gone, recovery finds our own
//! history or a beginning of it that reaches to the tree's transaction; from then on, the leader's. Never
//! does a record of our own follow the leader's tree.

use std::io::{self, Read};

use ironkeeper_proto::Zxid;
use ironkeeper_proto::snapshot_record;

use crate::catalog;
use crate::disk::Disk;
use crate::error::{At, StoreError};
use crate::store::Store;

/// Read from the source at a time.
const CHUNK: usize = 256 << 10;

impl<D: Disk> Store<D> {
    /// Makes the tree at `zxid` the one recovery finds, and the beginning of the log.
    ///
    /// `tree` yields it as a leader sends it: sessions, ACLs, nodes and their end mark, neither a
    /// file's header nor a checksum. Whoever calls has read it once and knows that it is whole. A
    /// [`LogWriter`](crate::LogWriter) made before must be dropped first, and no snapshot may be in
    /// the making.
    pub fn install_snapshot(&self, zxid: Zxid, tree: &mut dyn Read) -> Result<(), StoreError> {
        let mut writer = self.snapshot_writer(zxid)?;
        let mut chunk = Vec::new();
        snapshot_record::encode_file_header(&mut chunk);
        writer.write(&chunk)?;
        chunk.resize(CHUNK, 0);
        loop {
            match tree.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => writer.write(&chunk[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at(&self.snap_dir, "read the leader's tree"),
            }
        }
        // The leader does not tell its tree's digest, and its tree may be ahead of `zxid` in places,
        // so the file is one without a digest, as older servers write them.
        writer.seal()?;

        self.cut_log_above(zxid)?;
        let installed = writer.finish()?;
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
