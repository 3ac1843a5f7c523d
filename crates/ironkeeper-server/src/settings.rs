//! The mapping of the operator's configuration to the settings of each component: the engine, ZAB,
//! the store, the threads and the peer links. A component knows only its own settings.

use std::time::Duration;

use ironkeeper_config::dynamic_files::DynamicFiles;
use ironkeeper_config::{Config, EnsembleConfig, SnapshotCompression};
use ironkeeper_engine::auth::AuthConfig;
use ironkeeper_engine::config::{ContainerConfig, LocalSessions};
use ironkeeper_engine::request_throttle::RequestThrottleConfig;
use ironkeeper_engine::throttle::ConnectionThrottleConfig;
use ironkeeper_engine::unsent::UNSENT_BYTES_MAX;
use ironkeeper_engine::{Database, EngineConfig};
use ironkeeper_node::{DurableSteps, MemberFiles, ServerKind};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Compression, Dirs, Store, StoreOptions};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::Settings;

use crate::log_thread::LogSettings;
use crate::member;
use crate::member_files::DynamicMemberFiles;
use crate::peer::PeerSettings;
use crate::snapshot_thread::PurgeSettings;

pub(crate) fn engine(config: &Config, hash_seed: u64) -> EngineConfig {
    let frame_bytes_max = config.jute_max_buffer_bytes as usize;
    let ensemble = config.ensemble.as_ref();
    EngineConfig {
        // The low byte of a member's id; ids with the same low byte collide, as in Apache.
        server_id: ensemble.map_or(1, |ensemble| ensemble.my_id.0 as u8),
        tick_ms: u64::from(config.tick_time_ms),
        session_timeout_min_ms: i32::try_from(config.min_session_timeout_ms).unwrap_or(i32::MAX),
        session_timeout_max_ms: i32::try_from(config.max_session_timeout_ms).unwrap_or(i32::MAX),
        frame_bytes_max,
        field_bytes_max: field_bytes_max(config),
        outstanding_max: config.global_outstanding_limit as usize,
        large_request_bytes_min: config.large_request_threshold_bytes.map(|bytes| bytes as usize),
        large_request_bytes_max: config.large_request_max_bytes as usize,
        unsent_bytes_max: UNSENT_BYTES_MAX,
        connection_throttle: connection_throttle(config),
        request_throttle: request_throttle(config),
        auth: AuthConfig {
            skip_acl: config.skip_acl,
            digest_enabled: config.digest_auth.enabled,
            digest_algorithm: config.digest_auth.algorithm,
            super_digest: config.digest_auth.super_digest.clone(),
            enforced_schemes: enforced_schemes(config),
            hash_seed,
            ..AuthConfig::default()
        },
        tree: TreeConfig {
            ttl_enabled: config.extended_types_enabled,
            emulate_353_ttl: config.emulate_353_ttl,
            hash_seed,
        },
        enforce_quota: config.enforce_quota,
        digest_enabled: config.digest_enabled,
        close_session_lists_paths: config.close_session_txn_enabled,
        reconfig_enabled: config.reconfig_enabled,
        container: ContainerConfig {
            check_interval_ms: u64::from(config.containers.check_interval_ms),
            deletions_per_minute_max: u64::from(config.containers.max_per_minute),
            never_used_ms: config.containers.max_never_used_interval_ms.unwrap_or(0),
        },
        snap_count: u64::from(config.snap_count),
        snap_bytes: config.snap_size_limit_kb.map(|kb| kb.saturating_mul(1024)),
        standalone_enabled: ensemble.is_none_or(|ensemble| ensemble.standalone_enabled),
        leader_serves: ensemble.is_none_or(|ensemble| ensemble.leader_serves),
        read_only_enabled: ensemble.is_some_and(|ensemble| ensemble.read_only),
        local_sessions: ensemble.map_or(LocalSessions::Off, local_sessions),
        planted_panic: config.planted_panic,
    }
}

fn local_sessions(ensemble: &EnsembleConfig) -> LocalSessions {
    match (ensemble.local_sessions, ensemble.local_sessions_upgrading) {
        (false, _) => LocalSessions::Off,
        (true, false) => LocalSessions::On,
        (true, true) => LocalSessions::Upgrading,
    }
}

fn connection_throttle(config: &Config) -> Option<ConnectionThrottleConfig> {
    let throttle = &config.connection_throttle;
    Some(ConnectionThrottleConfig {
        tokens_max: throttle.bucket_tokens()?,
        fill_time_ms: u64::from(throttle.fill_time_ms),
        fill_tokens: throttle.tokens_per_filling(),
        new_session_tokens: throttle.cost_of_new_session(),
        renewed_session_tokens: throttle.cost_of_renewal(),
        freeze_time_ms: throttle.freeze_time_ms.map(u64::from),
        drop_increase: throttle.drop_increase,
        drop_decrease: throttle.drop_decrease,
        decrease_ratio: throttle.decrease_ratio,
    })
}

fn request_throttle(config: &Config) -> Option<RequestThrottleConfig> {
    let throttle = &config.request_throttle;
    Some(RequestThrottleConfig {
        requests_max: throttle.max_requests? as usize,
        look_interval_ms: u64::from(throttle.stall_time_ms),
        drop_stale: throttle.drop_stale,
        stale_when_gone: throttle.stale_connection_check,
        stale_when_late: throttle.stale_latency_check,
        refuse_after_ms: config.throttled_op_wait_time_ms.map(u64::from),
    })
}

fn enforced_schemes(config: &Config) -> Option<Vec<String>> {
    let schemes = &config.enforced_auth_schemes;
    (!schemes.is_empty()).then(|| schemes.iter().map(|scheme| scheme.name().to_owned()).collect())
}

fn field_bytes_max(config: &Config) -> usize {
    config.jute_max_buffer_bytes as usize + config.jute_extra_size_bytes as usize
}

pub(crate) fn dirs(config: &Config) -> Dirs {
    Dirs { snap_dir: config.data_dir.clone(), log_dir: config.data_log_dir.clone() }
}

pub(crate) fn store(config: &Config) -> StoreOptions {
    StoreOptions {
        prealloc_bytes: config.pre_alloc_size_kb.saturating_mul(1024),
        force_sync: config.force_sync,
        compression: match config.snapshot_compression {
            SnapshotCompression::None => Compression::None,
            SnapshotCompression::Gzip => Compression::Gzip,
            SnapshotCompression::Snappy => Compression::Snappy,
        },
        field_max: field_bytes_max(config),
        trust_empty: config.snapshot_trust_empty,
        auto_create: config.datadir_autocreate,
        db_auto_create: config.db_autocreate,
        write_digest: config.digest_enabled,
        write_last_zxid: config.serialize_last_processed_zxid_enabled,
    }
}

pub(crate) fn log(config: &Config) -> LogSettings {
    LogSettings {
        flush_delay: Duration::from_millis(config.flush_delay_ms),
        flush_quiet: Duration::from_millis(config.flush_quiet_ms),
        batch_max: config.max_batch_size.map_or(usize::MAX, |max| max as usize),
        warn_after: Duration::from_millis(config.fsync_warning_threshold_ms),
    }
}

/// Returns the size above which a new log file is begun, if there is a limit.
pub(crate) fn log_file_bytes_max(config: &Config) -> Option<u64> {
    config.txn_log_size_limit_kb.map(|kb| kb.saturating_mul(1024))
}

/// Returns the writer of membership files, if the membership came from a file.
pub(crate) fn dynamic_files(ensemble: &EnsembleConfig) -> Option<DynamicFiles> {
    Some(DynamicFiles::new(ensemble.config_file.clone()?, ensemble.my_id))
}

pub(crate) fn durable_steps(
    config: &Config,
    db: &Database,
    store: &Store<RealDisk>,
) -> DurableSteps {
    let kind = server_kind(config.ensemble.as_ref());
    DurableSteps { store: store.clone(), tree: db.config.tree, kind, files: member_files(config) }
}

/// Returns the writer of changed memberships, if there is a file for them.
pub(crate) fn member_files(config: &Config) -> Option<Box<dyn MemberFiles>> {
    Some(Box::new(DynamicMemberFiles(dynamic_files(config.ensemble.as_ref()?)?)))
}

pub(crate) fn purge(config: &Config) -> PurgeSettings {
    PurgeSettings {
        interval: config.purge_interval_ms.map(Duration::from_millis),
        after_snapshot: config.purge_after_snapshot,
        retain: config.snap_retain_count as usize,
    }
}

/// Returns for which kind of server to recover, with the bounds of a member's history in memory.
pub(crate) fn server_kind(ensemble: Option<&EnsembleConfig>) -> ServerKind {
    match ensemble {
        None => ServerKind::Standalone,
        Some(ensemble) => {
            let defaults = Settings::default();
            ServerKind::Member {
                history_count_max: ensemble.commit_log_count as usize,
                history_bytes_max: defaults.history_bytes_max,
            }
        }
    }
}

/// The minimum time for which a learner dials the elected leader until it listens.
///
/// Apache's learners dial five times, 100 ms apart, after they have waited 200 ms for better votes.
/// Ours do not wait, and the elected leader may be an Apache server that does. A learner that gives
/// up too early starts the next election round, and the elected server, which is LEADING by then,
/// detects this only when its `initLimit` has passed: on a busy machine this took half a minute
/// without a leader.
const LEADER_LISTENS_MS: u64 = 1000;

/// Returns the number of dials, `dial_retry_ms` apart, that take at least [`LEADER_LISTENS_MS`].
fn dial_tries(dial_retry_ms: u64) -> u32 {
    // n pauses separate n + 1 dials.
    let pauses = LEADER_LISTENS_MS.div_ceil(dial_retry_ms.max(1));
    u32::try_from(pauses + 1).unwrap_or(u32::MAX)
}

/// Returns the settings of ZAB.
pub(crate) fn zab(config: &Config, ensemble: &EnsembleConfig) -> Settings {
    let usual = Settings::default();
    let dial_retry_ms = u64::from(ensemble.leader_connect_delay_ms);
    Settings {
        tick_ms: u64::from(config.tick_time_ms),
        init_limit: u64::from(ensemble.init_limit),
        sync_limit: u64::from(ensemble.sync_limit),
        notification_min_ms: u64::from(ensemble.notification_min_ms),
        notification_max_ms: u64::from(ensemble.notification_max_ms),
        dial_tries: usual.dial_tries.max(dial_tries(dial_retry_ms)),
        dial_retry_ms,
        observer_delay_ms_max: u64::from(ensemble.observer_election_delay_ms),
        history_count_max: ensemble.commit_log_count as usize,
        reconfig_enabled: config.reconfig_enabled,
        ..usual
    }
}

/// Returns the settings of the peer links.
pub(crate) fn peers(config: &Config, ensemble: &EnsembleConfig) -> PeerSettings {
    let ticks =
        |count: u32| Duration::from_millis(u64::from(count) * u64::from(config.tick_time_ms));
    let millis = |ms: u32| Duration::from_millis(u64::from(ms));
    PeerSettings {
        own: member::own_addresses(ensemble.me(), ensemble.listen_on_all_ips),
        bind_tries: ensemble.bind_tries,
        election_dial_timeout: millis(ensemble.election_connect_timeout_ms),
        quorum_dial_timeout: ticks(ensemble.connect_limit.unwrap_or(ensemble.init_limit)),
        opening_timeout: ensemble
            .election_read_timeout_ms
            .map_or_else(|| ticks(ensemble.sync_limit), millis),
        field_bytes_max: field_bytes_max(config),
        tcp_keep_alive: ensemble.tcp_keep_alive,
        ..PeerSettings::new(ensemble.my_id)
    }
}

#[cfg(test)]
mod tests {
    use ironkeeper_config::{ConnectionThrottle, RequestThrottle, SessionWeights};

    use super::*;

    fn config() -> Config {
        Config::standalone_default("data".into())
    }

    #[test]
    fn throttles_are_off_unless_their_limit_is_set() {
        let engine = engine(&config(), 7);
        assert_eq!((engine.connection_throttle, engine.request_throttle), (None, None));
    }

    #[test]
    fn weights_scale_the_connection_throttle() {
        let mut config = config();
        config.connection_throttle = ConnectionThrottle {
            tokens: Some(10),
            fill_time_ms: 5,
            fill_count: 2,
            freeze_time_ms: Some(0),
            weights: Some(SessionWeights { global: 3, local: 1, renew: 2 }),
            ..ConnectionThrottle::default()
        };
        let throttle = engine(&config, 7).connection_throttle.expect("it is on");
        assert_eq!((throttle.tokens_max, throttle.fill_tokens, throttle.fill_time_ms), (30, 6, 5));
        assert_eq!((throttle.new_session_tokens, throttle.renewed_session_tokens), (3, 2));
        assert_eq!(throttle.freeze_time_ms, Some(0));
    }

    #[test]
    fn the_request_throttle_takes_all_of_its_settings() {
        let mut config = config();
        config.request_throttle = RequestThrottle {
            max_requests: Some(9),
            stall_time_ms: 8,
            drop_stale: false,
            stale_connection_check: false,
            stale_latency_check: true,
        };
        config.throttled_op_wait_time_ms = Some(7);
        let expected = RequestThrottleConfig {
            requests_max: 9,
            look_interval_ms: 8,
            drop_stale: false,
            stale_when_gone: false,
            stale_when_late: true,
            refuse_after_ms: Some(7),
        };
        assert_eq!(engine(&config, 7).request_throttle, Some(expected));
    }

    #[test]
    fn a_chosen_leader_is_dialled_for_longer_than_apache_takes_to_lead() {
        for retry_ms in [1, 7, 100, 999, 1000, 5000] {
            let waited_ms = u64::from(dial_tries(retry_ms) - 1) * retry_ms;
            assert!(waited_ms >= LEADER_LISTENS_MS, "{waited_ms} ms with pauses of {retry_ms}");
        }
        assert_eq!(dial_tries(100), 11);
        assert!(dial_tries(0) > 1);
    }
}
