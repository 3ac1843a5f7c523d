//! The rows of the table of known keys, and the handlers they share.
//!
//! To add a key, add a row. The tests check every row: its default must be in force, its example
//! must have an effect or cause a notice.

use ironkeeper_proto::four_letter::FourLetterWord;

use super::Handler::{self, Apply, Member};
use super::KnownKey;
use super::Place::{self, JvmProperty, Property, PropertyEitherName, ZooCfg};
use crate::draft::Draft;
use crate::members;
use crate::notice::Feature::{
    self, AdminServer, Audit, AuthProviders, Metrics, ObserverMasters, Oracles, RequestTracing,
    Sasl, Tls,
};
use crate::problem::ValueError;
use crate::setting::Setting;
use crate::{DigestAlgorithm, FourLetterWords, SnapshotCompression, defaults};

/// The reason why flags for the JVM have no effect.
pub(crate) const NO_JVM: &str = "there is no JVM here";
const NO_POOL: &str = "there is no pool of threads of that kind to tune";
const NO_GC: &str = "there is no garbage collector that could pause the server";
const NO_CACHE: &str =
    "replies are encoded straight from the tree, which is faster than a cache of replies";
const ONE_NETWORK_LAYER: &str = "there is one network layer, and it serves all client ports";
const ONE_WATCH_TABLE: &str =
    "there is one table of watches, small enough without a special variant";
const OWN_LOGGING: &str = "logs are written by Ironkeeper itself, not by a Java logging library";
const CLIENT_SIDE: &str = "it is read by Java clients, not by servers";
const NO_BLOCKING: &str = "no thread waits for a connection between members";
const ONE_PATH: &str = "a learner's request takes one path, without queues to leave out";
const JAVA_DEBUGGING: &str = "it is an aid for debugging the Java server";

const fn row(
    name: &'static str,
    place: Place,
    default: &'static str,
    example: &'static str,
    meaning: &'static str,
    handler: Handler,
) -> KnownKey {
    KnownKey { name, place, default, example, meaning, handler }
}

const fn any(feature: Feature) -> Handler {
    Handler::NotYet { feature, is_switch: false, check: |_| Ok(()) }
}

const fn switch(feature: Feature) -> Handler {
    Handler::NotYet { feature, is_switch: true, check: |_| Ok(()) }
}

const fn boolean(feature: Feature) -> Handler {
    Handler::NotYet { feature, is_switch: true, check: |setting| setting.boolean().map(|_| ()) }
}

const fn not_needed(why: &'static str) -> Handler {
    Handler::NotNeeded { why, check: |_| Ok(()) }
}

/// Handles keys like [`not_needed`], if their value must be a boolean.
const fn not_needed_boolean(why: &'static str) -> Handler {
    Handler::NotNeeded { why, check: |setting| setting.boolean().map(|_| ()) }
}

const fn not_needed_long(why: &'static str) -> Handler {
    Handler::NotNeeded { why, check: |setting| setting.long().map(|_| ()) }
}

/// Rejects `true` for switches that require authentication or encryption.
fn refuse_true(setting: &Setting, feature: Feature) -> Result<(), ValueError> {
    match setting.boolean()? {
        true => Err(ValueError::MissingProtection { feature }),
        false => Ok(()),
    }
}

fn refuse_oracle(setting: &Setting) -> Result<(), ValueError> {
    match setting.value.is_empty() {
        true => Ok(()),
        false => Err(ValueError::MissingOracle),
    }
}

const fn protection(
    feature: Feature,
    check: fn(&mut Draft, &Setting) -> Result<(), ValueError>,
) -> Handler {
    Handler::Restricted { feature, check }
}

fn session_timeout(setting: &Setting) -> Result<i32, ValueError> {
    let ms = setting.int().ok().filter(|ms| *ms >= -1);
    ms.ok_or_else(|| ValueError::NoSessionTimeout { value: setting.value.clone() })
}

fn directory(draft: &mut Draft, setting: &Setting) -> Result<std::path::PathBuf, ValueError> {
    if setting.value.is_empty() {
        return Err(ValueError::NoDirectory);
    }
    if setting.value.contains(" #") {
        draft.adjusted(
            setting,
            "the directory has all of this for its name: # begins a comment only at the beginning \
             of a line",
        );
    }
    Ok(setting.value.as_str().into())
}

/// Returns a number of ticks.
fn ticks(setting: &Setting) -> Result<u32, ValueError> {
    setting.int_from(1, "ticks")
}

/// Raises a value below the minimum, with a notice.
fn at_least(draft: &mut Draft, setting: &Setting, number: i32, least: u32) -> u32 {
    match u32::try_from(number) {
        Ok(number) if number >= least => number,
        _ => {
            draft.adjusted(setting, format!("raised to {least}, the least possible"));
            least
        }
    }
}

fn weight(draft: &mut Draft, setting: &Setting, usual: u32) -> Result<u32, ValueError> {
    let weight = setting.property_int_or_off()?;
    if weight.is_none() {
        draft.adjusted(
            setting,
            format!("a session must cost something; {usual} is used, the default"),
        );
    }
    Ok(weight.unwrap_or(usual))
}

fn auth_provider(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    let class = setting.value.rsplit('.').next().unwrap_or_default();
    match class {
        // These two always exist.
        "DigestAuthenticationProvider" | "IPAuthenticationProvider" => {}
        "SASLAuthenticationProvider" => draft.not_yet(setting, Sasl),
        "X509AuthenticationProvider" => draft.not_yet(setting, Tls),
        _ => draft.not_yet(setting, AuthProviders),
    }
    Ok(())
}

/// Handles `4lw.commands.whitelist`.
fn allow_words(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    let mut unknown = Vec::new();
    let mut words = FourLetterWords::least();
    for word in setting.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if word == "*" {
            words = FourLetterWords::all();
            break;
        }
        match FourLetterWord::from_name(word) {
            Some(word) => words.allow(word),
            None => unknown.push(word),
        }
    }
    if !unknown.is_empty() {
        draft.adjusted(setting, format!("there is no four-letter word {}", unknown.join(", ")));
    }
    draft.config.four_letter_words = words;
    Ok(())
}

#[rustfmt::skip]
pub(super) static TABLE: &[KnownKey] = &[
    // Directories and files.
    row("dataDir", ZooCfg, "(required)", "/srv/zookeeper", "Directory of snapshots; files lie in version-2 below it",
        Apply(|d, s| { d.data_dir = Some(directory(d, s)?); Ok(()) })),
    row("dataLogDir", ZooCfg, "(dataDir)", "/srv/zookeeper-log", "Directory of transaction logs, best on a disk of its own",
        Apply(|d, s| { d.data_log_dir = Some(directory(d, s)?); Ok(()) })),
    row("datadir.autocreate", Property, "true", "false", "Create missing data directories",
        Apply(|d, s| { d.config.datadir_autocreate = s.boolean()?; Ok(()) })),
    row("db.autocreate", Property, "true", "false", "Take an empty data directory for a new database",
        Apply(|d, s| { d.config.db_autocreate = s.boolean()?; Ok(()) })),

    // Client ports and connections.
    row("clientPort", ZooCfg, "(required)", "2281", "Port for clients; 0 lets the system choose one",
        Apply(|d, s| { d.client_port = Some(s.port()?); Ok(()) })),
    row("clientPortAddress", ZooCfg, "(all interfaces)", "127.0.0.1", "Host name or address to listen on for clients",
        Apply(|d, s| {
            if s.value.is_empty() { return Err(ValueError::NoHost); }
            d.client_host = Some(s.value.trim_start_matches('[').trim_end_matches(']').to_owned());
            Ok(())
        })),
    row("secureClientPort", ZooCfg, "(none)", "2281", "Port for clients that use TLS",
        Handler::Restricted { feature: Tls, check: |_, s| s.port().map(|_| ()) }),
    row("secureClientPortAddress", ZooCfg, "(all interfaces)", "127.0.0.1", "Host name or address to listen on for clients that use TLS",
        Handler::Restricted { feature: Tls, check: |_, _| Ok(()) }),
    row("clientPortListenBacklog", ZooCfg, "-1", "200", "Connections the system may hold until they are accepted; -1 is the system's default",
        Apply(|d, s| { d.config.client_port_listen_backlog = u32::try_from(s.int()?).ok().filter(|&n| n > 0); Ok(()) })),
    row("maxClientCnxns", ZooCfg, "60", "100", "Connections from one address; 0 is no limit",
        Apply(|d, s| { d.config.max_client_cnxns = u32::try_from(s.int()?).unwrap_or(0); Ok(()) })),
    row("maxCnxns", Property, "0", "1000", "Connections in all; 0 is no limit",
        Apply(|d, s| { d.config.max_cnxns = s.property_int_or_off()?.unwrap_or(0); Ok(()) })),
    row("clientTcpKeepAlive", Property, "false", "true", "TCP keep-alive on client connections",
        Apply(|d, s| { d.config.client_tcp_keep_alive = s.boolean()?; Ok(()) })),
    row("nio.sessionlessCnxnTimeout", Property, "10000", "5000", "Milliseconds a connection may stay without asking for a session",
        Apply(|d, s| { d.config.sessionless_timeout_ms = s.positive_property_int()?; Ok(()) })),
    row("serverCnxnFactory", Property, "(the only one)", "org.apache.zookeeper.server.NettyServerCnxnFactory", "Java class of the network layer",
        not_needed(ONE_NETWORK_LAYER)),
    row("nio.numSelectorThreads", Property, "(by number of cores)", "4", "Threads that wait for client sockets", not_needed(NO_POOL)),
    row("nio.numWorkerThreads", Property, "(by number of cores)", "8", "Threads that read and write client sockets", not_needed(NO_POOL)),
    row("nio.directBufferBytes", Property, "65536", "0", "Size of buffers for writing to sockets",
        not_needed("replies are gathered in one buffer for each connection")),
    row("nio.shutdownTimeout", Property, "5000", "1000", "Milliseconds to wait for network threads at shutdown",
        not_needed("connections are closed in order at shutdown without a pool to wait for")),
    row("intBufferStartingSizeBytes", Property, "1024", "2048", "First size of reply buffers",
        not_needed("replies are gathered in one buffer for each connection")),
    row("netty.advancedFlowControl.enabled", Property, "false", "true", "Finer back-pressure in Netty",
        not_needed("back-pressure works connection by connection without a switch")),
    row("netty.server.outstandingHandshake.limit", Property, "-1", "250", "TLS handshakes at a time", any(Tls)),
    row("netty.server.earlyDropSecureConnectionHandshakes", Property, "false", "true", "Drop TLS connections before the handshake while not serving", switch(Tls)),

    // Time and sessions.
    row("tickTime", ZooCfg, "3000", "2000", "Milliseconds of a tick, the unit of session expiry",
        Apply(|d, s| {
            d.config.tick_time_ms = s.int_from(1, "milliseconds")?;
            Ok(())
        })),
    row("minSessionTimeout", ZooCfg, "-1", "1000", "Smallest session timeout in milliseconds; -1 is 2 ticks",
        Apply(|d, s| { d.min_session_timeout = session_timeout(s)?; Ok(()) })),
    row("maxSessionTimeout", ZooCfg, "-1", "120000", "Largest session timeout in milliseconds; -1 is 20 ticks",
        Apply(|d, s| { d.max_session_timeout = session_timeout(s)?; Ok(()) })),
    row("localSessionsEnabled", ZooCfg, "false", "true", "Sessions known to one member of an ensemble only",
        Member(|d, s| { d.members.settings.local_sessions = s.boolean()?; Ok(()) })),
    row("localSessionsUpgradingEnabled", ZooCfg, "false", "true", "Turn a local session into a global one when it creates an ephemeral node",
        Member(|d, s| { d.members.settings.local_sessions_upgrading = s.boolean()?; Ok(()) })),

    // Sizes and load.
    row("jute.maxbuffer", JvmProperty, "0xfffff", "4194304", "Bytes of the largest request",
        Apply(|d, s| { d.config.jute_max_buffer_bytes = s.positive_property_int()?; Ok(()) })),
    row("jute.maxbuffer.extrasize", Property, "(jute.maxbuffer)", "2097152", "Bytes by which a field of a stored record may exceed the largest request",
        Apply(|d, s| {
            let number = s.property_int()?;
            d.extra_size = Some(at_least(d, s, number, defaults::JUTE_EXTRA_SIZE_BYTES_MIN));
            Ok(())
        })),
    row("globalOutstandingLimit", Property, "1000", "5000", "Requests in progress at which reading pauses",
        Apply(|d, s| { let number = s.property_int()?; d.config.global_outstanding_limit = at_least(d, s, number, 0); Ok(()) })),
    row("largeRequestThreshold", Property, "-1", "100000", "Bytes from which on a request counts as large; -1 is never",
        Apply(|d, s| {
            let number = s.property_int()?;
            if number == 0 || number < -1 { d.adjusted(s, "must be positive or -1; no request counts as large"); }
            d.config.large_request_threshold_bytes = u32::try_from(number).ok().filter(|&n| n > 0);
            Ok(())
        })),
    row("largeRequestMaxBytes", Property, "104857600", "10000000", "Bytes that large requests in progress may have together",
        Apply(|d, s| { d.config.large_request_max_bytes = s.positive_property_int()?; Ok(()) })),
    row("connection_throttle_tokens", Property, "0", "100", "Sessions that can be opened at once before the throttle works; 0 is no throttle",
        Apply(|d, s| { d.config.connection_throttle.tokens = s.property_int_or_off()?; Ok(()) })),
    row("connection_throttle_fill_time", Property, "1", "10", "Milliseconds between two fillings of the connection throttle",
        Apply(|d, s| { d.config.connection_throttle.fill_time_ms = s.positive_property_int()?; Ok(()) })),
    row("connection_throttle_fill_count", Property, "1", "5", "Sessions allowed with each filling of the connection throttle",
        Apply(|d, s| { d.config.connection_throttle.fill_count = s.positive_property_int()?; Ok(()) })),
    row("connection_throttle_freeze_time", Property, "-1", "1000", "Milliseconds between changes of the drop probability; -1 never drops at random",
        Apply(|d, s| { d.config.connection_throttle.freeze_time_ms = u32::try_from(s.property_int()?).ok(); Ok(()) })),
    row("connection_throttle_drop_increase", Property, "0.02", "0.05", "Step up of the drop probability",
        Apply(|d, s| { d.config.connection_throttle.drop_increase = s.fraction()?; Ok(()) })),
    row("connection_throttle_drop_decrease", Property, "0.002", "0.005", "Step down of the drop probability",
        Apply(|d, s| { d.config.connection_throttle.drop_decrease = s.fraction()?; Ok(()) })),
    row("connection_throttle_decrease_ratio", Property, "0", "0.5", "Feature of the tokens that must be there for a step down",
        Apply(|d, s| { d.config.connection_throttle.decrease_ratio = s.fraction()?; Ok(()) })),
    row("connection_throttle_weight_enabled", Property, "false", "true", "Let kinds of sessions cost different numbers of tokens",
        Apply(|d, s| { d.weigh_sessions = s.boolean()?; Ok(()) })),
    row("connection_throttle_global_session_weight", Property, "3", "5", "Tokens of a new session",
        Apply(|d, s| { d.session_weights.global = weight(d, s, defaults::CONNECTION_THROTTLE_GLOBAL_WEIGHT)?; Ok(()) })),
    row("connection_throttle_local_session_weight", Property, "1", "2", "Tokens of a local session",
        Apply(|d, s| { d.session_weights.local = weight(d, s, defaults::CONNECTION_THROTTLE_LOCAL_WEIGHT)?; Ok(()) })),
    row("connection_throttle_renew_session_weight", Property, "2", "4", "Tokens of a resumed session",
        Apply(|d, s| { d.session_weights.renew = weight(d, s, defaults::CONNECTION_THROTTLE_RENEW_WEIGHT)?; Ok(()) })),
    row("request_throttle_max_requests", Property, "0", "2000", "Requests in progress at which further ones wait; 0 is no throttle",
        Apply(|d, s| { d.config.request_throttle.max_requests = s.property_int_or_off()?; Ok(()) })),
    row("request_throttle_stall_time", Property, "100", "50", "Milliseconds between looks for stale requests among those that wait",
        Apply(|d, s| { d.config.request_throttle.stall_time_ms = s.positive_property_int()?; Ok(()) })),
    row("request_throttle_drop_stale", Property, "true", "false", "Drop stale requests that wait in the throttle",
        Apply(|d, s| { d.config.request_throttle.drop_stale = s.boolean()?; Ok(()) })),
    row("request_stale_connection_check", Property, "true", "false", "A request is stale when its connection is closed",
        Apply(|d, s| { d.config.request_throttle.stale_connection_check = s.boolean()?; Ok(()) })),
    row("request_stale_latency_check", Property, "false", "true", "A request is stale when it is older than its session's timeout",
        Apply(|d, s| { d.config.request_throttle.stale_latency_check = s.boolean()?; Ok(()) })),
    row("request_throttler.shutdownTimeout", Property, "10000", "1000", "Milliseconds a shutdown waits for requests in the throttle",
        not_needed("requests that wait stay with their connections, and a shutdown ends those at once")),
    row("throttled_op_wait_time", Property, "0", "5000", "Milliseconds in the request throttle after which a request is refused as throttled; 0 is never",
        Apply(|d, s| { d.config.throttled_op_wait_time_ms = s.property_int_or_off()?; Ok(()) })),
    row("maxResponseCacheSize", Property, "(no cache)", "400", "Replies to getData that are kept", not_needed(NO_CACHE)),
    row("maxGetChildrenResponseCacheSize", Property, "(no cache)", "400", "Replies to getChildren that are kept", not_needed(NO_CACHE)),
    row("commitProcessor.numWorkerThreads", Property, "(by number of cores)", "4", "Threads that execute committed requests", not_needed(NO_POOL)),
    row("commitProcessor.maxReadBatchSize", Property, "-1", "100", "Reads between two commits", not_needed("reads do not wait for commits of other sessions")),
    row("commitProcessor.maxCommitBatchSize", Property, "1", "10", "Commits between two reads", not_needed("reads do not wait for commits of other sessions")),
    row("commitProcessor.shutdownTimeout", Property, "5000", "1000", "Milliseconds to wait for commit threads at shutdown", not_needed(NO_POOL)),

    // Logs and snapshots.
    row("preAllocSize", Property, "65536", "16384", "Kilobytes by which a log file grows ahead of its use; 0 switches it off",
        Apply(|d, s| { d.config.pre_alloc_size_kb = u64::try_from(s.long()?).unwrap_or(0); Ok(()) })),
    row("snapCount", Property, "100000", "10000", "Transactions between snapshots, at random between half and all of it",
        Apply(|d, s| { let number = s.property_int()?; d.config.snap_count = at_least(d, s, number, defaults::SNAP_COUNT_MIN); Ok(()) })),
    row("snapSizeLimitInKb", Property, "4194304", "1048576", "Kilobytes of log between snapshots, at random likewise; 0 is no limit",
        Apply(|d, s| { d.config.snap_size_limit_kb = s.property_long_or_off()?; Ok(()) })),
    row("txnLogSizeLimitInKb", Property, "-1", "1048576", "Kilobytes after which a log file is ended; -1 is no limit",
        Apply(|d, s| { d.config.txn_log_size_limit_kb = s.property_long_or_off()?; Ok(()) })),
    row("forceSync", Property, "yes", "no", "Have writes on disk before they are acknowledged; no risks losing acknowledged writes",
        Apply(|d, s| { d.config.force_sync = s.yes_or_no()?; Ok(()) })),
    row("fsync.warningthresholdms", PropertyEitherName, "1000", "200", "Milliseconds of an fsync that are worth a warning",
        Apply(|d, s| { d.config.fsync_warning_threshold_ms = u64::try_from(s.property_long()?).unwrap_or(0); Ok(()) })),
    row("flushDelay", Property, "0", "5", "Milliseconds between two fsyncs at least, in which more writes are gathered",
        Apply(|d, s| { d.config.flush_delay_ms = s.property_long_or_off()?.unwrap_or(0); Ok(()) })),
    row("maxBatchSize", Property, "1000", "500", "Most writes for one fsync; 0 is no limit",
        Apply(|d, s| { d.config.max_batch_size = s.property_int_or_off()?; Ok(()) })),
    row("maxWriteQueuePollTime", Property, "(a third of flushDelay)", "2", "Milliseconds without a write after which flushDelay is not waited for any longer",
        Apply(|d, s| { d.flush_quiet_ms = Some(u64::try_from(s.property_long()?).unwrap_or(0)); Ok(()) })),
    row("snapshot.compression.method", Property, "", "gz", "Compression of new snapshots: gz, snappy or nothing",
        Apply(|d, s| {
            d.config.snapshot_compression = match s.value.to_ascii_lowercase().as_str() {
                "" => SnapshotCompression::None,
                "gz" => SnapshotCompression::Gzip,
                "snappy" => SnapshotCompression::Snappy,
                other => return Err(ValueError::UnknownCompression { value: other.to_owned() }),
            };
            Ok(())
        })),
    row("snapshot.trust.empty", Property, "false", "true", "Replay logs onto an empty tree when there is no snapshot at all",
        Apply(|d, s| { d.config.snapshot_trust_empty = s.boolean()?; Ok(()) })),
    row("serializeLastProcessedZxid.enabled", Property, "true", "false", "End snapshots with the last zxid applied to them",
        Apply(|d, s| { d.config.serialize_last_processed_zxid_enabled = s.boolean()?; Ok(()) })),
    row("autopurge.purgeInterval", ZooCfg, "0", "24", "Hours between purges of old snapshots and logs, or a time with ms, s, m, h or d; 0 is never",
        Apply(|d, s| { d.config.purge_interval_ms = s.interval_ms_or_off()?; Ok(()) })),
    row("autopurge.snapRetainCount", ZooCfg, "3", "5", "Snapshots that a purge keeps, at least 3",
        Apply(|d, s| { let number = s.int()?; d.config.snap_retain_count = at_least(d, s, number, defaults::SNAP_RETAIN_COUNT); Ok(()) })),

    // The tree.
    row("digest.enabled", Property, "true", "false", "Keep a digest of the tree and log it with transactions",
        Apply(|d, s| { d.config.digest_enabled = s.boolean()?; Ok(()) })),
    row("closeSessionTxn.enabled", Property, "true", "false", "List the ephemeral nodes in the transaction that closes a session",
        Apply(|d, s| { d.config.close_session_txn_enabled = s.boolean()?; Ok(()) })),
    row("extendedTypesEnabled", Property, "false", "true", "Allow TTL nodes",
        Apply(|d, s| { d.config.extended_types_enabled = s.boolean()?; Ok(()) })),
    row("emulate353TTLNodes", Property, "false", "true", "Recognise TTL nodes in the form of version 3.5.3; needs extendedTypesEnabled",
        Apply(|d, s| { d.config.emulate_353_ttl = s.boolean()?; Ok(()) })),
    row("enforceQuota", Property, "false", "true", "Refuse writes beyond a hard quota and warn of those beyond a soft one",
        Apply(|d, s| { d.config.enforce_quota = s.boolean()?; Ok(()) })),
    row("znode.container.checkIntervalMs", JvmProperty, "60000", "1000", "Milliseconds between looks for empty containers and expired TTL nodes",
        Apply(|d, s| { d.config.containers.check_interval_ms = s.positive_property_int()?; Ok(()) })),
    row("znode.container.maxPerMinute", JvmProperty, "10000", "100", "Containers and TTL nodes deleted in a minute at most",
        Apply(|d, s| { d.config.containers.max_per_minute = s.positive_property_int()?; Ok(()) })),
    row("znode.container.maxNeverUsedIntervalMs", JvmProperty, "0", "300000", "Milliseconds after which a container that never had a child is deleted; 0 is never",
        Apply(|d, s| { d.config.containers.max_never_used_interval_ms = s.property_long_or_off()?; Ok(()) })),
    row("watchManagerName", Property, "(the only one)", "org.apache.zookeeper.server.watch.WatchManagerOptimized", "Java class of the table of watches", not_needed(ONE_WATCH_TABLE)),
    row("watcherCleanThreadsNum", Property, "2", "4", "Threads that clean up after closed watchers", not_needed(ONE_WATCH_TABLE)),
    row("watcherCleanThreshold", Property, "1000", "500", "Closed watchers at which cleaning starts", not_needed(ONE_WATCH_TABLE)),
    row("watcherCleanIntervalInSeconds", Property, "600", "60", "Seconds between cleanings", not_needed(ONE_WATCH_TABLE)),
    row("maxInProcessingDeadWatchers", Property, "-1", "10000", "Closed watchers that may wait for cleaning", not_needed(ONE_WATCH_TABLE)),
    row("bitHashCacheSize", Property, "10", "20", "Cache of watchers by path", not_needed(ONE_WATCH_TABLE)),

    // Access.
    row("skipACL", Property, "no", "yes", "Do not check access control lists at all",
        Apply(|d, s| { d.config.skip_acl = s.yes_or_no()?; Ok(()) })),
    row("enableEagerACLCheck", Property, "false", "true", "Members of an ensemble check access before they hand a write to the leader",
        not_needed("the leader refuses such a write, at the price of a transaction")),
    row("DigestAuthenticationProvider.enabled", Property, "true", "false", "Offer the digest scheme",
        Apply(|d, s| { d.config.digest_auth.enabled = s.boolean()?; Ok(()) })),
    row("DigestAuthenticationProvider.superDigest", Property, "(none)", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=", "Digest id, user:base64(hash), of the user who bypasses every access control list",
        Apply(|d, s| {
            d.config.digest_auth.super_digest = (!s.value.is_empty()).then(|| s.value.clone());
            Ok(())
        })),
    row("DigestAuthenticationProvider.digestAlg", Property, "SHA1", "SHA-256", "Hash of passwords in the digest scheme",
        Apply(|d, s| {
            d.config.digest_auth.algorithm = DigestAlgorithm::from_name(&s.value).ok_or_else(|| ValueError::UnknownDigestAlgorithm { value: s.value.clone() })?;
            Ok(())
        })),
    row("enforce.auth.enabled", Property, "false", "true", "Serve only clients that hold an identity of one of enforce.auth.schemes",
        Apply(|d, s| { d.enforce_auth = s.boolean()?; Ok(()) })),
    row("enforce.auth.schemes", Property, "(none)", "digest", "Comma-separated schemes for enforce.auth.enabled",
        Apply(|_, _| Ok(()))),
    row("sessionRequireClientSASLAuth", Property, "false", "true", "Serve only clients that authenticated with SASL",
        protection(Sasl, |_, s| refuse_true(s, Sasl))),
    row("allowSaslFailedClients", Property, "false", "true", "Serve clients whose SASL authentication failed", switch(Sasl)),
    row("IPAuthenticationProvider.usexforwardedfor", Property, "false", "true", "Take the address in HTTP requests from X-Forwarded-For", switch(AdminServer)),
    row("X509AuthenticationProvider.superUser", Property, "(none)", "CN=admin", "Certificate subject of the user who bypasses every access control list", any(Tls)),
    row("SASLAuthenticationProvider.superPassword", Property, "(none)", "secret", "Password of the SASL user super", any(Sasl)),
    row("superUser", Property, "(none)", "admin", "SASL user who bypasses every access control list", any(Sasl)),
    row("superUser.*", Property, "(none)", "admin", "Further SASL users who bypass every access control list", any(Sasl)),
    row("letAnySaslUserDoX", Property, "(none)", "anyone", "ACL id that matches every SASL user", any(Sasl)),
    row("authProvider.*", Property, "(digest and ip)", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "Java class of a further authentication scheme",
        Handler::Restricted { feature: AuthProviders, check: auth_provider }),
    row("ensembleAuthName", Property, "(none)", "orders", "Names of this ensemble that clients may check for", any(AuthProviders)),
    row("sasl.serverconfig", Property, "Server", "ZkServer", "JAAS section of the server", any(Sasl)),
    row("java.security.auth.login.config", JvmProperty, "(none)", "/etc/zookeeper/jaas.conf", "JAAS file with the users of SASL", any(Sasl)),
    row("requireKerberosConfig", Property, "false", "true", "Insist on a Kerberos configuration", switch(Sasl)),
    row("security.auth_to_local", Property, "DEFAULT", "RULE:[1:$1]", "Rules from Kerberos names to users", any(Sasl)),
    row("kerberos.removeHostFromPrincipal", Property, "false", "true", "Leave the host out of a Kerberos user's name", switch(Sasl)),
    row("kerberos.removeRealmFromPrincipal", Property, "false", "true", "Leave the realm out of a Kerberos user's name", switch(Sasl)),
    row("kerberos.canonicalizeHostNames", Property, "false", "true", "Look up canonical host names for Kerberos", switch(Sasl)),
    row("kerberos.minReLoginTimeMs", Property, "60000", "1000", "Milliseconds between Kerberos logins at least", any(Sasl)),
    row("kinit", Property, "/usr/bin/kinit", "/opt/bin/kinit", "Command that renews Kerberos tickets", any(Sasl)),

    // TLS.
    row("client.portUnification", Property, "false", "true", "Serve clients with and without TLS on one port", switch(Tls)),
    row("client.certReload", Property, "false", "true", "Read client certificates again when they change", switch(Tls)),
    row("fips-mode", Property, "true", "false", "Keep to algorithms that FIPS allows", any(Tls)),
    row("ssl.keyStore.location", Property, "(none)", "/etc/zookeeper/keystore.p12", "File with the key and certificate for clients", any(Tls)),
    row("ssl.keyStore.password", Property, "(none)", "changeit", "Password of that file for clients", any(Tls)),
    row("ssl.keyStore.passwordPath", Property, "(none)", "/etc/zookeeper/keystore.pw", "File with the password of that file for clients", any(Tls)),
    row("ssl.keyStore.type", Property, "(by file name)", "PEM", "Format of that file for clients: JKS, PEM, PKCS12 or BCFKS", any(Tls)),
    row("ssl.trustStore.location", Property, "(none)", "/etc/zookeeper/truststore.p12", "File with the trusted certificates for clients", any(Tls)),
    row("ssl.trustStore.password", Property, "(none)", "changeit", "Password of the trusted certificates for clients", any(Tls)),
    row("ssl.trustStore.passwordPath", Property, "(none)", "/etc/zookeeper/truststore.pw", "File with the password of the trusted certificates for clients", any(Tls)),
    row("ssl.trustStore.type", Property, "(by file name)", "PEM", "Format of the trusted certificates for clients", any(Tls)),
    row("ssl.protocol", Property, "TLSv1.3", "TLSv1.2", "Version of TLS for clients", any(Tls)),
    row("ssl.enabledProtocols", Property, "(by protocol)", "TLSv1.2,TLSv1.3", "Versions of TLS that are accepted for clients", any(Tls)),
    row("ssl.ciphersuites", Property, "(by protocol)", "TLS_AES_256_GCM_SHA384", "Ciphers that are accepted for clients", any(Tls)),
    row("ssl.clientAuth", Property, "need", "none", "Whether the connecting side must have a certificate for clients: need, want or none", any(Tls)),
    row("ssl.hostnameVerification", Property, "true", "false", "Check the host name in certificates for clients", any(Tls)),
    row("ssl.clientHostnameVerification", Property, "false", "true", "Check the host name of the connecting side, too for clients", switch(Tls)),
    row("ssl.allowReverseDnsLookup", Property, "false", "true", "Look up host names of addresses for that check for clients", switch(Tls)),
    row("ssl.crl", Property, "false", "true", "Check revocation lists for clients", switch(Tls)),
    row("ssl.ocsp", Property, "false", "true", "Ask whether certificates are revoked for clients", switch(Tls)),
    row("ssl.context.supplier.class", Property, "(none)", "com.example.Supplier", "Java class that makes TLS contexts for clients", any(Tls)),
    row("ssl.handshakeDetectionTimeoutMillis", Property, "5000", "1000", "Milliseconds to find out whether a connection uses TLS for clients", any(Tls)),
    row("ssl.authProvider", Property, "x509", "custom", "Scheme that makes ids from client certificates", any(Tls)),
    row("ssl.sslProvider", Property, "JDK", "OPENSSL", "Library for TLS for clients", any(Tls)),
    row("ssl.quorum.keyStore.location", Property, "(none)", "/etc/zookeeper/keystore.p12", "File with the key and certificate between members", any(Tls)),
    row("ssl.quorum.keyStore.password", Property, "(none)", "changeit", "Password of that file between members", any(Tls)),
    row("ssl.quorum.keyStore.passwordPath", Property, "(none)", "/etc/zookeeper/keystore.pw", "File with the password of that file between members", any(Tls)),
    row("ssl.quorum.keyStore.type", Property, "(by file name)", "PEM", "Format of that file between members: JKS, PEM, PKCS12 or BCFKS", any(Tls)),
    row("ssl.quorum.trustStore.location", Property, "(none)", "/etc/zookeeper/truststore.p12", "File with the trusted certificates between members", any(Tls)),
    row("ssl.quorum.trustStore.password", Property, "(none)", "changeit", "Password of the trusted certificates between members", any(Tls)),
    row("ssl.quorum.trustStore.passwordPath", Property, "(none)", "/etc/zookeeper/truststore.pw", "File with the password of the trusted certificates between members", any(Tls)),
    row("ssl.quorum.trustStore.type", Property, "(by file name)", "PEM", "Format of the trusted certificates between members", any(Tls)),
    row("ssl.quorum.protocol", Property, "TLSv1.3", "TLSv1.2", "Version of TLS between members", any(Tls)),
    row("ssl.quorum.enabledProtocols", Property, "(by protocol)", "TLSv1.2,TLSv1.3", "Versions of TLS that are accepted between members", any(Tls)),
    row("ssl.quorum.ciphersuites", Property, "(by protocol)", "TLS_AES_256_GCM_SHA384", "Ciphers that are accepted between members", any(Tls)),
    row("ssl.quorum.clientAuth", Property, "need", "none", "Whether the connecting side must have a certificate between members: need, want or none", any(Tls)),
    row("ssl.quorum.hostnameVerification", Property, "true", "false", "Check the host name in certificates between members", any(Tls)),
    row("ssl.quorum.clientHostnameVerification", Property, "true", "false", "Check the host name of the connecting side, too between members", any(Tls)),
    row("ssl.quorum.allowReverseDnsLookup", Property, "false", "true", "Look up host names of addresses for that check between members", switch(Tls)),
    row("ssl.quorum.crl", Property, "false", "true", "Check revocation lists between members", switch(Tls)),
    row("ssl.quorum.ocsp", Property, "false", "true", "Ask whether certificates are revoked between members", switch(Tls)),
    row("ssl.quorum.context.supplier.class", Property, "(none)", "com.example.Supplier", "Java class that makes TLS contexts between members", any(Tls)),
    row("ssl.quorum.handshakeDetectionTimeoutMillis", Property, "5000", "1000", "Milliseconds to find out whether a connection uses TLS between members", any(Tls)),

    // Operations.
    row("4lw.commands.whitelist", Property, "srvr", "srvr, mntr", "Comma-separated four-letter words that are answered; * is all", Apply(allow_words)),
    row("readonlymode.enabled", JvmProperty, "false", "true", "Serve reads without a quorum; on a standalone server it only adds the word isro",
        Apply(|d, s| { d.read_only_mode = s.boolean()?; Ok(()) })),
    row("admin.enableServer", Property, "false", "true", "HTTP admin server", switch(AdminServer)),
    row("admin.serverAddress", Property, "0.0.0.0", "127.0.0.1", "Address of the HTTP admin server", any(AdminServer)),
    row("admin.serverPort", Property, "8080", "9090", "Port of the HTTP admin server", any(AdminServer)),
    row("admin.commandURL", Property, "/commands", "/zk", "Path of commands of the HTTP admin server", any(AdminServer)),
    row("admin.idleTimeout", Property, "30000", "1000", "Milliseconds an HTTP connection may be idle", any(AdminServer)),
    row("admin.httpVersion", Property, "11", "10", "Version of HTTP", any(AdminServer)),
    row("admin.portUnification", Property, "false", "true", "HTTP and HTTPS on one port", switch(AdminServer)),
    row("admin.forceHttps", Property, "false", "true", "HTTPS only", switch(AdminServer)),
    row("admin.needClientAuth", Property, "false", "true", "Demand certificates of HTTPS clients", switch(AdminServer)),
    row("admin.rateLimiterIntervalInMS", Property, "300000", "1000", "Milliseconds between snapshots or restores over HTTP at least", any(AdminServer)),
    row("admin.snapshot.enabled", Property, "true", "false", "Let snapshots be taken over HTTP", any(AdminServer)),
    row("admin.restore.enabled", Property, "true", "false", "Let snapshots be restored over HTTP", any(AdminServer)),
    row("metricsProvider.className", ZooCfg, "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider", "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider", "Java class that exports metrics", switch(Metrics)),
    row("metricsProvider.httpHost", ZooCfg, "(by class)", "127.0.0.1", "Address of the metrics exporter", any(Metrics)),
    row("metricsProvider.httpPort", ZooCfg, "(by class)", "7070", "Port of the metrics exporter", any(Metrics)),
    row("metricsProvider.exportJvmInfo", ZooCfg, "(by class)", "false", "Export figures about the JVM", any(Metrics)),
    row("metricsProvider.numWorkerThreads", ZooCfg, "(by class)", "2", "Threads that gather metrics", any(Metrics)),
    row("metricsProvider.maxQueueSize", ZooCfg, "(by class)", "1000", "Metrics waiting to be gathered", any(Metrics)),
    row("metricsProvider.workerShutdownTimeoutMs", ZooCfg, "(by class)", "500", "Milliseconds to wait for those threads at shutdown", any(Metrics)),
    row("metricsProvider.*", ZooCfg, "(none)", "1", "Further settings for the metrics exporter", any(Metrics)),
    row("audit.enable", Property, "false", "true", "Log who changed what", switch(Audit)),
    row("audit.impl.class", Property, "(the only one)", "com.example.Auditor", "Java class that writes the audit log", any(Audit)),
    row("pathStats.enabled", Property, "false", "true", "Count requests by path", switch(RequestTracing)),
    row("pathStats.slotCapacity", Property, "60", "30", "Slots of counters kept", any(RequestTracing)),
    row("pathStats.slotDuration", Property, "15", "30", "Seconds of a slot of counters", any(RequestTracing)),
    row("pathStats.maxDepth", Property, "6", "3", "Components of a path that are told apart", any(RequestTracing)),
    row("pathStats.sampleRate", Property, "0.1", "0.5", "Feature of requests that are counted", any(RequestTracing)),
    row("pathStats.initialDelay", Property, "5", "10", "Seconds until counting starts", any(RequestTracing)),
    row("pathStats.delay", Property, "5", "10", "Seconds between reports", any(RequestTracing)),
    row("pathStats.topPathMax", Property, "20", "10", "Paths in a report", any(RequestTracing)),
    row("messageTracker.Enabled", Property, "false", "true", "Remember the last messages between leader and learners", switch(RequestTracing)),
    row("messageTracker.BufferSize", Property, "10", "100", "Messages to remember", any(RequestTracing)),
    row("jvm.pause.monitor", ZooCfg, "false", "true", "Watch for pauses of the JVM",
        Handler::NotNeeded { why: NO_GC, check: |s| s.boolean().map(|_| ()) }),
    row("jvm.pause.info-threshold.ms", ZooCfg, "1000", "500", "Milliseconds of a pause worth a line in the log", not_needed_long(NO_GC)),
    row("jvm.pause.warn-threshold.ms", ZooCfg, "10000", "5000", "Milliseconds of a pause worth a warning", not_needed_long(NO_GC)),
    row("jvm.pause.sleep.time.ms", ZooCfg, "500", "100", "Milliseconds between looks for pauses", not_needed_long(NO_GC)),
    row("jmx.log4j.disable", Property, "false", "true", "Keep logging out of JMX", not_needed(NO_JVM)),
    row("jmx.log4j.mbean", Property, "(none)", "log4j:hierarchy=default", "Name of logging in JMX", not_needed(NO_JVM)),

    // Ensembles.
    row("server.N", ZooCfg, "(none)", "localhost:2888:3888;2381", "A member of the ensemble; a single one starts standalone and may name its client port", Apply(members::add_member)),
    row("group.N", ZooCfg, "(none)", "1:2:3", "Members of a group of a hierarchical quorum", Member(members::add_quorum_line)),
    row("weight.N", ZooCfg, "(none)", "2", "Weight of a member in a hierarchical quorum", Member(members::add_quorum_line)),
    row("dynamicConfigFile", ZooCfg, "(none)", "/etc/zookeeper/zoo.cfg.dynamic", "File with the members of the ensemble", Apply(|_, _| Ok(()))),
    row("standaloneEnabled", ZooCfg, "true", "false", "Let a single server run on its own rather than as an ensemble of one",
        Apply(|d, s| { d.members.standalone_enabled = s.boolean()?; Ok(()) })),
    row("reconfigEnabled", ZooCfg, "false", "true", "Allow the reconfig operation; a standalone server answers it as not implemented",
        Apply(|d, s| { d.config.reconfig_enabled = s.boolean()?; Ok(()) })),
    row("peerType", ZooCfg, "participant", "observer", "Whether this member votes; the server line decides", Member(members::set_peer_role)),
    row("initLimit", ZooCfg, "(required in an ensemble)", "10", "Ticks to connect to the leader and sync",
        Member(|d, s| { d.members.init_limit = Some(ticks(s)?); Ok(()) })),
    row("syncLimit", ZooCfg, "(required in an ensemble)", "5", "Ticks to stay in sync with the leader",
        Member(|d, s| { d.members.sync_limit = Some(ticks(s)?); Ok(()) })),
    row("connectToLearnerMasterLimit", ZooCfg, "0", "5", "Ticks to reach the leader; 0 is initLimit",
        Member(|d, s| { d.members.settings.connect_limit = u32::try_from(s.int()?).ok().filter(|&n| n > 0); Ok(()) })),
    row("electionAlg", ZooCfg, "3", "2", "Kind of election; there is only 3",
        Member(|_, s| match s.int()? {
            3 => Ok(()),
            number => Err(ValueError::UnknownElectionAlgorithm { number }),
        })),
    row("syncEnabled", ZooCfg, "true", "false", "Observers write logs and snapshots",
        not_needed_boolean("observers always keep their data")),
    row("observer.syncEnabled", Property, "true", "false", "Observers write logs and snapshots",
        not_needed("observers always keep their data")),
    row("observerMasterPort", ZooCfg, "0", "2191", "Port on which followers serve observers",
        Handler::NotYet { feature: ObserverMasters, is_switch: true, check: |s| s.int().map(|_| ()) }),
    row("quorumListenOnAllIPs", ZooCfg, "false", "true", "Listen for members on all interfaces",
        Member(|d, s| { d.members.settings.listen_on_all_ips = s.boolean()?; Ok(()) })),
    row("sslQuorum", ZooCfg, "false", "true", "TLS between members",
        protection(Tls, |_, s| refuse_true(s, Tls))),
    row("portUnification", ZooCfg, "false", "true", "TLS between members while they are being switched to it",
        protection(Tls, |_, s| refuse_true(s, Tls))),
    row("sslQuorumReloadCertFiles", ZooCfg, "false", "true", "Read members' certificates again when they change", boolean(Tls)),
    row("quorum.auth.enableSasl", ZooCfg, "false", "true", "SASL between members",
        protection(Sasl, |_, s| refuse_true(s, Sasl))),
    row("quorum.auth.serverRequireSasl", ZooCfg, "false", "true", "Refuse members that do not use SASL",
        protection(Sasl, |_, s| refuse_true(s, Sasl))),
    row("quorum.auth.learnerRequireSasl", ZooCfg, "false", "true", "Connect only to members that use SASL",
        protection(Sasl, |_, s| refuse_true(s, Sasl))),
    row("quorum.auth.learner.saslLoginContext", ZooCfg, "QuorumLearner", "Learner", "JAAS section of a connecting member", any(Sasl)),
    row("quorum.auth.server.saslLoginContext", ZooCfg, "QuorumServer", "Server", "JAAS section of an accepting member", any(Sasl)),
    row("quorum.auth.kerberos.servicePrincipal", ZooCfg, "zkquorum/localhost", "zkquorum/_HOST", "Kerberos name of members", any(Sasl)),
    row("quorum.cnxn.threads.size", ZooCfg, "20", "30", "Threads for connections between members",
        Handler::NotNeeded { why: NO_POOL, check: |s| s.int().map(|_| ()) }),
    row("multiAddress.enabled", ZooCfg, "false", "true", "Several addresses for each member",
        Member(|d, s| { d.members.multi_address = s.boolean()?; Ok(()) })),
    row("multiAddress.reachabilityCheckEnabled", ZooCfg, "true", "false", "Find out which address of a member works",
        not_needed_boolean("the addresses of a member are tried in turn")),
    row("multiAddress.reachabilityCheckTimeoutMs", ZooCfg, "1000", "500", "Milliseconds to find out",
        not_needed("the addresses of a member are tried in turn")),
    row("oraclePath", ZooCfg, "(none)", "/run/oracle", "File that decides between two servers",
        protection(Oracles, |_, s| refuse_oracle(s))),
    row("leaderServes", Property, "yes", "no", "The leader serves clients",
        Member(|d, s| { d.members.settings.leader_serves = s.yes_or_no()?; Ok(()) })),
    row("leader.maxTimeToWaitForEpoch", Property, "-1", "5000", "Milliseconds a leader waits for a new epoch", not_needed("initLimit bounds it")),
    row("leader.maxConcurrentSnapSyncs", Property, "10", "5", "Learners that get a snapshot at a time",
        not_needed("trees are sent in small slices beside everything else")),
    row("leader.maxConcurrentDiffSyncs", Property, "100", "50", "Learners that get a difference at a time",
        not_needed("differences are sent beside everything else")),
    row("leader.ackLoggingFrequency", Property, "1000", "100", "Acknowledgements between lines in the log", not_needed(JAVA_DEBUGGING)),
    row("leader.closeSocketAsync", PropertyEitherName, "false", "true", "Close learners' connections in the background", not_needed(NO_BLOCKING)),
    row("learner.closeSocketAsync", PropertyEitherName, "false", "true", "Close the leader's connection in the background", not_needed(NO_BLOCKING)),
    row("learner.asyncSending", PropertyEitherName, "false", "true", "Send to the leader in the background", not_needed(NO_BLOCKING)),
    row("leader.nodelay", JvmProperty, "true", "false", "TCP no-delay towards learners", not_needed("what is sent together leaves together, and at once")),
    row("follower.nodelay", JvmProperty, "true", "false", "TCP no-delay towards the leader", not_needed("what is sent together leaves together, and at once")),
    row("leaderConnectDelayDuringRetryMs", Property, "100", "500", "Milliseconds between attempts to reach the leader",
        Member(|d, s| { d.members.settings.leader_connect_delay_ms = s.positive_property_int()?; Ok(()) })),
    row("follower.skipLearnerRequestToNextProcessor", Property, "false", "true", "Do not queue learners' requests twice", not_needed(ONE_PATH)),
    row("forward_learner_requests_to_commit_processor_disabled", Property, "false", "true", "Do not forward learners' requests to the commit queue", not_needed(ONE_PATH)),
    row("forceSnapshotSync", Property, "false", "true", "Bring learners up to date with a snapshot always", not_needed(JAVA_DEBUGGING)),
    row("commitLogCount", Property, "500", "1000", "Recent transactions kept to bring learners up to date",
        Member(|d, s| { d.members.settings.commit_log_count = s.positive_property_int()?; Ok(()) })),
    row("snapshotSizeFactor", Property, "0.33", "0.5", "Size of a log, compared to a snapshot, that is still sent to a learner; below 0 is none",
        Member(|d, s| {
            let never = s.value.starts_with('-');
            d.members.settings.snapshot_size_factor = if never { None } else { Some(s.fraction()?) };
            Ok(())
        })),
    row("cnxTimeout", Property, "5000", "1000", "Milliseconds to connect for an election",
        Member(|d, s| { d.members.settings.election_connect_timeout_ms = s.positive_property_int()?; Ok(()) })),
    row("quorumCnxnTimeoutMs", Property, "-1", "5000", "Milliseconds to read during an election; -1 is syncLimit",
        Member(|d, s| { d.members.settings.election_read_timeout_ms = s.property_int_or_off()?; Ok(()) })),
    row("electionPortBindRetry", Property, "3", "0", "Attempts to find an own address that is not there yet; 0 is for ever",
        Member(|d, s| { d.members.settings.bind_tries = s.property_int_or_off()?; Ok(()) })),
    row("tcpKeepAlive", Property, "false", "true", "TCP keep-alive between members",
        Member(|d, s| { d.members.settings.tcp_keep_alive = s.boolean()?; Ok(()) })),
    row("fastleader.minNotificationInterval", Property, "200", "100", "Milliseconds between votes at least",
        Member(|d, s| { d.members.settings.notification_min_ms = s.positive_property_int()?; Ok(()) })),
    row("fastleader.maxNotificationInterval", Property, "60000", "10000", "Milliseconds between votes at most",
        Member(|d, s| { d.members.settings.notification_max_ms = s.positive_property_int()?; Ok(()) })),
    row("observer.reconnectDelayMs", Property, "0", "1000", "Milliseconds an observer waits before it connects again",
        not_needed("observer.election.DelayMs spreads observers over time")),
    row("observer.election.DelayMs", Property, "200", "500", "Milliseconds an observer waits before an election",
        Member(|d, s| { d.members.settings.observer_election_delay_ms = u32::try_from(s.property_int()?).unwrap_or(0); Ok(()) })),
    row("observerMaster.sizeLimit", Property, "33554432", "1048576", "Bytes a follower keeps for its observers", any(ObserverMasters)),

    // Flags of existing installations.
    row("log.dir", Property, "(none)", "/var/log/zookeeper", "Directory of Java log files", not_needed(OWN_LOGGING)),
    row("log.file", Property, "(none)", "zookeeper.log", "Name of the Java log file", not_needed(OWN_LOGGING)),
    row("log.*", Property, "(none)", "INFO", "Levels and sizes of Java log files", not_needed(OWN_LOGGING)),
    row("root.logger", Property, "(none)", "INFO,CONSOLE", "Level and kind of Java logging", not_needed(OWN_LOGGING)),
    row("console.threshold", Property, "(none)", "INFO", "Level of Java logging on the console", not_needed(OWN_LOGGING)),
    row("tracelog.*", Property, "(none)", "trace.log", "Java trace log", not_needed(OWN_LOGGING)),
    row("auditlog.*", Property, "(none)", "audit.log", "Java audit log file", not_needed(OWN_LOGGING)),
    row("sasl.client", Property, "true", "false", "Clients use SASL", not_needed(CLIENT_SIDE)),
    row("sasl.client.*", Property, "(none)", "zookeeper", "SASL of clients", not_needed(CLIENT_SIDE)),
    row("sasl.clientconfig", Property, "Client", "ZkClient", "JAAS section of clients", not_needed(CLIENT_SIDE)),
    row("server.principal", Property, "(none)", "zookeeper/host", "Kerberos name of the server for clients", not_needed(CLIENT_SIDE)),
    row("server.realm", Property, "(none)", "EXAMPLE.COM", "Kerberos realm of the server for clients", not_needed(CLIENT_SIDE)),
    row("client.secure", Property, "false", "true", "Clients use TLS", not_needed(CLIENT_SIDE)),
    row("clientCnxnSocket", Property, "(none)", "org.apache.zookeeper.ClientCnxnSocketNetty", "Network layer of clients", not_needed(CLIENT_SIDE)),
    row("request.timeout", Property, "0", "5000", "Milliseconds clients wait for a reply", not_needed(CLIENT_SIDE)),
    row("disableAutoWatchReset", Property, "false", "true", "Clients do not set watches again when they reconnect", not_needed(CLIENT_SIDE)),
    row("shuffleDnsResponse", Property, "false", "true", "Clients choose among addresses at random", not_needed(CLIENT_SIDE)),
    row("hostProvider.*", Property, "(none)", "60", "How clients find servers", not_needed(CLIENT_SIDE)),
    row("test.allowDiscontinuousProposals", Property, "false", "true", "For tests of the Java server", not_needed(JAVA_DEBUGGING)),
    row("testingonly.*", Property, "(none)", "1", "For tests of the Java server", not_needed(JAVA_DEBUGGING)),
    row("java.*", JvmProperty, "(none)", "true", "Setting of the Java library", not_needed(NO_JVM)),
    row("javax.*", JvmProperty, "(none)", "true", "Setting of the Java library", not_needed(NO_JVM)),
    row("jdk.*", JvmProperty, "(none)", "true", "Setting of the Java library", not_needed(NO_JVM)),
    row("sun.*", JvmProperty, "(none)", "true", "Setting of the Java library", not_needed(NO_JVM)),
    row("com.sun.*", JvmProperty, "(none)", "9010", "Setting of the Java library, such as JMX", not_needed(NO_JVM)),
    row("file.*", JvmProperty, "(none)", "UTF-8", "Setting of the Java library", not_needed(NO_JVM)),
    row("user.*", JvmProperty, "(none)", "UTC", "Setting of the Java library", not_needed(NO_JVM)),
    row("os.*", JvmProperty, "(none)", "Linux", "Setting of the Java library", not_needed(NO_JVM)),
    row("io.netty.*", JvmProperty, "(none)", "true", "Setting of a Java network library", not_needed(NO_JVM)),
    row("log4j.*", JvmProperty, "(none)", "file:log4j.properties", "Setting of a Java logging library", not_needed(OWN_LOGGING)),
    row("log4j2.*", JvmProperty, "(none)", "true", "Setting of a Java logging library", not_needed(OWN_LOGGING)),
    row("logback.*", JvmProperty, "(none)", "logback.xml", "Setting of a Java logging library", not_needed(OWN_LOGGING)),
    row("org.slf4j.*", JvmProperty, "(none)", "debug", "Setting of a Java logging library", not_needed(OWN_LOGGING)),
];
