//! The counters of the server.
//!
//! All accesses are relaxed: counters order nothing, and a reader sees numbers that may be a moment
//! apart. A request costs a few additions; a value that can be computed on demand has no counter of
//! its own. To add a counter, add a field and a row in `stats/table.rs`.

mod conn_stats;
mod read_tally;
mod table;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ironkeeper_metrics::{Distribution, LabelledCounter, LastMinMax, Summary, Totals};
use ironkeeper_proto::path;
use ironkeeper_proto::watch_event::EventType;

pub use conn_stats::{ConnStats, LastOp};
pub(crate) use read_tally::ReadTally;
pub use table::{LEADER_METRICS, METRICS};

/// The length field of a frame, which no count of response sizes includes.
pub const FRAME_HEAD_BYTES: usize = 4;

/// Counters of the whole server.
#[derive(Debug, Default)]
pub struct ServerStats {
    pub packets_received: AtomicU64,
    pub packets_sent: AtomicU64,
    /// Including the length field of every frame.
    pub bytes_received: AtomicU64,
    /// Replies to requests, without pings and without length fields.
    pub response_bytes: AtomicU64,
    /// Watch events, without length fields.
    pub watch_bytes: AtomicU64,
    /// Sizes of replies and events of all kinds, except for the reply to a connect request.
    pub response_size: LastMinMax,
    /// Requests that needed no transaction: reads, pings, syncs.
    pub read_latency: Distribution,
    /// Requests that were ordered among the transactions, including rejected ones.
    pub update_latency: Distribution,
    /// From the preparation of a write (the time of its transaction) to its effect.
    pub propagation_latency: Distribution,
    pub auth_failures: AtomicU64,
    /// Requests to open or to resume a session.
    pub connect_requests: AtomicU64,
    /// Requests to resume a session.
    pub revalidations: AtomicU64,
    pub connections_rejected: AtomicU64,
    /// Connections that the client closed without closing its session first.
    pub connections_dropped: AtomicU64,
    /// Connections closed because the client did not request a session in time.
    pub sessionless_expired: AtomicU64,
    pub sessions_expired: AtomicU64,
    pub digest_mismatches: AtomicU64,
    pub large_requests_rejected: AtomicU64,
    pub throttle: ThrottleStats,
    pub proposals: AtomicU64,
    /// Sizes of the proposals of a leader.
    pub proposal_size: LastMinMax,
    pub commits: AtomicU64,
    pub watches_fired: WatchesFired,
    /// Writes rejected because of a hard quota, by the first name of the path. Bounded by the nodes
    /// below the root that ever had a quota.
    pub quota_refusals: LabelledCounter,
}

impl ServerStats {
    /// Resets what `srst` resets: everything except for failed authentications, as Apache ZooKeeper
    /// does.
    pub fn reset(&self) {
        ironkeeper_metrics::reset(LEADER_METRICS, self);
        ironkeeper_metrics::reset(METRICS, self);
    }

    /// Counts a reply that is in the outbox. `frame_bytes` is its length on the wire.
    pub(crate) fn note_reply(&self, frame_bytes: usize) {
        let bytes = frame_bytes.saturating_sub(FRAME_HEAD_BYTES);
        self.response_bytes.fetch_add(bytes as u64, Relaxed);
        self.note_other_reply(frame_bytes);
    }

    /// Does the same for replies that Apache ZooKeeper does not count as response bytes: to pings
    /// and to authentication.
    pub(crate) fn note_other_reply(&self, frame_bytes: usize) {
        self.packets_sent.fetch_add(1, Relaxed);
        self.response_size.note(frame_bytes.saturating_sub(FRAME_HEAD_BYTES));
    }

    /// Counts one event sent to `receivers` connections.
    pub(crate) fn note_events(&self, receivers: u64, frame_bytes: usize) {
        let bytes = frame_bytes.saturating_sub(FRAME_HEAD_BYTES);
        self.packets_sent.fetch_add(receivers, Relaxed);
        self.watch_bytes.fetch_add(receivers * bytes as u64, Relaxed);
        self.response_size.note(bytes);
    }

    /// Counts a write that was rejected because of the hard quota on `path`.
    pub(crate) fn note_quota_refusal(&self, path: &str) {
        self.quota_refusals.add(path::namespace(path));
    }

    /// Returns the latencies of all requests together: count, sum, minimum and maximum.
    pub fn latency(&self) -> Totals {
        self.read_latency.summary().totals().with(self.update_latency.summary().totals())
    }
}

/// Counters of the connection throttle and the request throttle.
#[derive(Debug, Default)]
pub struct ThrottleStats {
    /// Tokens missing in the bucket after each admitted session.
    pub token_deficit: Summary,
    /// Requests that had to wait because too many were in progress.
    pub requests_waited: AtomicU64,
    /// How long requests waited, including requests that did not; recorded only while the throttle
    /// is on.
    pub queue_time: Distribution,
    /// Requests rejected because they had waited too long.
    pub requests_refused: AtomicU64,
    /// Requests that were executed although they were stale.
    pub stale_requests: AtomicU64,
    pub stale_requests_dropped: AtomicU64,
    /// Replies to clients that had disconnected.
    pub stale_replies: AtomicU64,
}

/// The number of connections that received an event of a change, by kind of change, for changes
/// with at least one recipient.
#[derive(Debug, Default)]
pub struct WatchesFired {
    pub created: Summary,
    pub deleted: Summary,
    pub data_changed: Summary,
    pub children_changed: Summary,
}

impl WatchesFired {
    pub fn of(&self, kind: EventType) -> &Summary {
        match kind {
            EventType::NodeCreated => &self.created,
            EventType::NodeDeleted => &self.deleted,
            EventType::NodeDataChanged => &self.data_changed,
            EventType::NodeChildrenChanged => &self.children_changed,
        }
    }
}
