//! The settings of the engine.

use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;
use ironkeeper_tree::TreeConfig;

use crate::auth::AuthConfig;
use crate::planted::Place;
use crate::request_throttle::RequestThrottleConfig;
use crate::throttle::ConnectionThrottleConfig;
use crate::unsent::UNSENT_BYTES_MAX;

/// Settings of the pure server. The defaults are Apache ZooKeeper's, with a tick of two seconds.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The top byte of session ids; a standalone server is number 1.
    pub server_id: u8,
    pub tick_ms: u64,
    pub session_timeout_min_ms: i32,
    pub session_timeout_max_ms: i32,
    /// The longest request frame (`jute.maxbuffer`).
    pub frame_bytes_max: usize,
    /// The longest string or buffer inside a record, and the longest transaction, which is one such
    /// buffer in packets to learners and in the log.
    pub field_bytes_max: usize,
    /// Requests inside the server above which busy connections are not read
    /// (`globalOutstandingLimit`).
    pub outstanding_max: usize,
    /// Requests longer than this count as large; `None` switches the limit off.
    pub large_request_bytes_min: Option<usize>,
    /// Bytes of large requests inside the server at one time.
    pub large_request_bytes_max: usize,
    /// Bytes in the outboxes of all connections together. Above it connections are closed: first
    /// the clients that read nothing and have the most bytes.
    pub unsent_bytes_max: usize,
    /// Limits how fast sessions are opened; `None` is no limit.
    pub connection_throttle: Option<ConnectionThrottleConfig>,
    /// Limits the requests in progress; `None` is no limit.
    pub request_throttle: Option<RequestThrottleConfig>,
    pub auth: AuthConfig,
    pub tree: TreeConfig,
    pub enforce_quota: bool,
    /// Whether transactions carry the digest of the tree.
    pub digest_enabled: bool,
    /// Whether a closeSession transaction lists the nodes it removes.
    pub close_session_lists_paths: bool,
    /// Whether the members of the ensemble can be changed by clients (`reconfigEnabled`).
    pub reconfig_enabled: bool,
    /// Whether a reconfig that leaves fewer than two voters is rejected (`standaloneEnabled`).
    pub standalone_enabled: bool,
    /// Whether a leader serves clients itself (`leaderServes`).
    pub leader_serves: bool,
    /// Whether a server without a leader serves read-only clients (`readonlymode.enabled`).
    pub read_only_enabled: bool,
    pub local_sessions: LocalSessions,
    pub container: ContainerConfig,
    /// Transactions between snapshots (`snapCount`); the real number is drawn from the upper half.
    pub snap_count: u64,
    /// Bytes of log between snapshots; `None` is off.
    pub snap_bytes: Option<u64>,
    /// Where a test injects a panic; without debug assertions it has no effect.
    #[doc(hidden)]
    pub planted_panic: Option<Place>,
}

/// Sessions known only to the server that their client is connected to (`localSessionsEnabled`,
/// `localSessionsUpgradingEnabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalSessions {
    Off,
    /// Local sessions cannot create ephemeral nodes.
    On,
    /// The first ephemeral node makes a local session global.
    Upgrading,
}

/// When empty containers and expired TTL nodes are deleted.
#[derive(Clone, Copy, Debug)]
pub struct ContainerConfig {
    pub check_interval_ms: u64,
    pub deletions_per_minute_max: u64,
    /// A container that never had a child is deleted after this time; zero means never.
    pub never_used_ms: u64,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            server_id: 1,
            tick_ms: 2000,
            session_timeout_min_ms: 4000,
            session_timeout_max_ms: 40_000,
            frame_bytes_max: MAX_BUFFER_DEFAULT,
            field_bytes_max: 2 * MAX_BUFFER_DEFAULT,
            outstanding_max: 1000,
            large_request_bytes_min: None,
            large_request_bytes_max: 100 << 20,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            connection_throttle: None,
            request_throttle: None,
            auth: AuthConfig::default(),
            tree: TreeConfig::default(),
            enforce_quota: false,
            digest_enabled: true,
            close_session_lists_paths: true,
            reconfig_enabled: false,
            standalone_enabled: true,
            leader_serves: true,
            read_only_enabled: false,
            local_sessions: LocalSessions::Off,
            container: ContainerConfig {
                check_interval_ms: 60_000,
                deletions_per_minute_max: 10_000,
                never_used_ms: 0,
            },
            snap_count: 100_000,
            snap_bytes: Some(4 << 30),
            planted_panic: None,
        }
    }
}
