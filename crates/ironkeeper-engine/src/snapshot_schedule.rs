//! The schedule of snapshots.

use ironkeeper_tree::{SnapshotWalk, Tree};

use crate::config::EngineConfig;

/// Regardless of the size of the tree, a snapshot is taken after this many times the configured
/// number of transactions.
const SNAPSHOT_COUNTS_MAX: u64 = 10;

/// Returns the approximate size of a snapshot: path, data, and the other fields of each node.
fn snapshot_bytes(tree: &Tree) -> u64 {
    const NODE_BYTES: usize = 76;
    (tree.data_bytes() + tree.node_count() * NODE_BYTES) as u64
}

/// The conditions for the next snapshot. The limits are drawn again each time from their upper
/// halves, so that the servers of an ensemble do not take snapshots at the same time.
#[derive(Debug)]
pub(crate) struct SnapshotSchedule {
    snap_count: u64,
    snap_bytes: Option<u64>,
    random: u64,
    /// The approximate size of the last snapshot.
    last_bytes: u64,
    count_limit: u64,
    bytes_limit: u64,
    count: u64,
    bytes: u64,
    pub wanted: bool,
    pub running: bool,
    /// Walks that were returned to the engine, of snapshot files and of snapshots sent to learners.
    pub finished: Vec<SnapshotWalk>,
}

impl SnapshotSchedule {
    pub fn new(config: &EngineConfig, tree: &Tree, seed: u64) -> SnapshotSchedule {
        let mut schedule = SnapshotSchedule {
            snap_count: config.snap_count.max(2),
            snap_bytes: config.snap_bytes,
            random: seed | 1,
            last_bytes: snapshot_bytes(tree),
            count_limit: 0,
            bytes_limit: 0,
            count: 0,
            bytes: 0,
            wanted: false,
            running: false,
            finished: Vec::new(),
        };
        schedule.draw();
        schedule
    }

    fn draw(&mut self) {
        self.count_limit = self.upper_half(self.snap_count);
        self.bytes_limit = self.snap_bytes.map_or(u64::MAX, |bytes| self.upper_half(bytes));
    }

    fn upper_half(&mut self, whole: u64) -> u64 {
        // Xorshift: the quality of the randomness does not matter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        whole / 2 + self.random % (whole / 2).max(1)
    }

    pub fn note_append(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }

    /// Returns whether a snapshot is due. A large tree is not written again after every few
    /// transactions: the log since the last snapshot should be as long as that snapshot. So the
    /// number of snapshots of a growing tree is logarithmic in its size, and recovery reads at most
    /// twice its size.
    pub fn is_due(&self) -> bool {
        let worth_it = self.bytes > self.last_bytes
            || self.count > self.count_limit.saturating_mul(SNAPSHOT_COUNTS_MAX);
        let over = (self.count > self.count_limit && worth_it) || self.bytes > self.bytes_limit;
        !self.running && (over || self.wanted)
    }

    pub fn start(&mut self, tree: &Tree) {
        self.last_bytes = snapshot_bytes(tree);
        self.running = true;
        self.wanted = false;
        self.count = 0;
        self.bytes = 0;
        self.draw();
    }
}
