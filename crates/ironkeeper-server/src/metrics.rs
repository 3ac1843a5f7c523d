//! Measurements of the disk, of the start and of the ensemble; the engine has its own statistics.
//!
//! To add a metric, add a field and a row of [`METRICS`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ironkeeper_metrics::{Distribution, Metric, Summary, Unit};
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
        ironkeeper_metrics::reset(METRICS, self);
    }
}

/// The metrics, in the order of `mntr`. Names are Apache's; a comment at the row states where our
/// value differs from Apache's.
pub const METRICS: &[Metric<Metrics>] = &[
    // Apache measures the sync alone, for each log file that is synced.
    Metric::summary(
        "fsynctime",
        Unit::Milliseconds,
        "Duration of a commit of the log: the write of its rest, and the sync",
        |metrics| metrics.fsync.summary(),
    ),
    Metric::distribution(
        "sync_processor_queue_flush_time_ms",
        Unit::Milliseconds,
        "Duration of a commit of the log: the write of its rest, and the sync",
        |metrics| &metrics.fsync,
    ),
    Metric::summary(
        "sync_processor_batch_size",
        Unit::Count,
        "Transactions in a batch of the log",
        |metrics| &metrics.batch,
    ),
    Metric::summary("snapshottime", Unit::Milliseconds, "Duration of a snapshot", |metrics| {
        &metrics.snapshot
    }),
    // Apache counts snapshots requested over HTTP only.
    Metric::counter("snapshot_error_count", Unit::Count, "Failed snapshots", |metrics| {
        &metrics.snapshot_errors
    }),
    Metric::summary(
        "dbinittime",
        Unit::Milliseconds,
        "Duration of the recovery at start",
        |metrics| &metrics.db_init,
    ),
    Metric::summary(
        "startup_snap_load_time",
        Unit::Milliseconds,
        "Duration of reading the snapshot at start",
        |metrics| &metrics.startup_snapshot,
    ),
    Metric::summary(
        "startup_txns_load_time",
        Unit::Milliseconds,
        "Duration of replaying the log at start",
        |metrics| &metrics.startup_txns,
    ),
    Metric::summary(
        "startup_txns_loaded",
        Unit::Count,
        "Transactions replayed at start",
        |metrics| &metrics.startup_txns_loaded,
    ),
    Metric::counter("looking_count", Unit::Count, "Changes to the role LOOKING", |metrics| {
        &metrics.lookings
    }),
    Metric::counter(
        "diff_count",
        Unit::Count,
        "Learners synchronized with a part of the log",
        |metrics| &metrics.diffs_sent,
    ),
    Metric::counter(
        "snap_count",
        Unit::Count,
        "Learners synchronized with a snapshot",
        |metrics| &metrics.trees_sent,
    ),
    Metric::counter(
        "learner_proposal_received_count",
        Unit::Count,
        "Proposals that this learner has received",
        |metrics| &metrics.proposals_received,
    ),
    Metric::counter(
        "learner_commit_received_count",
        Unit::Count,
        "Commits that this learner has received",
        |metrics| &metrics.commits_received,
    ),
    // Apache counts the requests that a leader receives.
    Metric::counter(
        "revalidate_count",
        Unit::Count,
        "Replies to revalidations of sessions that this learner has received",
        |metrics| &metrics.revalidations_received,
    ),
    Metric::summary(
        "unavailable_time",
        Unit::Milliseconds,
        "Time from LOOKING until clients were served again",
        |metrics| &metrics.unavailable,
    ),
    Metric::summary(
        "leader_unavailable_time",
        Unit::Milliseconds,
        "Time from LOOKING until clients were served again by another leader",
        |metrics| &metrics.leader_unavailable,
    ),
];

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
