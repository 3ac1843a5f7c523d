//! A snapshot that is being received from the leader.
//!
//! It is written to the disk as it arrives, into an unfinished snapshot file, so it needs no memory
//! and can be larger than the memory. Its installation adds a checksum and renames it to an
//! ordinary snapshot.

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::DecodeError;
use ironkeeper_proto::snapshot_record;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{SnapshotWriter, Store, StoreError};
use thiserror::Error;

use crate::snapshot_scanner::TreeScanner;

/// The reason why a snapshot could not be received.
#[derive(Debug, Error)]
pub enum TreeError {
    #[error("the tree is garbage: {0}")]
    Garbage(#[from] DecodeError),
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// The part of a leader's snapshot that has arrived.
#[derive(Debug)]
pub struct IncomingTree<D: Disk = RealDisk> {
    zxid: Zxid,
    scanner: TreeScanner,
    writer: SnapshotWriter<D>,
}

impl<D: Disk> IncomingTree<D> {
    pub(super) fn begin(store: &Store<D>, zxid: Zxid) -> Result<IncomingTree<D>, StoreError> {
        let mut writer = store.incoming_snapshot_writer(zxid)?;
        let mut header = Vec::new();
        snapshot_record::encode_file_header(&mut header);
        writer.write(&header)?;
        let scanner = TreeScanner::new(store.options().field_max);
        Ok(IncomingTree { zxid, scanner, writer })
    }

    /// Consumes bytes from the front of `bytes`. Returns their number, and whether the snapshot is
    /// complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), TreeError> {
        let scanned = self.scanner.scan(bytes)?;
        self.writer.write(&bytes[..scanned.tree_len])?;
        Ok((scanned.taken_len, scanned.is_over))
    }

    pub(super) fn finish(self) -> ReceivedTree<D> {
        ReceivedTree { zxid: self.zxid, writer: self.writer }
    }
}

/// A complete snapshot of a leader that is not installed yet. Dropping it deletes it.
#[derive(Debug)]
pub struct ReceivedTree<D: Disk = RealDisk> {
    zxid: Zxid,
    writer: SnapshotWriter<D>,
}

impl<D: Disk> ReceivedTree<D> {
    /// Returns the zxid in the leader's SNAP packet.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Returns the unfinished snapshot file, for [`Store::install_snapshot`].
    pub fn into_writer(self) -> SnapshotWriter<D> {
        self.writer
    }
}
