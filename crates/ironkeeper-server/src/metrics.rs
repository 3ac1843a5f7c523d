//! What the server measures of its disk, its start and its ensemble; what the engine counts is in its own
//! statistics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ironkeeper_engine::stats::{Distribution, Summary};
use ironkeeper_proto::Packet;

/// Durations are in milliseconds, rounded down as Apache does.
#[derive(Debug, Default)]
pub struct Metrics {
    /// One for every batch of the log: writing what is left of it, and the sync.
    pub fsync: Distribution,
    /// Transactions in a batch.
    pub batch: Summary,
    pub snapshot: Summary,
    /// Snapshots given up.
    pub snapshot_errors: AtomicU64,
    pub startup_snapshot: Summary,
    pub startup_txns: Summary,
    pub startup_txns_loaded: Summary,
    /// All of recovery.
    pub db_init: Summary,
    /// How often this member has begun to look for a leader.
    pub lookings: AtomicU64,
    /// From each of those moments until clients were served again ...
    pub unavailable: Summary,
    /// ... and the same, if another server leads than before.
    pub leader_unavailable: Summary,
    /// Learners that were brought up to date with a part of the log, or with the whole tree.
    pub diffs_sent: AtomicU64,
    pub trees_sent: AtomicU64,
    /// What a learner has heard from its leader.
    pub proposals_received: AtomicU64,
    pub commits_received: AtomicU64,
    pub revalidations_received: AtomicU64,
}

impl Metrics {
    pub fn note_batch(&self, txns: u64, fsync_took: Duration) {
        self.batch.add(txns);
        self.fsync.add(millis(fsync_took));
    }

    pub fn note_snapshot(&self, took: Duration) {
        self.snapshot.add(millis(took));
    }

    pub fn note_snapshot_error(&self) {
        self.snapshot_errors.fetch_add(1, Relaxed);
    }

    pub fn note_startup(&self, snapshot_took: Duration, txns: u64, txns_took: Duration) {
        self.startup_snapshot.add(millis(snapshot_took));
        self.startup_txns.add(millis(txns_took));
        self.startup_txns_loaded.add(txns);
        self.db_init.add(millis(snapshot_took + txns_took));
    }

    /// A packet of another server has arrived.
    pub fn note_packet(&self, packet: &Packet) {
        let counter = match packet {
            Packet::Proposal { .. } => &self.proposals_received,
            Packet::Commit { .. } | Packet::CommitAndActivate { .. } => &self.commits_received,
            Packet::Revalidated { .. } => &self.revalidations_received,
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// What `srst` resets: everything, as Apache does.
    pub fn reset(&self) {
        let Metrics {
            fsync,
            batch,
            snapshot,
            snapshot_errors,
            startup_snapshot,
            startup_txns,
            startup_txns_loaded,
            db_init,
            lookings,
            unavailable,
            leader_unavailable,
            diffs_sent,
            trees_sent,
            proposals_received,
            commits_received,
            revalidations_received,
        } = self;
        fsync.reset();
        for counter in [
            snapshot_errors,
            lookings,
            diffs_sent,
            trees_sent,
            proposals_received,
            commits_received,
            revalidations_received,
        ] {
            counter.store(0, Relaxed);
        }
        for summary in [
            batch,
            snapshot,
            startup_snapshot,
            startup_txns,
            startup_txns_loaded,
            db_init,
            unavailable,
            leader_unavailable,
        ] {
            summary.reset();
        }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
