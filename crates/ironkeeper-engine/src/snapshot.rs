//! Writing down the state at one moment while it goes on changing.

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record::{self, SnapshotDigest};
use ironkeeper_proto::txn::TxnDigest;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::{Slice, SnapshotWalk};

use crate::database::Database;

/// Nodes and bytes taken during one shared hold of the gate.
const SLICE_NODES_MAX: usize = 256;
const SLICE_BYTES_MAX: usize = 64 << 10;

/// A snapshot to be written by whoever has a thread for it.
#[derive(Debug)]
pub struct SnapshotJob {
    walk: SnapshotWalk,
    sessions: Vec<(SessionId, i32)>,
}

impl SnapshotJob {
    pub(crate) fn new(walk: SnapshotWalk, sessions: Vec<(SessionId, i32)>) -> SnapshotJob {
        SnapshotJob { walk, sessions }
    }

    /// The last transaction it contains; its file is named after it.
    pub fn zxid(&self) -> Zxid {
        self.walk.zxid()
    }

    pub fn digest(&self) -> SnapshotDigest {
        SnapshotDigest {
            zxid: self.walk.zxid(),
            version: TxnDigest::VERSION,
            digest: self.walk.digest(),
        }
    }

    /// Everything before the nodes.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        snapshot_record::encode_file_header(out);
        out.put_len(self.sessions.len());
        for (session, timeout_ms) in &self.sessions {
            snapshot_record::encode_session(*session, *timeout_ms, out);
        }
        self.walk.encode_head(out);
    }

    /// Appends some more nodes; false when that was the last of them.
    pub fn next_slice(&mut self, db: &Database, out: &mut Vec<u8>) -> bool {
        let state = db.read();
        let slice =
            state.tree.snapshot_slice(&mut self.walk, out, SLICE_NODES_MAX, SLICE_BYTES_MAX);
        slice == Slice::More
    }

    /// Gives the walk back, for [`crate::engine::Input::SnapshotDone`].
    pub fn into_walk(self) -> SnapshotWalk {
        self.walk
    }
}
