//! `mntr`: all metrics, one line each, as `zk_<key>`, a tab and the value.
//!
//! Every key that Apache ZooKeeper 3.9.5 prints is printed, so that no dashboard misses one. A
//! value is either measured or, for things that do not exist here, the zero that [`CONSTANT`]
//! explains. Two groups are omitted. Apache's sizes of reads and writes for each node below the
//! root (`..._read_per_namespace`, `..._write_per_namespace`) appear only with traffic, and
//! counting them would cost every read a lookup in a table that all threads share. A leader's
//! queues to each learner (`<id>_learner_handler_qp_...`) do not exist here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ironkeeper_engine::stats::{Distribution, ServerStats, Totals};
use ironkeeper_proto::path;
use ironkeeper_tree::Quota;
use ironkeeper_zab::{LearnerView, Status};

use super::{java_text, process, version};
use crate::metrics::Metrics;
use crate::role;
use crate::shared::Shared;

/// The formats in which Apache prints a metric.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Number,
    /// `avg_`, `min_`, `max_`, `cnt_` and `sum_`.
    Summary,
    /// The same and `p50_`, `p95_`, `p99_` and `p999_`.
    Distribution,
}

/// Keys whose value is always zero, with the reason. All other values in this file are measured.
const CONSTANT: &[(&str, Shape, &[&str])] = {
    use Shape::{Distribution, Number, Summary};
    &[
        (
            "Requests do not pass through a chain of queues and threads. A write is judged where it \
             arrives, a read is served on the spot, and what has to wait is waited for in one line \
             per connection.",
            Number,
            &[
                "prep_processor_request_queued",
                "outstanding_changes_queued",
                "outstanding_changes_removed",
                "request_commit_queued",
                "requests_not_forwarded_to_commit_processor",
            ],
        ),
        (
            "The same, as sizes and times of those queues.",
            Summary,
            &[
                "prep_process_time",
                "prep_processor_queue_size",
                "proposal_process_time",
                "sync_process_time",
                "sync_processor_queue_size",
                "session_queues_drained",
                "pending_session_queue_size",
                "requests_in_session_queue",
                "reads_after_write_in_session_queue",
                "reads_issued_from_session_queue",
                "read_commit_proc_req_queued",
                "write_commit_proc_req_queued",
                "commit_commit_proc_req_queued",
                "read_commit_proc_issued",
                "write_commit_proc_issued",
                "write_batch_time_in_commit_processor",
                "concurrent_request_processing_in_commit_processor",
                "time_waiting_empty_pool_in_commit_processor_read_ms",
                "commit_process_time",
            ],
        ),
        (
            "The same, with percentiles.",
            Distribution,
            &[
                "prep_processor_queue_time_ms",
                "close_session_prep_time",
                "sync_processor_queue_time_ms",
                "sync_processor_queue_and_flush_time_ms",
                "read_commitproc_time_ms",
                "write_commitproc_time_ms",
                "read_final_proc_time_ms",
                "write_final_proc_time_ms",
                "local_write_committed_time_ms",
                "server_write_committed_time_ms",
            ],
        ),
        (
            "Watches are removed when they are used up or their connection ends, not later by a \
             cleaner.",
            Number,
            &["dead_watchers_queued", "dead_watchers_cleared", "add_dead_watcher_stall_time"],
        ),
        ("The same.", Distribution, &["dead_watchers_cleaner_latency"]),
        (
            "Replies are written straight from the tree, so there is no cache of them.",
            Number,
            &[
                "response_packet_cache_hits",
                "response_packet_cache_misses",
                "response_packet_get_children_cache_hits",
                "response_packet_get_children_cache_misses",
            ],
        ),
        (
            "There is no TLS, no Netty and no HTTP server for administrators, and a connection is \
             only taken in by a server that runs.",
            Number,
            &[
                "outstanding_tls_handshake",
                "unsuccessful_handshake",
                "tls_handshake_exceeded",
                "non_mtls_local_conn_count",
                "non_mtls_remote_conn_count",
                "cnxn_closed_without_zk_server_running",
                "insecure_admin_count",
                "restore_error_count",
                "restore_rate_limited_count",
                "snapshot_rate_limited_count",
            ],
        ),
        ("The same.", Summary, &["netty_queued_buffer_capacity", "restore_time"]),
        (
            "There is no scheme `ensemble`.",
            Number,
            &["ensemble_auth_fail", "ensemble_auth_skip", "ensemble_auth_success"],
        ),
        (
            "Messages between servers do not pass through queues either, and steps on the way to a \
             leader are not timed one by one.",
            Number,
            &["quit_leading_due_to_disloyal_voter", "skip_learner_request_to_next_processor_count"],
        ),
        (
            "The same.",
            Summary,
            &[
                "election_time",
                "follower_sync_time",
                "observer_sync_time",
                "inflight_diff_count",
                "inflight_snap_count",
                "learner_request_processor_queue_size",
                "socket_closing_time",
            ],
        ),
        (
            "The same.",
            Distribution,
            &[
                "commit_propagation_latency",
                "om_commit_process_time_ms",
                "om_proposal_process_time_ms",
                "proposal_ack_creation_latency",
                "proposal_latency",
                "quorum_ack_latency",
            ],
        ),
        ("There is no Java to pause.", Distribution, &["jvm_pause_time_ms"]),
    ]
};

pub(super) fn render(shared: &Shared) -> String {
    let core = &shared.core;
    let db = &core.db;
    let mut lines = Lines::default();
    lines.put("version", version::full());
    lines.put("server_state", super::mode(shared));
    lines.member(shared);

    let state = db.read();
    let tree = &state.tree;
    let quotas: Vec<Quota> = tree.quotas().collect();
    let (nodes, ephemerals, data_bytes) =
        (tree.node_count(), tree.ephemeral_count(), tree.data_bytes());
    let (watches, sessions) = (state.watches.count(), state.sessions.len());
    drop(state);
    lines.put("znode_count", nodes);
    lines.put("ephemerals_count", ephemerals);
    lines.put("approximate_data_size", data_bytes);
    lines.put("watch_count", watches);
    lines.put("global_sessions", sessions);
    let local_sessions = core.with_engine(|engine| {
        engine.local_expiry().schedule().values().map(BTreeSet::len).sum::<usize>()
    });
    lines.put("local_sessions", local_sessions);
    lines.put("num_alive_connections", shared.connections.len());
    lines.put("outstanding_requests", db.outstanding.load(Relaxed));
    let drop_probability = java_text::double(db.connection_drop_probability());
    lines.put("connection_drop_probability", drop_probability);
    lines.put("uptime", core.clock.uptime_ms());
    // -1, as in Java, if it is unknown.
    lines.put("open_file_descriptor_count", process::open_files().unwrap_or(-1));
    lines.put("max_file_descriptor_count", process::open_files_max().unwrap_or(-1));
    // A failure of this kind stops the server, so the count is at most one.
    lines.put("unrecoverable_error_count", u8::from(core.shutdown.failure().is_some()));
    // The next two are Ironkeeper's own keys; monitors ignore unknown keys.
    lines.put("disk_full", u8::from(db.disk_full.load(Relaxed)));
    lines.put("autopurge", u8::from(shared.config.purge_interval_ms.is_some()));
    lines.engine(&db.stats);
    lines.server(&shared.metrics);
    lines.quotas(&quotas);
    lines.constants();
    lines.text
}

#[derive(Debug, Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "zk_{key}\t{value}");
    }

    fn counter(&mut self, key: &str, counter: &AtomicU64) {
        self.put(key, counter.load(Relaxed));
    }

    fn summary(&mut self, name: &str, totals: Totals) {
        self.put(&format!("avg_{name}"), java_text::average(totals.average()));
        self.put(&format!("min_{name}"), totals.least());
        self.put(&format!("max_{name}"), totals.most);
        self.put(&format!("cnt_{name}"), totals.count);
        self.put(&format!("sum_{name}"), totals.sum);
    }

    fn distribution(&mut self, name: &str, values: &Distribution) {
        self.summary(name, values.summary().totals());
        let [p50, p95, p99, p999] = values.quantiles([0.5, 0.95, 0.99, 0.999]);
        self.put(&format!("p50_{name}"), p50);
        self.put(&format!("p95_{name}"), p95);
        self.put(&format!("p99_{name}"), p99);
        self.put(&format!("p999_{name}"), p999);
    }

    /// Prints the metrics of members of an ensemble, in Apache's order.
    fn member(&mut self, shared: &Shared) {
        let Some(member) = &shared.core.member else { return };
        let status = member.status();
        self.put("peer_state", role::names(status).1);
        self.put("quorum_size", member.membership().voters().count());
        if let Status::Observing { leader, .. } = status {
            self.put("observer_master_id", leader);
        }
        if !matches!(status, Status::Leading { .. }) {
            return;
        }
        let sizes = &shared.core.db.stats.proposal_size;
        self.put("last_proposal_size", sizes.last());
        self.put("min_proposal_size", sizes.min());
        self.put("max_proposal_size", sizes.max());
        let (learners, pending_syncs) =
            shared.core.with_engine(|engine| (engine.zab().learners(), engine.pending_syncs()));
        let voters = member.membership();
        let synced = |counts: &dyn Fn(&LearnerView) -> bool| {
            learners.iter().filter(|learner| learner.is_up_to_date && counts(learner)).count()
        };
        let votes = |learner: &LearnerView| voters.is_voter(learner.id);
        self.put("learners", learners.len());
        self.put("synced_followers", synced(&|learner| !learner.observes && votes(learner)));
        self.put(
            "synced_non_voting_followers",
            synced(&|learner| !learner.observes && !votes(learner)),
        );
        self.put("synced_observers", synced(&|learner| learner.observes));
        self.put("pending_syncs", pending_syncs);
        self.put("leader_uptime", member.role.age_ms(shared.core.clock.now()));
    }

    fn engine(&mut self, stats: &ServerStats) {
        let latency = stats.latency();
        self.put("min_latency", latency.least());
        self.put("avg_latency", java_text::average(latency.average()));
        self.put("max_latency", latency.most);
        self.counter("packets_received", &stats.packets_received);
        self.counter("packets_sent", &stats.packets_sent);
        self.counter("bytes_received_count", &stats.bytes_received);
        self.counter("response_bytes", &stats.response_bytes);
        self.counter("watch_bytes", &stats.watch_bytes);
        self.put("last_client_response_size", stats.response_size.last());
        self.put("min_client_response_size", stats.response_size.min());
        self.put("max_client_response_size", stats.response_size.max());
        self.counter("connection_request_count", &stats.connect_requests);
        self.counter("connection_revalidate_count", &stats.revalidations);
        self.counter("connection_rejected", &stats.connections_rejected);
        self.counter("connection_drop_count", &stats.connections_dropped);
        self.counter("sessionless_connections_expired", &stats.sessionless_expired);
        self.counter("stale_sessions_expired", &stats.sessions_expired);
        // Apache counts these for TLS only; here it is every failed authentication.
        self.counter("auth_failed_count", &stats.auth_failures);
        self.counter("large_requests_rejected", &stats.large_requests_rejected);
        self.counter("digest_mismatches_count", &stats.digest_mismatches);
        let throttle = &stats.throttle;
        self.summary("connection_token_deficit", throttle.token_deficit.totals());
        self.counter("request_throttle_wait_count", &throttle.requests_waited);
        self.distribution("request_throttle_queue_time_ms", &throttle.queue_time);
        self.counter("throttled_ops", &throttle.requests_refused);
        self.counter("stale_requests", &throttle.stale_requests);
        self.counter("stale_requests_dropped", &throttle.stale_requests_dropped);
        self.counter("stale_replies", &throttle.stale_replies);
        // Apache counts the next two on leaders only; here a standalone server counts proposals
        // too, and every server counts commits.
        self.counter("proposal_count", &stats.proposals);
        self.counter("commit_count", &stats.commits);
        self.counter("sync_processor_request_queued", &stats.proposals);
        self.distribution("readlatency", &stats.read_latency);
        self.distribution("updatelatency", &stats.update_latency);
        self.distribution("propagation_latency", &stats.propagation_latency);
        let fired = &stats.watches_fired;
        self.summary("node_created_watch_count", fired.created.totals());
        self.summary("node_deleted_watch_count", fired.deleted.totals());
        self.summary("node_changed_watch_count", fired.data_changed.totals());
        self.summary("node_children_watch_count", fired.children_changed.totals());
        for (namespace, count) in stats.quota_refusals() {
            self.put(&format!("{namespace}_quota_exceeded_error_per_namespace"), count);
        }
    }

    fn server(&mut self, metrics: &Metrics) {
        self.summary("fsynctime", metrics.fsync.summary().totals());
        self.distribution("sync_processor_queue_flush_time_ms", &metrics.fsync);
        self.summary("sync_processor_batch_size", metrics.batch.totals());
        self.summary("snapshottime", metrics.snapshot.totals());
        self.counter("snapshot_error_count", &metrics.snapshot_errors);
        self.summary("dbinittime", metrics.db_init.totals());
        self.summary("startup_snap_load_time", metrics.startup_snapshot.totals());
        self.summary("startup_txns_load_time", metrics.startup_txns.totals());
        self.summary("startup_txns_loaded", metrics.startup_txns_loaded.totals());
        self.counter("looking_count", &metrics.lookings);
        self.counter("diff_count", &metrics.diffs_sent);
        self.counter("snap_count", &metrics.trees_sent);
        self.counter("learner_proposal_received_count", &metrics.proposals_received);
        self.counter("learner_commit_received_count", &metrics.commits_received);
        self.counter("revalidate_count", &metrics.revalidations_received);
        self.summary("unavailable_time", metrics.unavailable.totals());
        self.summary("leader_unavailable_time", metrics.leader_unavailable.totals());
    }

    /// Prints limits and usage of quotas, added up for each node below the root. A hard limit takes
    /// precedence over a soft one, and a limit that is not set counts as -1.
    fn quotas(&mut self, quotas: &[Quota]) {
        let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for Quota { path, limits, usage } in quotas {
            let limit = |hard: i64, soft: i64| if hard > -1 { hard } else { soft };
            for (name, value) in [
                ("quota_count_limit_per_namespace", limit(limits.count_hard, limits.count)),
                ("quota_bytes_limit_per_namespace", limit(limits.bytes_hard, limits.bytes)),
                ("quota_count_usage_per_namespace", usage.count),
                ("quota_bytes_usage_per_namespace", usage.bytes),
            ] {
                let sum = sums.entry((path::namespace(path), name)).or_default();
                *sum = sum.wrapping_add(value);
            }
        }
        for ((namespace, name), sum) in sums {
            self.put(&format!("{namespace}_{name}"), sum);
        }
    }

    fn constants(&mut self) {
        let nothing = Distribution::default();
        for (_, shape, names) in CONSTANT {
            for name in *names {
                match shape {
                    Shape::Number => self.put(name, 0),
                    Shape::Summary => self.summary(name, Totals::default()),
                    Shape::Distribution => self.distribution(name, &nothing),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_engine::stats::Summary;
    use ironkeeper_tree::{QuotaLimits, QuotaUsage};

    #[track_caller]
    fn check(put: impl FnOnce(&mut Lines), text: &str) {
        let mut lines = Lines::default();
        put(&mut lines);
        assert_eq!(lines.text, text);
    }

    #[test]
    fn summaries_print_as_five_lines() {
        let times = Summary::default();
        [2, 0, 0].iter().for_each(|ms| times.add(*ms));
        check(
            |lines| lines.summary("fsynctime", times.totals()),
            "zk_avg_fsynctime\t0.6667\n\
             zk_min_fsynctime\t0\n\
             zk_max_fsynctime\t2\n\
             zk_cnt_fsynctime\t3\n\
             zk_sum_fsynctime\t2\n",
        );
        check(
            |lines| lines.summary("fsynctime", Totals::default()),
            "zk_avg_fsynctime\t0.0\n\
             zk_min_fsynctime\t0\n\
             zk_max_fsynctime\t0\n\
             zk_cnt_fsynctime\t0\n\
             zk_sum_fsynctime\t0\n",
        );
    }

    #[test]
    fn distributions_add_percentiles() {
        let times = Distribution::default();
        [3, 27, 64].iter().for_each(|ms| times.add(*ms));
        check(
            |lines| lines.distribution("updatelatency", &times),
            "zk_avg_updatelatency\t31.3333\n\
             zk_min_updatelatency\t3\n\
             zk_max_updatelatency\t64\n\
             zk_cnt_updatelatency\t3\n\
             zk_sum_updatelatency\t94\n\
             zk_p50_updatelatency\t27\n\
             zk_p95_updatelatency\t64\n\
             zk_p99_updatelatency\t64\n\
             zk_p999_updatelatency\t64\n",
        );
    }

    #[test]
    fn quotas_are_added_up_by_the_first_name() {
        let quota = |path: &str, count_hard, bytes| Quota {
            path: path.to_owned(),
            limits: QuotaLimits { count: 5, bytes, count_hard, bytes_hard: -1 },
            usage: QuotaUsage { count: 2, bytes: 5 },
        };
        check(
            |lines| {
                lines.quotas(&[
                    quota("/qa", 7, 100),
                    quota("/qb/x", -1, -1),
                    quota("/qb/y", -1, -1),
                ]);
            },
            "zk_qa_quota_bytes_limit_per_namespace\t100\n\
             zk_qa_quota_bytes_usage_per_namespace\t5\n\
             zk_qa_quota_count_limit_per_namespace\t7\n\
             zk_qa_quota_count_usage_per_namespace\t2\n\
             zk_qb_quota_bytes_limit_per_namespace\t-2\n\
             zk_qb_quota_bytes_usage_per_namespace\t10\n\
             zk_qb_quota_count_limit_per_namespace\t10\n\
             zk_qb_quota_count_usage_per_namespace\t4\n",
        );
    }

    #[test]
    fn what_does_not_exist_is_zero_in_its_shape() {
        let mut lines = Lines::default();
        lines.constants();
        for line in lines.text.lines() {
            let (key, value) = line.split_once('\t').expect("a tab");
            assert_eq!(value, if key.starts_with("zk_avg_") { "0.0" } else { "0" }, "{key}");
        }
    }
}
