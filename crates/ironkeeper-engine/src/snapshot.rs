//! Writing a snapshot of the state at one moment while the state changes.

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record::{self, SnapshotDigest};
use ironkeeper_proto::txn::TxnDigest;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::SnapshotWalk;

pub use ironkeeper_tree::Slice;

use crate::database::Database;
use crate::state::State;

/// The maximum number of nodes and bytes taken in one shared hold of the gate.
const SLICE_NODES_MAX: usize = 256;
const SLICE_BYTES_MAX: usize = 64 << 10;
/// The last record of a snapshot that is sent to a learner.
pub const LEARNER_SIGNATURE: &str = "BenWasHere";

/// A snapshot to be written by a thread of the driver.
#[derive(Debug)]
pub struct SnapshotJob {
    walk: SnapshotWalk,
    sessions: Vec<(SessionId, i32)>,
}

impl SnapshotJob {
    pub(crate) fn new(walk: SnapshotWalk, sessions: Vec<(SessionId, i32)>) -> SnapshotJob {
        SnapshotJob { walk, sessions }
    }

    /// Returns the zxid of the last transaction in the snapshot; its file is named after it.
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

    /// Appends everything before the nodes, in the format of a file.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        snapshot_record::encode_file_header(out);
        self.encode_learner_head(out);
    }

    /// Appends everything before the nodes, in the format for a learner.
    pub fn encode_learner_head(&self, out: &mut Vec<u8>) {
        out.put_len(self.sessions.len());
        for (session, timeout_ms) in &self.sessions {
            snapshot_record::encode_session(*session, *timeout_ms, out);
        }
        self.walk.encode_head(out);
    }

    /// Appends some more nodes, under one shared hold of the gate.
    pub fn next_slice(&mut self, db: &Database, out: &mut Vec<u8>) -> Slice {
        self.next_slice_of(&db.read(), out)
    }

    /// Appends some more nodes of a state that no other thread uses.
    pub fn next_slice_of(&mut self, state: &State, out: &mut Vec<u8>) -> Slice {
        state.tree.snapshot_slice(&mut self.walk, out, SLICE_NODES_MAX, SLICE_BYTES_MAX)
    }

    /// Appends everything after the nodes, in the format for a learner.
    pub fn encode_learner_tail(&self, out: &mut Vec<u8>) {
        out.put_str(snapshot_record::END_PATH);
        out.put_str(LEARNER_SIGNATURE);
    }

    /// Returns the walk, for [`crate::Input::SnapshotDone`] or [`crate::Input::SnapshotSent`].
    pub fn into_walk(self) -> SnapshotWalk {
        self.walk
    }
}
