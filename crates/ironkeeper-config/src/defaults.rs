//! Default values of all limits of a server.
//!
//! The values are those of Apache ZooKeeper 3.9. Where a server that is started without any
//! configuration differs ([`Config::standalone_default`](super::Config::standalone_default)), the
//! constant begins with `UNCONFIGURED_` and its comment gives the reason.

/// Milliseconds of a tick, the unit of session expiry.
pub const TICK_TIME_MS: u32 = 3000;
/// The smallest session timeout is this many ticks.
pub const MIN_SESSION_TIMEOUT_TICKS: u32 = 2;
/// The largest session timeout is this many ticks.
pub const MAX_SESSION_TIMEOUT_TICKS: u32 = 20;

/// Maximum number of connections from one address; 0 would be no limit.
pub const MAX_CLIENT_CNXNS: u32 = 60;
/// Maximum number of connections in total; 0 is no limit.
pub const MAX_CNXNS: u32 = 0;
/// Requests in progress before the server stops reading from connections that have one of them.
pub const GLOBAL_OUTSTANDING_LIMIT: u32 = 1000;
/// How long a connection may stay open without requesting a session.
pub const SESSIONLESS_TIMEOUT_MS: u32 = 10_000;

/// Largest frame a client may send.
pub const JUTE_MAX_BUFFER_BYTES: u32 = 0xf_ffff;
/// Minimum allowance for a field inside a record on top of the largest frame.
pub const JUTE_EXTRA_SIZE_BYTES_MIN: u32 = 1024;
/// Maximum number of bytes of large requests in progress.
pub const LARGE_REQUEST_MAX_BYTES: u32 = 100 * 1024 * 1024;

/// Size of the preallocation of a transaction log file.
pub const PRE_ALLOC_SIZE_KB: u64 = 65_536;
/// Transactions between two snapshots, before randomisation.
pub const SNAP_COUNT: u32 = 100_000;
/// Minimum number of transactions between two snapshots.
pub const SNAP_COUNT_MIN: u32 = 2;
/// Log size between two snapshots, before randomisation.
pub const SNAP_SIZE_LIMIT_KB: u64 = 4_194_304;
/// A slower fsync is logged.
pub const FSYNC_WARNING_THRESHOLD_MS: u64 = 1000;
/// The minimum time between two fsyncs, in which writes are batched.
pub const FLUSH_DELAY_MS: u64 = 0;
/// The batch ends when no write has arrived for this fraction of the time: one third.
pub const FLUSH_QUIET_PART: u64 = 3;
/// The maximum number of writes in one batch.
pub const MAX_BATCH_SIZE: u32 = 1000;

/// Snapshots that a purge keeps, and the minimum for that setting.
pub const SNAP_RETAIN_COUNT: u32 = 3;

/// Interval of the check of containers and TTL nodes.
pub const CONTAINER_CHECK_INTERVAL_MS: u32 = 60_000;
/// Maximum number of them that are deleted in a minute.
pub const CONTAINER_MAX_PER_MINUTE: u32 = 10_000;

/// Milliseconds between two fillings of the connection throttle's bucket.
pub const CONNECTION_THROTTLE_FILL_TIME_MS: u32 = 1;
/// Tokens of one filling.
pub const CONNECTION_THROTTLE_FILL_COUNT: u32 = 1;
/// Increase of the probability of dropping a connection.
pub const CONNECTION_THROTTLE_DROP_INCREASE: f64 = 0.02;
/// Decrease of the probability of dropping a connection.
pub const CONNECTION_THROTTLE_DROP_DECREASE: f64 = 0.002;
/// The probability decreases while at most this fraction of the bucket is missing.
pub const CONNECTION_THROTTLE_DECREASE_RATIO: f64 = 0.0;
/// Tokens a new session costs when sessions are weighed.
pub const CONNECTION_THROTTLE_GLOBAL_WEIGHT: u32 = 3;
/// Tokens a local session costs when sessions are weighed.
pub const CONNECTION_THROTTLE_LOCAL_WEIGHT: u32 = 1;
/// Tokens a resumed session costs when sessions are weighed.
pub const CONNECTION_THROTTLE_RENEW_WEIGHT: u32 = 2;

/// Time between two checks of the requests that wait for the request throttle.
pub const REQUEST_THROTTLE_STALL_TIME_MS: u32 = 100;

/// Ticks to find a leader and synchronize with it, in Apache's sample file; there is no default.
pub const SAMPLE_INIT_LIMIT: u32 = 10;
/// Ticks without packets between leader and learner, in Apache's sample file; there is no default.
pub const SAMPLE_SYNC_LIMIT: u32 = 5;
/// Milliseconds between two attempts to reach the leader.
pub const LEADER_CONNECT_DELAY_MS: u32 = 100;
/// Milliseconds after which a vote is sent again, at first.
pub const NOTIFICATION_MIN_MS: u32 = 200;
/// Milliseconds after which a vote is sent again, at most.
pub const NOTIFICATION_MAX_MS: u32 = 60_000;
/// Maximum milliseconds that an observer waits before it is LOOKING again.
pub const OBSERVER_ELECTION_DELAY_MS: u32 = 200;
/// Milliseconds to connect to another member's election port.
pub const ELECTION_CONNECT_TIMEOUT_MS: u32 = 5000;
/// Attempts to listen on an own address that does not exist yet.
pub const BIND_TRIES: u32 = 3;
/// Transactions kept in memory to synchronize learners.
pub const COMMIT_LOG_COUNT: u32 = 500;
/// A learner receives the log instead of a snapshot up to this fraction of the snapshot's size.
pub const SNAPSHOT_SIZE_FACTOR: f64 = 0.33;

/// Client port when nothing is configured.
pub const UNCONFIGURED_CLIENT_PORT: u16 = 2181;
/// Listening address when nothing is configured: an unsecured server is not reachable from other
/// machines.
pub const UNCONFIGURED_CLIENT_HOST: &str = "127.0.0.1";
/// Tick when nothing is configured: the value of Apache's sample file, which is what users know as
/// the default.
pub const UNCONFIGURED_TICK_TIME_MS: u32 = 2000;
/// Connections from one address when nothing is configured: every client has the same (loopback)
/// address, so a limit by address would be a limit for all of them together.
pub const UNCONFIGURED_MAX_CLIENT_CNXNS: u32 = 0;
/// Purge interval when nothing is configured: no administrator deletes old logs, and a purge costs
/// next to nothing when there is nothing to delete. The number of snapshots kept does not depend on
/// how often it runs.
pub const UNCONFIGURED_PURGE_INTERVAL_MS: u64 = 10 * 60 * 1000;
