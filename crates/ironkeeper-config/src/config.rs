//! The configuration of a server.

use std::path::PathBuf;

use crate::problem::{ConfigError, Problem, ProblemKind};
use crate::{
    AuthScheme, ConnectionThrottle, DigestAuth, EnsembleConfig, FourLetterWords, ListenAddress,
    RequestThrottle, defaults,
};

/// The configuration of a server. Every value is resolved: no field refers to another source.
///
/// The fields are open so that command-line flags can override them one by one; call
/// [`Config::validate`] afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Snapshots are in `version-2` below it.
    pub data_dir: PathBuf,
    /// Transaction logs are in `version-2` below it. The same as `data_dir` unless set.
    pub data_log_dir: PathBuf,
    /// Whether missing data directories are created.
    pub datadir_autocreate: bool,
    /// Whether an empty data directory is treated as a new, empty database.
    pub db_autocreate: bool,

    /// The address for clients.
    pub client_address: ListenAddress,
    /// The length of the system's queue of pending connections; the system's default if not set.
    pub client_port_listen_backlog: Option<u32>,
    /// TCP keep-alive on client connections.
    pub client_tcp_keep_alive: bool,
    /// Maximum number of connections from one address; 0 is no limit.
    pub max_client_cnxns: u32,
    /// Maximum number of connections in total; 0 is no limit.
    pub max_cnxns: u32,
    /// How long a connection may stay open without requesting a session.
    pub sessionless_timeout_ms: u32,

    /// The unit of session expiry.
    pub tick_time_ms: u32,
    /// Shorter requested session timeouts are raised to this.
    pub min_session_timeout_ms: u32,
    /// Longer requested session timeouts are reduced to this.
    pub max_session_timeout_ms: u32,

    /// Requests in progress before reading pauses on connections that have one of them.
    pub global_outstanding_limit: u32,
    /// Largest frame a client may send.
    pub jute_max_buffer_bytes: u32,
    /// How much a field inside a stored record may exceed the largest frame.
    pub jute_extra_size_bytes: u32,
    /// Requests longer than this count as large; none do if not set.
    pub large_request_threshold_bytes: Option<u32>,
    /// Bytes that large requests in progress may have together.
    pub large_request_max_bytes: u32,
    /// Limits on how fast sessions are opened.
    pub connection_throttle: ConnectionThrottle,
    /// Limits on requests in progress.
    pub request_throttle: RequestThrottle,
    /// A request that waited longer than this for the request throttle is rejected as throttled.
    pub throttled_op_wait_time_ms: Option<u32>,

    /// Size of the preallocation of a log file; 0 switches it off.
    pub pre_alloc_size_kb: u64,
    /// Transactions between snapshots, to be randomised between half and all of it.
    pub snap_count: u32,
    /// Log size between snapshots, randomised in the same way.
    pub snap_size_limit_kb: Option<u64>,
    /// A log file that has grown beyond this is closed at the next commit.
    pub txn_log_size_limit_kb: Option<u64>,
    /// Whether writes are synced before they are acknowledged. Without it, a crash of the machine
    /// loses acknowledged writes.
    pub force_sync: bool,
    /// A slower fsync is logged.
    pub fsync_warning_threshold_ms: u64,
    /// The minimum time between two fsyncs, in which writes are batched.
    pub flush_delay_ms: u64,
    /// The batch ends when no write has arrived for this long.
    pub flush_quiet_ms: u64,
    /// The maximum number of writes in one batch.
    pub max_batch_size: Option<u32>,
    /// The compression of snapshots.
    pub snapshot_compression: SnapshotCompression,
    /// Whether logs without any snapshot may be replayed onto an empty tree.
    pub snapshot_trust_empty: bool,
    /// Whether a snapshot ends with the last zxid applied to it.
    pub serialize_last_processed_zxid_enabled: bool,
    /// Time between purges of old snapshots and logs; never if not set.
    pub purge_interval_ms: Option<u64>,
    /// Whether a purge also follows each snapshot, so that the disk does not fill in between.
    pub purge_after_snapshot: bool,
    /// Snapshots a purge keeps, at least 3.
    pub snap_retain_count: u32,

    /// Whether the digest of the tree is kept and logged.
    pub digest_enabled: bool,
    /// Whether the transaction that closes a session lists its ephemeral nodes.
    pub close_session_txn_enabled: bool,
    /// Whether TTL nodes may be created and are recognised.
    pub extended_types_enabled: bool,
    /// Whether TTL nodes in the form of version 3.5.3 are recognised; never without
    /// `extended_types_enabled`.
    pub emulate_353_ttl: bool,
    /// Deletion of empty containers and expired TTL nodes.
    pub containers: ContainerSweep,
    /// Whether hard quotas are enforced and soft ones reported.
    pub enforce_quota: bool,

    /// Whether access control lists are not checked at all.
    pub skip_acl: bool,
    /// The digest scheme and its super user.
    pub digest_auth: DigestAuth,
    /// Clients must hold an identity of one of these schemes; no requirement if empty.
    pub enforced_auth_schemes: Vec<AuthScheme>,

    /// The enabled four-letter words.
    pub four_letter_words: FourLetterWords,
    /// Whether the membership can be changed while the ensemble runs. A standalone server rejects
    /// the operation as disabled or as not implemented.
    pub reconfig_enabled: bool,
    /// The settings of a member of an ensemble; a standalone server if not set.
    pub ensemble: Option<EnsembleConfig>,

    /// Where a test injects a panic; without debug assertions it has no effect.
    #[doc(hidden)]
    pub planted_panic: Option<ironkeeper_engine::planted::Place>,
}

impl Config {
    /// Returns the configuration of a server that is started without one: the defaults of Apache
    /// ZooKeeper, except that it listens on 127.0.0.1:2181 only, has the tick of Apache's sample
    /// file, does not limit connections by address and purges old files by itself. [`defaults`]
    /// gives the reason for each.
    ///
    /// ```
    /// use ironkeeper_config::Config;
    ///
    /// let mut config = Config::standalone_default("data".into());
    /// config.client_address.port = 2281;
    /// config.validate().unwrap();
    /// assert_eq!(config.client_address.to_string(), "127.0.0.1:2281");
    /// ```
    pub fn standalone_default(data_dir: PathBuf) -> Config {
        let mut config = Config {
            client_address: ListenAddress {
                host: Some(defaults::UNCONFIGURED_CLIENT_HOST.to_owned()),
                port: defaults::UNCONFIGURED_CLIENT_PORT,
            },
            max_client_cnxns: defaults::UNCONFIGURED_MAX_CLIENT_CNXNS,
            purge_interval_ms: Some(defaults::UNCONFIGURED_PURGE_INTERVAL_MS),
            purge_after_snapshot: true,
            four_letter_words: FourLetterWords::unconfigured(),
            ..Config::apache_defaults(data_dir)
        };
        config.set_tick_time_ms(defaults::UNCONFIGURED_TICK_TIME_MS);
        config
    }

    /// Returns the defaults of Apache ZooKeeper. Apache has no default client address; here it is
    /// 2181 on all interfaces.
    pub(crate) fn apache_defaults(data_dir: PathBuf) -> Config {
        let mut config = Config {
            data_log_dir: data_dir.clone(),
            data_dir,
            datadir_autocreate: true,
            db_autocreate: true,
            client_address: ListenAddress { host: None, port: defaults::UNCONFIGURED_CLIENT_PORT },
            client_port_listen_backlog: None,
            client_tcp_keep_alive: false,
            max_client_cnxns: defaults::MAX_CLIENT_CNXNS,
            max_cnxns: defaults::MAX_CNXNS,
            sessionless_timeout_ms: defaults::SESSIONLESS_TIMEOUT_MS,
            tick_time_ms: 0,
            min_session_timeout_ms: 0,
            max_session_timeout_ms: 0,
            global_outstanding_limit: defaults::GLOBAL_OUTSTANDING_LIMIT,
            jute_max_buffer_bytes: defaults::JUTE_MAX_BUFFER_BYTES,
            jute_extra_size_bytes: defaults::JUTE_MAX_BUFFER_BYTES,
            large_request_threshold_bytes: None,
            large_request_max_bytes: defaults::LARGE_REQUEST_MAX_BYTES,
            connection_throttle: ConnectionThrottle::default(),
            request_throttle: RequestThrottle::default(),
            throttled_op_wait_time_ms: None,
            pre_alloc_size_kb: defaults::PRE_ALLOC_SIZE_KB,
            snap_count: defaults::SNAP_COUNT,
            snap_size_limit_kb: Some(defaults::SNAP_SIZE_LIMIT_KB),
            txn_log_size_limit_kb: None,
            force_sync: true,
            fsync_warning_threshold_ms: defaults::FSYNC_WARNING_THRESHOLD_MS,
            flush_delay_ms: defaults::FLUSH_DELAY_MS,
            flush_quiet_ms: defaults::FLUSH_DELAY_MS / defaults::FLUSH_QUIET_PART,
            max_batch_size: Some(defaults::MAX_BATCH_SIZE),
            snapshot_compression: SnapshotCompression::None,
            snapshot_trust_empty: false,
            serialize_last_processed_zxid_enabled: true,
            purge_interval_ms: None,
            purge_after_snapshot: false,
            snap_retain_count: defaults::SNAP_RETAIN_COUNT,
            digest_enabled: true,
            close_session_txn_enabled: true,
            extended_types_enabled: false,
            emulate_353_ttl: false,
            containers: ContainerSweep::default(),
            enforce_quota: false,
            skip_acl: false,
            digest_auth: DigestAuth::default(),
            enforced_auth_schemes: Vec::new(),
            four_letter_words: FourLetterWords::least(),
            reconfig_enabled: false,
            ensemble: None,
            planted_panic: None,
        };
        config.set_tick_time_ms(defaults::TICK_TIME_MS);
        config
    }

    /// Sets the host that clients connect to. If it is not local, four-letter words that reveal
    /// clients are disabled unless they were configured.
    pub fn listen_on(&mut self, host: Option<String>) {
        let is_local = host.as_deref().is_some_and(|host| {
            host == "localhost"
                || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        });
        if !is_local && self.four_letter_words.is_unconfigured() {
            self.four_letter_words = FourLetterWords::unconfigured_for_all();
        }
        self.client_address.host = host;
    }

    /// Sets the tick and, derived from it, the bounds of session timeouts.
    pub fn set_tick_time_ms(&mut self, tick_time_ms: u32) {
        self.tick_time_ms = tick_time_ms;
        self.min_session_timeout_ms = ticks(tick_time_ms, defaults::MIN_SESSION_TIMEOUT_TICKS);
        self.max_session_timeout_ms = ticks(tick_time_ms, defaults::MAX_SESSION_TIMEOUT_TICKS);
    }

    /// Checks the constraints between fields, however they were set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, message: String| {
            if !holds {
                problems.push(Problem::of_all(ProblemKind::Conflict(message)));
            }
        };
        require(
            !self.data_dir.as_os_str().is_empty(),
            "dataDir is empty: name the directory for the server's data".to_owned(),
        );
        require(
            !self.data_log_dir.as_os_str().is_empty(),
            "dataLogDir is empty: name the directory for the transaction logs, or leave it out"
                .to_owned(),
        );
        require(
            self.tick_time_ms > 0,
            "tickTime must be at least 1 millisecond; 2000 is usual".to_owned(),
        );
        require(
            self.min_session_timeout_ms <= self.max_session_timeout_ms,
            format!(
                "minSessionTimeout ({} ms) must not be larger than maxSessionTimeout ({} ms)",
                self.min_session_timeout_ms, self.max_session_timeout_ms
            ),
        );
        require(
            i32::try_from(self.max_session_timeout_ms).is_ok(),
            format!("maxSessionTimeout must not be larger than {} ms", i32::MAX),
        );
        require(
            self.jute_max_buffer_bytes > 0 && i32::try_from(self.jute_max_buffer_bytes).is_ok(),
            format!("jute.maxbuffer must be between 1 and {} bytes", i32::MAX),
        );
        require(
            self.snap_count >= defaults::SNAP_COUNT_MIN,
            format!("snapCount must be at least {}", defaults::SNAP_COUNT_MIN),
        );
        require(
            self.snap_retain_count >= defaults::SNAP_RETAIN_COUNT,
            format!("autopurge.snapRetainCount must be at least {}", defaults::SNAP_RETAIN_COUNT),
        );
        if !problems.is_empty() {
            return Err(ConfigError::Invalid(problems));
        }
        self.ensemble.as_ref().map_or(Ok(()), EnsembleConfig::validate)
    }
}

/// Returns `count` ticks, bounded because session timeouts are signed 32-bit numbers on the wire.
pub(crate) fn ticks(tick_time_ms: u32, count: u32) -> u32 {
    tick_time_ms.saturating_mul(count).min(i32::MAX as u32)
}

/// The compression of snapshots on disk. All forms can be read regardless of the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotCompression {
    None,
    Gzip,
    Snappy,
}

/// Settings for the deletion of empty containers and expired TTL nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerSweep {
    pub check_interval_ms: u32,
    pub max_per_minute: u32,
    /// A container that never had a child is deleted after this time; never if not set.
    pub max_never_used_interval_ms: Option<u64>,
}

impl Default for ContainerSweep {
    fn default() -> Self {
        ContainerSweep {
            check_interval_ms: defaults::CONTAINER_CHECK_INTERVAL_MS,
            max_per_minute: defaults::CONTAINER_MAX_PER_MINUTE,
            max_never_used_interval_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::four_letter::FourLetterWord;

    use super::*;
    use crate::{Overrides, SessionWeights};

    #[test]
    fn a_server_without_configuration_is_local_and_keeps_its_disk_tidy() {
        let config = Config::standalone_default("/data".into());
        assert_eq!(config.client_address.to_string(), "127.0.0.1:2181");
        assert_eq!(config.data_log_dir, PathBuf::from("/data"));
        assert_eq!((config.min_session_timeout_ms, config.max_session_timeout_ms), (4000, 40_000));
        assert_eq!(config.max_client_cnxns, 0);
        assert!(config.purge_interval_ms.is_some() && config.purge_after_snapshot);
        assert!(config.force_sync);
        config.validate().expect("the default configuration is valid");
    }

    #[test]
    fn words_that_name_clients_stay_on_the_machine_unless_they_are_asked_for() {
        let mut config = Config::standalone_default("/data".into());
        config.listen_on(Some("127.0.0.2".into()));
        assert!(config.four_letter_words.allows(FourLetterWord::Cons));
        config.listen_on(None);
        assert!(config.four_letter_words.allows(FourLetterWord::Mntr));
        assert!(!config.four_letter_words.allows(FourLetterWord::Cons));
        let set = [("4lw.commands.whitelist".to_owned(), "cons".to_owned())];
        let with = Overrides { set: &set, ..Overrides::default() };
        let mut config = Config::standalone_with("/data".into(), &with).expect("it is good").config;
        config.listen_on(None);
        assert!(config.four_letter_words.allows(FourLetterWord::Cons));
        assert!(!config.four_letter_words.allows(FourLetterWord::Mntr));
    }

    #[test]
    fn overridden_fields_are_checked_together() {
        let valid = Config::standalone_default("/data".into());
        let broken: [fn(&mut Config); 7] = [
            |config| config.data_dir = PathBuf::new(),
            |config| config.set_tick_time_ms(0),
            |config| config.min_session_timeout_ms = 50_000,
            |config| config.max_session_timeout_ms = u32::MAX,
            |config| config.jute_max_buffer_bytes = 0,
            |config| config.snap_count = 1,
            |config| config.snap_retain_count = 2,
        ];
        for (index, change) in broken.into_iter().enumerate() {
            let mut config = valid.clone();
            change(&mut config);
            let error = config.validate().expect_err("the change breaks a rule");
            assert_eq!(error.problems().len(), 1, "change {index}: {error}");
        }
    }

    #[test]
    fn session_bounds_do_not_overflow_with_a_huge_tick() {
        let mut config = Config::standalone_default("/data".into());
        config.set_tick_time_ms(i32::MAX as u32);
        assert_eq!(config.max_session_timeout_ms, i32::MAX as u32);
        config.validate().expect("a huge tick is odd but valid");
    }

    #[test]
    fn addresses_print_as_they_are_dialled() {
        let shown = |host: Option<&str>| {
            ListenAddress { host: host.map(str::to_owned), port: 1 }.to_string()
        };
        assert_eq!(shown(None), "*:1");
        assert_eq!(shown(Some("h")), "h:1");
        assert_eq!(shown(Some("::1")), "[::1]:1");
    }

    #[test]
    fn weighed_sessions_scale_the_bucket() {
        let plain = ConnectionThrottle { tokens: Some(10), fill_count: 2, ..Default::default() };
        assert_eq!((plain.bucket_tokens(), plain.tokens_per_filling()), (Some(10), 2));
        assert_eq!((plain.cost_of_new_session(), plain.cost_of_renewal()), (1, 1));
        let weighed = ConnectionThrottle { weights: Some(SessionWeights::default()), ..plain };
        assert_eq!((weighed.bucket_tokens(), weighed.tokens_per_filling()), (Some(30), 6));
        assert_eq!((weighed.cost_of_new_session(), weighed.cost_of_renewal()), (3, 2));
    }

    #[test]
    fn the_super_digest_does_not_show_in_debug_output() {
        let auth = DigestAuth { super_digest: Some("super:c2VjcmV0".into()), ..Default::default() };
        assert!(!format!("{auth:?}").contains("c2VjcmV0"));
    }
}
