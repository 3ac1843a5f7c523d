//! Measurements of the disk, of the start and of the ensemble; the engine has its own statistics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ironkeeper_engine::stats::{Distribution, Summary};
use ironkeeper_proto::Packet;
use ironkeeper_proto::quorum_packet::LeaderMessage;

/// The measurements. Durations are in milliseconds, rounded down as in Apache.
#[derive(Debug, Default)]
pub struct Metrics {
    /// One value for every batch of the log: the write of its rest, and the sync.
    pub fsync: Distribution,
    /// Transactions in a batch.
    pub batch: Summary,
    pub snapshot: Summary,
    /// Snapshots that failed.
    pub snapshot_errors: AtomicU64,
    pub startup_snapshot: Summary,
    pub startup_txns: Summary,
    pub startup_txns_loaded: Summary,
    /// The whole recovery.
    pub db_init: Summary,
    /// How often this member became LOOKING.
    pub lookings: AtomicU64,
    /// The time from LOOKING until clients were served again.
    pub unavailable: Summary,
    /// The same time, if another server leads than before.
    pub leader_unavailable: Summary,
    /// Learners that were synchronized with a part of the log, or with a snapshot.
    pub diffs_sent: AtomicU64,
    pub trees_sent: AtomicU64,
    /// Packets that a learner has received from its leader.
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

    /// Counts a packet of another server.
    pub fn note_packet(&self, packet: &Packet) {
        let counter = match packet {
            Packet::Proposal { .. } => &self.proposals_received,
            Packet::Commit { .. } | Packet::CommitAndActivate { .. } => &self.commits_received,
            Packet::Leader(LeaderMessage::Revalidated { .. }) => &self.revalidations_received,
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Resets what `srst` resets: everything, as Apache does.
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
