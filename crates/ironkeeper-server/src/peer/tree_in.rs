//! A leader's tree on its way to this server.
//!
//! It goes to the disk as it arrives, into a snapshot file that is not finished yet, so that it needs
//! no memory and can be larger than that. When it is to be installed, a checksum and a name make it an
//! ordinary snapshot.

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::DecodeError;
use ironkeeper_proto::snapshot_record;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{SnapshotWriter, Store, StoreError};
use thiserror::Error;

use super::tree_scanner::TreeScanner;

/// Why a tree could not be received.
#[derive(Debug, Error)]
pub enum TreeError {
    #[error("the tree is garbage: {0}")]
    Garbage(#[from] DecodeError),
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// A leader's tree as far as it has come.
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

    /// Takes what it can from the front of `bytes`: how much that was, and whether the tree is whole.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), TreeError> {
        let scanned = self.scanner.scan(bytes)?;
        self.writer.write(&bytes[..scanned.tree_len])?;
        Ok((scanned.taken_len, scanned.is_over))
    }

    pub(super) fn finish(self) -> ReceivedTree<D> {
        ReceivedTree { zxid: self.zxid, writer: self.writer }
    }
}

/// A leader's tree, whole, but not yet ours. Dropping it throws it away.
#[derive(Debug)]
pub struct ReceivedTree<D: Disk = RealDisk> {
    zxid: Zxid,
    writer: SnapshotWriter<D>,
}

impl<D: Disk> ReceivedTree<D> {
    /// The transaction the leader has named with it.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// The unfinished snapshot that it is, for [`Store::install_snapshot`].
    pub fn into_writer(self) -> SnapshotWriter<D> {
        self.writer
    }
}
