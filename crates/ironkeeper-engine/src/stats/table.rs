//! The metrics of the engine: one row for each, in the order of `mntr`.
//!
//! Names are Apache's; a comment at the row states where our value differs from Apache's.

use ironkeeper_metrics::{LastMinMax, Metric, Reading, Unit, four_decimals};

use super::ServerStats;

/// The metrics that only a leader shows.
pub const LEADER_METRICS: &[Metric<ServerStats>] = &[
    Metric::size(
        "last_proposal_size",
        "Size of the last proposal; -1 before the first",
        |stats| &stats.proposal_size,
        LastMinMax::last,
    ),
    Metric::size(
        "min_proposal_size",
        "Size of the smallest proposal; -1 before the first",
        |stats| &stats.proposal_size,
        LastMinMax::min,
    ),
    Metric::size(
        "max_proposal_size",
        "Size of the largest proposal; -1 before the first",
        |stats| &stats.proposal_size,
        LastMinMax::max,
    ),
];

/// The metrics of every server.
pub const METRICS: &[Metric<ServerStats>] = &[
    Metric::gauge(
        "min_latency",
        Unit::Milliseconds,
        "Shortest time from a request to its reply",
        |stats| Some(Reading::Count(stats.latency().least())),
    ),
    Metric::gauge(
        "avg_latency",
        Unit::Milliseconds,
        "Average time from a request to its reply",
        |stats| Some(Reading::Real(four_decimals(stats.latency().average()))),
    ),
    Metric::gauge(
        "max_latency",
        Unit::Milliseconds,
        "Longest time from a request to its reply",
        |stats| Some(Reading::Count(stats.latency().most)),
    ),
    Metric::counting_gauge(
        "packets_received",
        Unit::Count,
        "Frames and four-letter words received from clients, pings included",
        |stats| &stats.packets_received,
    ),
    Metric::counting_gauge(
        "packets_sent",
        Unit::Count,
        "Replies and watch events sent to clients",
        |stats| &stats.packets_sent,
    ),
    Metric::counter(
        "bytes_received_count",
        Unit::Bytes,
        "Bytes received from clients, with the length fields of frames",
        |stats| &stats.bytes_received,
    ),
    Metric::counter(
        "response_bytes",
        Unit::Bytes,
        "Bytes of replies, without those to pings and without length fields",
        |stats| &stats.response_bytes,
    ),
    Metric::counter(
        "watch_bytes",
        Unit::Bytes,
        "Bytes of watch events, without length fields",
        |stats| &stats.watch_bytes,
    ),
    Metric::size(
        "last_client_response_size",
        "Size of the last reply or event; -1 before the first",
        |stats| &stats.response_size,
        LastMinMax::last,
    ),
    Metric::size(
        "min_client_response_size",
        "Size of the smallest reply or event; -1 before the first",
        |stats| &stats.response_size,
        LastMinMax::min,
    ),
    Metric::size(
        "max_client_response_size",
        "Size of the largest reply or event; -1 before the first",
        |stats| &stats.response_size,
        LastMinMax::max,
    ),
    Metric::counter(
        "connection_request_count",
        Unit::Count,
        "Requests to open or to resume a session",
        |stats| &stats.connect_requests,
    ),
    Metric::counter(
        "connection_revalidate_count",
        Unit::Count,
        "Requests to resume a session",
        |stats| &stats.revalidations,
    ),
    Metric::counter(
        "connection_rejected",
        Unit::Count,
        "Connections rejected by a limit or by the connection throttle",
        |stats| &stats.connections_rejected,
    ),
    Metric::counter(
        "connection_drop_count",
        Unit::Count,
        "Connections that the client closed without closing its session first",
        |stats| &stats.connections_dropped,
    ),
    Metric::counter(
        "sessionless_connections_expired",
        Unit::Count,
        "Connections closed because the client did not request a session in time",
        |stats| &stats.sessionless_expired,
    ),
    Metric::counter("stale_sessions_expired", Unit::Count, "Expired sessions", |stats| {
        &stats.sessions_expired
    }),
    // Apache counts these for TLS only; here it is every failed authentication.
    Metric::kept(Metric::counting_gauge(
        "auth_failed_count",
        Unit::Count,
        "Failed authentications",
        |stats| &stats.auth_failures,
    )),
    Metric::counter(
        "large_requests_rejected",
        Unit::Count,
        "Requests rejected because too many bytes of large requests were in progress",
        |stats| &stats.large_requests_rejected,
    ),
    Metric::counter(
        "digest_mismatches_count",
        Unit::Count,
        "Transactions whose recorded digest differs from the digest of the resulting tree",
        |stats| &stats.digest_mismatches,
    ),
    Metric::summary(
        "connection_token_deficit",
        Unit::Count,
        "Tokens missing in the bucket of the connection throttle after each admitted session",
        |stats| &stats.throttle.token_deficit,
    ),
    Metric::counter(
        "request_throttle_wait_count",
        Unit::Count,
        "Requests that waited because too many were in progress",
        |stats| &stats.throttle.requests_waited,
    ),
    // Apache records it with the throttle off as well.
    Metric::distribution(
        "request_throttle_queue_time_ms",
        Unit::Milliseconds,
        "Time of requests in the request throttle, recorded while it is on",
        |stats| &stats.throttle.queue_time,
    ),
    Metric::counter(
        "throttled_ops",
        Unit::Count,
        "Requests rejected because they waited too long for the request throttle",
        |stats| &stats.throttle.requests_refused,
    ),
    Metric::counter(
        "stale_requests",
        Unit::Count,
        "Requests that were executed although they were stale",
        |stats| &stats.throttle.stale_requests,
    ),
    Metric::counter(
        "stale_requests_dropped",
        Unit::Count,
        "Stale requests that were dropped",
        |stats| &stats.throttle.stale_requests_dropped,
    ),
    Metric::counter(
        "stale_replies",
        Unit::Count,
        "Replies to clients that had disconnected",
        |stats| &stats.throttle.stale_replies,
    ),
    // Apache counts the next two on leaders only; here a standalone server counts proposals too,
    // and every server counts commits.
    Metric::counter(
        "proposal_count",
        Unit::Count,
        "Transactions proposed by this server",
        |stats| &stats.proposals,
    ),
    Metric::counter("commit_count", Unit::Count, "Committed transactions applied", |stats| {
        &stats.commits
    }),
    // Apache counts reads as well.
    Metric::counter(
        "sync_processor_request_queued",
        Unit::Count,
        "Transactions queued for the log",
        |stats| &stats.proposals,
    ),
    Metric::distribution(
        "readlatency",
        Unit::Milliseconds,
        "Time from a request without a transaction to its reply: reads, pings, syncs",
        |stats| &stats.read_latency,
    ),
    Metric::distribution(
        "updatelatency",
        Unit::Milliseconds,
        "Time from a request with a transaction to its reply",
        |stats| &stats.update_latency,
    ),
    Metric::distribution(
        "propagation_latency",
        Unit::Milliseconds,
        "Time from the preparation of a transaction, by its own time, to its effect",
        |stats| &stats.propagation_latency,
    ),
    Metric::summary(
        "node_created_watch_count",
        Unit::Count,
        "Recipients of each NodeCreated event",
        |stats| &stats.watches_fired.created,
    ),
    Metric::summary(
        "node_deleted_watch_count",
        Unit::Count,
        "Recipients of each NodeDeleted event",
        |stats| &stats.watches_fired.deleted,
    ),
    Metric::summary(
        "node_changed_watch_count",
        Unit::Count,
        "Recipients of each NodeDataChanged event",
        |stats| &stats.watches_fired.data_changed,
    ),
    Metric::summary(
        "node_children_watch_count",
        Unit::Count,
        "Recipients of each NodeChildrenChanged event",
        |stats| &stats.watches_fired.children_changed,
    ),
    Metric::labelled_counter(
        "quota_exceeded_error_per_namespace",
        Unit::Count,
        "Writes rejected because of a hard quota, by the first name of the path",
        |stats| &stats.quota_refusals,
    ),
];

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_reset_leaves_failed_authentications_only() {
        let stats = ServerStats::default();
        stats.auth_failures.store(2, Relaxed);
        stats.note_reply(100);
        stats.note_quota_refusal("/a/b");
        stats.proposal_size.note(9);
        stats.throttle.queue_time.add(3);
        stats.watches_fired.created.add(1);
        stats.reset();
        assert_eq!(stats.auth_failures.load(Relaxed), 2);
        let fresh = ServerStats::default();
        fresh.auth_failures.store(2, Relaxed);
        for table in [METRICS, LEADER_METRICS] {
            let read = |stats| ironkeeper_metrics::collect(table, stats);
            assert_eq!(read(&stats), read(&fresh));
        }
    }
}
