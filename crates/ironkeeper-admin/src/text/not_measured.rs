//! The metrics of Apache that have no meaning here. `mntr` prints them as zeros, so that no
//! dashboard misses a key.

use ironkeeper_metrics::Kind;

/// Keys whose value is always zero, with the reason.
pub(super) const NOT_MEASURED: &[(&str, Kind, &[&str])] = {
    use Kind::{Counter, Distribution, Summary};
    &[
        (
            "Requests do not pass through a chain of queues and threads: a write is prepared \
             and a read is served on the thread that receives it, and a request that has to \
             wait is queued in the lane of its connection.",
            Counter,
            &[
                "prep_processor_request_queued",
                "outstanding_changes_queued",
                "outstanding_changes_removed",
                "request_commit_queued",
                "requests_not_forwarded_to_commit_processor",
            ],
        ),
        (
            "The same: sizes and times of those queues.",
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
            "A watch is removed when it has fired or when its connection ends, not later by a \
             cleaner.",
            Counter,
            &["dead_watchers_queued", "dead_watchers_cleared", "add_dead_watcher_stall_time"],
        ),
        ("The same.", Distribution, &["dead_watchers_cleaner_latency"]),
        (
            "Replies are encoded from the tree, so there is no cache of replies.",
            Counter,
            &[
                "response_packet_cache_hits",
                "response_packet_cache_misses",
                "response_packet_get_children_cache_hits",
                "response_packet_get_children_cache_misses",
            ],
        ),
        (
            "There is no TLS, no Netty and no HTTP server for administrators, and connections \
             are accepted only while the server runs.",
            Counter,
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
            Counter,
            &["ensemble_auth_fail", "ensemble_auth_skip", "ensemble_auth_success"],
        ),
        (
            "Packets between servers do not pass through such queues, and the phases of an \
             election and of a proposal are not measured separately.",
            Counter,
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
