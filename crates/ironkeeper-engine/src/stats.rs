//! The counters of the server.
//!
//! All accesses are relaxed: counters order nothing, and a reader sees numbers that may be a moment
//! apart. A request costs a few additions; a value that can be computed on demand has no counter of
//! its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{OpCode, Xid, Zxid, path};

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
    quota_refusals: Mutex<BTreeMap<String, u64>>,
}

impl ServerStats {
    /// Resets what `srst` resets: everything except for failed authentications, as Apache ZooKeeper
    /// does.
    pub fn reset(&self) {
        let ServerStats {
            packets_received,
            packets_sent,
            bytes_received,
            response_bytes,
            watch_bytes,
            response_size,
            read_latency,
            update_latency,
            propagation_latency,
            auth_failures: _,
            connect_requests,
            revalidations,
            connections_rejected,
            connections_dropped,
            sessionless_expired,
            sessions_expired,
            digest_mismatches,
            large_requests_rejected,
            throttle,
            proposals,
            proposal_size,
            commits,
            watches_fired,
            quota_refusals,
        } = self;
        proposal_size.reset();
        for counter in [
            packets_received,
            packets_sent,
            bytes_received,
            response_bytes,
            watch_bytes,
            connect_requests,
            revalidations,
            connections_rejected,
            connections_dropped,
            sessionless_expired,
            sessions_expired,
            digest_mismatches,
            large_requests_rejected,
            proposals,
            commits,
        ] {
            counter.store(0, Relaxed);
        }
        for latency in [read_latency, update_latency, propagation_latency] {
            latency.reset();
        }
        watches_fired.reset();
        throttle.reset();
        response_size.reset();
        quota_refusals.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
        let namespace = path::namespace(path).to_owned();
        let mut refusals = self.quota_refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals.entry(namespace).or_default() += 1;
    }

    /// Returns the writes rejected because of a hard quota, by the first name of the path. Bounded
    /// by the nodes below the root that ever had a quota.
    pub fn quota_refusals(&self) -> BTreeMap<String, u64> {
        self.quota_refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the latencies of all requests together: count, sum, minimum and maximum.
    pub fn latency(&self) -> Totals {
        self.read_latency.summary().totals().with(self.update_latency.summary().totals())
    }
}

/// The reads served in one hold of the gate, added to the server's counters at its end: threads
/// that serve reads in parallel would otherwise contend for the same cache lines at every request.
#[derive(Debug, Default)]
pub(crate) struct ReadTally {
    replies: u64,
    response_bytes: u64,
    /// Served within the millisecond, as nearly all are.
    at_once: u64,
    last_bytes: usize,
    least_bytes: usize,
    most_bytes: usize,
}

impl ReadTally {
    /// Counts a reply of `frame_bytes` on the wire; `in_response_bytes` is false for pings.
    pub fn note(
        &mut self,
        stats: &ServerStats,
        frame_bytes: usize,
        in_response_bytes: bool,
        latency_ms: u64,
    ) {
        let bytes = frame_bytes.saturating_sub(FRAME_HEAD_BYTES);
        self.response_bytes += if in_response_bytes { bytes as u64 } else { 0 };
        self.least_bytes = if self.replies == 0 { bytes } else { self.least_bytes.min(bytes) };
        self.most_bytes = self.most_bytes.max(bytes);
        self.last_bytes = bytes;
        self.replies += 1;
        match latency_ms {
            0 => self.at_once += 1,
            _ => stats.read_latency.add(latency_ms),
        }
    }

    /// Adds everything to the server's counters.
    pub fn settle(self, stats: &ServerStats) {
        if self.replies == 0 {
            return;
        }
        stats.packets_sent.fetch_add(self.replies, Relaxed);
        stats.response_bytes.fetch_add(self.response_bytes, Relaxed);
        stats.read_latency.add_zeros(self.at_once);
        stats.response_size.note(self.least_bytes);
        stats.response_size.note(self.most_bytes);
        stats.response_size.note(self.last_bytes);
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

impl ThrottleStats {
    fn reset(&self) {
        let ThrottleStats {
            token_deficit,
            requests_waited,
            queue_time,
            requests_refused,
            stale_requests,
            stale_requests_dropped,
            stale_replies,
        } = self;
        token_deficit.reset();
        queue_time.reset();
        for counter in [
            requests_waited,
            requests_refused,
            stale_requests,
            stale_requests_dropped,
            stale_replies,
        ] {
            counter.store(0, Relaxed);
        }
    }
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

    fn reset(&self) {
        for summary in [&self.created, &self.deleted, &self.data_changed, &self.children_changed] {
            summary.reset();
        }
    }
}

/// The last, minimum and maximum of some sizes; -1 while there is none.
#[derive(Debug)]
pub struct LastMinMax {
    last: AtomicI64,
    min: AtomicI64,
    max: AtomicI64,
}

impl Default for LastMinMax {
    fn default() -> LastMinMax {
        LastMinMax { last: AtomicI64::new(-1), min: AtomicI64::new(-1), max: AtomicI64::new(-1) }
    }
}

impl LastMinMax {
    pub fn note(&self, size: usize) {
        let size = size as i64;
        self.last.store(size, Relaxed);
        // Usually nothing changes, and a load is cheaper than a store. Of two concurrent changes
        // the lesser record may be lost, until the next such size.
        if self.max.load(Relaxed) < size {
            self.max.fetch_max(size, Relaxed);
        }
        let min = self.min.load(Relaxed);
        if min == -1 || size < min {
            self.min.store(size, Relaxed);
        }
    }

    pub fn reset(&self) {
        for value in [&self.last, &self.min, &self.max] {
            value.store(-1, Relaxed);
        }
    }

    pub fn last(&self) -> i64 {
        self.last.load(Relaxed)
    }

    pub fn min(&self) -> i64 {
        self.min.load(Relaxed)
    }

    pub fn max(&self) -> i64 {
        self.max.load(Relaxed)
    }
}

/// Count, sum, minimum and maximum of some numbers, mostly milliseconds.
#[derive(Debug)]
pub struct Summary {
    count: AtomicU64,
    sum: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
        }
    }
}

impl Summary {
    pub fn add(&self, value: u64) {
        self.count.fetch_add(1, Relaxed);
        // Most requests take less than a millisecond, and zero changes neither sum nor maximum.
        if value != 0 {
            self.sum.fetch_add(value, Relaxed);
            self.most.fetch_max(value, Relaxed);
        }
        if self.least.load(Relaxed) > value {
            self.least.fetch_min(value, Relaxed);
        }
    }

    pub fn reset(&self) {
        self.count.store(0, Relaxed);
        self.sum.store(0, Relaxed);
        self.least.store(u64::MAX, Relaxed);
        self.most.store(0, Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            count: self.count.load(Relaxed),
            sum: self.sum.load(Relaxed),
            least: match self.least.load(Relaxed) {
                u64::MAX => None,
                least => Some(least),
            },
            most: self.most.load(Relaxed),
        }
    }
}

/// A [`Summary`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub count: u64,
    pub sum: u64,
    least: Option<u64>,
    pub most: u64,
}

impl Totals {
    /// Returns the totals of both.
    pub fn with(self, other: Totals) -> Totals {
        Totals {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            least: match (self.least, other.least) {
                (Some(one), Some(another)) => Some(one.min(another)),
                (one, another) => one.or(another),
            },
            most: self.most.max(other.most),
        }
    }

    /// Returns the minimum, or zero if there are no values.
    pub fn least(self) -> u64 {
        self.least.unwrap_or(0)
    }

    /// Returns the average, or zero if there are no values.
    pub fn average(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// A [`Summary`] with percentiles.
///
/// Values up to 15 are counted exactly, greater ones in eight buckets per power of two, so a
/// percentile is at most a sixteenth off. Zeros have no bucket: their number is the count minus all
/// buckets, so that the most frequent latency costs nothing more.
#[derive(Debug)]
pub struct Distribution {
    summary: Summary,
    buckets: Box<[AtomicU64]>,
}

/// Values below have a bucket each.
const EXACT: u64 = 16;
const EXACT_BITS: u32 = EXACT.ilog2();
/// The number of buckets per power of two above `EXACT`, as bits.
const STEP_BITS: u32 = 3;
/// Powers of two above `EXACT`; the last bucket contains all greater values, from about 49 days on.
const POWERS: u32 = 28;
const BUCKETS: usize = EXACT as usize + ((POWERS as usize) << STEP_BITS);

impl Default for Distribution {
    fn default() -> Distribution {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Distribution { summary: Summary::default(), buckets }
    }
}

impl Distribution {
    /// Adds the value zero `count` times.
    fn add_zeros(&self, count: u64) {
        if count > 0 {
            self.summary.count.fetch_add(count, Relaxed);
            self.summary.least.store(0, Relaxed);
        }
    }

    pub fn add(&self, value: u64) {
        self.summary.add(value);
        if value != 0 {
            self.buckets[bucket(value)].fetch_add(1, Relaxed);
        }
    }

    pub fn reset(&self) {
        self.summary.reset();
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the quantiles for the given fractions, interpolated linearly between neighbours.
    pub fn quantiles<const N: usize>(&self, parts: [f64; N]) -> [u64; N] {
        let mut counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        let totals = self.summary.totals();
        let above_zero: u64 = counts.iter().sum();
        counts[0] = totals.count.saturating_sub(above_zero);
        let count = counts[0] + above_zero;
        let at_rank = |rank: u64| {
            let mut left = rank;
            let found = counts.iter().position(|count| {
                let here = left <= *count;
                left = left.saturating_sub(*count);
                here
            });
            found.map_or(totals.most, middle).clamp(totals.least(), totals.most.max(totals.least()))
        };
        parts.map(|part| {
            if count == 0 {
                return 0;
            }
            let place = (part * (count + 1) as f64).clamp(1.0, count as f64);
            let (lower, upper) = (at_rank(place as u64), at_rank((place as u64 + 1).min(count)));
            let between = upper.saturating_sub(lower) as f64 * place.fract();
            lower + (between + 0.5) as u64
        })
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let power = value.ilog2();
    let step = (value >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let above = (((power - EXACT_BITS) as usize) << STEP_BITS) + step as usize;
    (EXACT as usize + above).min(BUCKETS - 1)
}

/// Returns the value that represents a bucket.
fn middle(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else { return bucket as u64 };
    let power = EXACT_BITS + (above >> STEP_BITS) as u32;
    let step = (above & ((1 << STEP_BITS) - 1)) as u64;
    let width = 1 << (power - STEP_BITS);
    (1 << power) + step * width + width / 2
}

/// The last operation of a connection, as `cons` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastOp {
    /// No reply yet; a resumed session has this until its first request.
    None,
    /// A write that failed, or the statistics were reset.
    NotApplicable,
    Op(OpCode),
}

impl LastOp {
    pub fn name(self) -> &'static str {
        match self {
            LastOp::None => "null",
            LastOp::NotApplicable => "NA",
            LastOp::Op(op) => op.short_name(),
        }
    }
}

/// The statistics of one connection for `cons`. Under the connection's lock.
#[derive(Clone, Debug)]
pub struct ConnStats {
    pub established_wall_ms: i64,
    pub packets_received: u64,
    pub packets_sent: u64,
    pub last_op: LastOp,
    /// The last xid that was not negative; -1 after a reset.
    pub last_xid: Xid,
    pub last_zxid: Zxid,
    pub last_response_ms: u64,
    pub last_latency_ms: u64,
    latency: ConnLatency,
}

#[derive(Clone, Copy, Debug, Default)]
struct ConnLatency {
    count: u64,
    sum_ms: u64,
    least_ms: u64,
    most_ms: u64,
}

impl ConnStats {
    pub fn new(established_wall_ms: i64) -> ConnStats {
        ConnStats {
            established_wall_ms,
            packets_received: 0,
            packets_sent: 0,
            last_op: LastOp::None,
            last_xid: Xid(0),
            last_zxid: Zxid::ZERO,
            last_response_ms: 0,
            last_latency_ms: 0,
            latency: ConnLatency::default(),
        }
    }

    /// Resets what `crst` resets.
    pub fn reset(&mut self) {
        *self = ConnStats {
            last_op: LastOp::NotApplicable,
            last_xid: Xid(-1),
            last_zxid: Zxid(-1),
            ..ConnStats::new(self.established_wall_ms)
        };
    }

    pub fn note_reply(&mut self, op: LastOp, xid: Xid, zxid: Zxid, now_ms: u64, latency_ms: u64) {
        self.packets_sent += 1;
        self.last_op = op;
        if xid.0 >= 0 {
            self.last_xid = xid;
        }
        self.last_zxid = zxid;
        self.last_response_ms = now_ms;
        self.last_latency_ms = latency_ms;
        let latency = &mut self.latency;
        latency.least_ms = match latency.count {
            0 => latency_ms,
            _ => latency.least_ms.min(latency_ms),
        };
        latency.most_ms = latency.most_ms.max(latency_ms);
        latency.sum_ms += latency_ms;
        latency.count += 1;
    }

    pub fn min_latency_ms(&self) -> u64 {
        self.latency.least_ms
    }

    /// Returns the average, rounded down as `cons` shows it.
    pub fn average_latency_ms(&self) -> u64 {
        self.latency.sum_ms.checked_div(self.latency.count).unwrap_or(0)
    }

    pub fn max_latency_ms(&self) -> u64 {
        self.latency.most_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

    #[track_caller]
    fn check(values: &[u64], quantiles: [u64; 4]) {
        let distribution = Distribution::default();
        values.iter().for_each(|value| distribution.add(*value));
        assert_eq!(distribution.quantiles(PARTS), quantiles);
    }

    #[test]
    fn quantiles_of_few_values_are_those_apache_prints() {
        check(&[], [0; 4]);
        check(&[27], [27; 4]);
        check(&[3, 27, 64], [27, 64, 64, 64]);
        // As observed: two values in the middle give their mean, rounded up.
        check(&[3, 5, 27, 64], [16, 64, 64, 64]);
        check(&[0, 0, 0, 1], [0, 1, 1, 1]);
        check(&[0, 1], [1, 1, 1, 1]);
    }

    #[test]
    fn a_bucket_is_at_most_a_sixteenth_off() {
        for value in (0..5000).chain((13..32).map(|power| (1_u64 << power) + 12_345)) {
            let off = middle(bucket(value)).abs_diff(value);
            assert!(off * 16 <= value, "{value} is taken for {}", middle(bucket(value)));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|index| bucket(middle(index)) == index));
    }

    #[test]
    fn many_zeroes_cost_no_bucket_and_still_count() {
        let distribution = Distribution::default();
        (0..999).for_each(|_| distribution.add(0));
        distribution.add(7);
        assert_eq!(distribution.quantiles([0.5, 0.998, 1.0]), [0, 0, 7]);
        assert_eq!(distribution.summary().totals().average(), 0.007);
    }

    #[test]
    fn totals_of_nothing_are_zero_and_do_not_disturb_others() {
        let some = Summary::default();
        some.add(4);
        some.add(9);
        let both = Totals::default().with(some.totals());
        assert_eq!((both.count, both.sum, both.least(), both.most), (2, 13, 4, 9));
        some.reset();
        assert_eq!((some.totals().least(), some.totals().average()), (0, 0.0));
    }

    #[test]
    fn sizes_start_unknown_and_forget_on_reset() {
        let sizes = LastMinMax::default();
        assert_eq!((sizes.last(), sizes.min(), sizes.max()), (-1, -1, -1));
        for size in [16, 84, 27] {
            sizes.note(size);
        }
        assert_eq!((sizes.last(), sizes.min(), sizes.max()), (27, 16, 84));
        sizes.reset();
        assert_eq!(sizes.min(), -1);
    }

    #[test]
    fn a_connection_remembers_its_last_real_xid() {
        let mut stats = ConnStats::new(5);
        assert_eq!((stats.last_op.name(), stats.last_xid, stats.last_zxid.0), ("null", Xid(0), 0));
        stats.note_reply(LastOp::Op(OpCode::GetData), Xid(3), Zxid(9), 100, 4);
        stats.note_reply(LastOp::Op(OpCode::Ping), Xid::PING, Zxid(9), 101, 1);
        assert_eq!((stats.last_op.name(), stats.last_xid), ("PING", Xid(3)));
        let latency = (stats.min_latency_ms(), stats.average_latency_ms(), stats.max_latency_ms());
        assert_eq!(latency, (1, 2, 4));
        stats.reset();
        assert_eq!((stats.last_op.name(), stats.last_xid, stats.last_zxid.0), ("NA", Xid(-1), -1));
        assert_eq!((stats.established_wall_ms, stats.min_latency_ms()), (5, 0));
    }
}
