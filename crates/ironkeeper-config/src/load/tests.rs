use ironkeeper_proto::ServerId;
use ironkeeper_proto::four_letter::FourLetterWord;

use super::*;
use crate::candidate::Candidate;
use crate::known_keys::Handler;
use crate::setting::Setting;
use crate::{
    AuthScheme, DigestAlgorithm, EnsembleConfig, FourLetterWords, ListenAddress, NoticeKind,
    Origin, Place, Problem, ProblemKind, SessionWeights, SnapshotCompression, ValueError,
    known_keys,
};

/// The smallest valid file.
const LEAST: &str = "dataDir=/data\nclientPort=2181\n";

fn sources(zoo_cfg: &str) -> Sources<'_> {
    Sources { zoo_cfg, ..Sources::default() }
}

#[track_caller]
fn load(zoo_cfg: &str) -> Loaded {
    Config::from_sources(&sources(zoo_cfg)).unwrap_or_else(|error| panic!("{zoo_cfg}\n{error}"))
}

/// Returns the result for the smallest file with `lines` added.
#[track_caller]
fn with(lines: &str) -> Loaded {
    load(&format!("{LEAST}{lines}"))
}

/// Returns the only problem of the smallest file with `lines` added.
#[track_caller]
fn problem(lines: &str) -> String {
    problem_in(&format!("{LEAST}{lines}"))
}

#[track_caller]
fn problem_in(zoo_cfg: &str) -> String {
    let error = Config::from_sources(&sources(zoo_cfg)).expect_err(zoo_cfg);
    assert_eq!(error.problems().len(), 1, "{error}");
    error.problems()[0].to_string()
}

/// Returns keys and kinds of the notices, in a short form.
fn kinds(loaded: &Loaded) -> Vec<String> {
    let word = |notice: &Notice| match &notice.kind {
        NoticeKind::NotYet { feature } => format!("not yet: {feature:?}"),
        NoticeKind::EnsembleOnly => "ensembles".to_owned(),
        NoticeKind::NotNeeded { .. } => "not needed".to_owned(),
        NoticeKind::Unknown { nearest } => format!("unknown: {}", nearest.unwrap_or("-")),
        NoticeKind::Adjusted { .. } => "adjusted".to_owned(),
        NoticeKind::Overridden { .. } => "overridden".to_owned(),
    };
    loaded.notices.iter().map(|notice| format!("{}: {}", notice.key, word(notice))).collect()
}

#[track_caller]
fn flags(zoo_cfg_lines: &str, server_jvmflags: &str, jvmflags: &str) -> Loaded {
    let zoo_cfg = format!("{LEAST}{zoo_cfg_lines}");
    let texts = Sources { zoo_cfg: &zoo_cfg, server_jvmflags, jvmflags, ..Sources::default() };
    Config::from_sources(&texts).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_least_file_has_apaches_defaults() {
    let Loaded { config, notices } = load(LEAST);
    assert_eq!(notices, []);
    assert_eq!(config, Config::apache_defaults("/data".into()));
    assert_eq!((config.tick_time_ms, config.min_session_timeout_ms), (3000, 6000));
    assert_eq!(config.max_session_timeout_ms, 60_000);
    assert_eq!(config.client_address, ListenAddress { host: None, port: 2181 });
    assert_eq!(config.purge_interval_ms, None);
}

#[test]
fn defaults_in_the_table_are_the_defaults_in_force() {
    let base = load(LEAST).config;
    for row in known_keys() {
        let described = row.default.starts_with('(');
        if described || !matches!(row.handler, Handler::Apply(_)) {
            continue;
        }
        let loaded = with(&format!("{}={}", row.name, row.default));
        assert_eq!(loaded.config, base, "{} = {}", row.name, row.default);
        assert_eq!(kinds(&loaded), Vec::<String>::new(), "{}", row.name);
    }
}

#[test]
fn every_key_of_the_table_has_an_effect_or_is_talked_about() {
    // Some settings have an effect only together with others.
    let company = "enforce.auth.enabled=true\nenforce.auth.schemes=ip\nextendedTypesEnabled=true\n\
                   connection_throttle_weight_enabled=true\nconnection_throttle_tokens=9\n\
                   request_throttle_max_requests=9\nflushDelay=9\n";
    for row in known_keys() {
        let key = row.name.replace(".N", ".1").replace(".*", ".1");
        let line = format!("{key}={}\n", row.example);
        let mut effect = false;
        for around in [LEAST.to_owned(), "dataDir=/data\n".to_owned(), format!("{LEAST}{company}")]
        {
            // The line is last, so it takes precedence over the lines around it.
            let before = Config::from_sources(&sources(&around)).ok();
            match Config::from_sources(&sources(&format!("{around}{line}"))) {
                Ok(after) => {
                    let changed = before.is_some_and(|before| before.config != after.config)
                        // Nothing to compare with: the line makes the file complete.
                        || around == "dataDir=/data\n";
                    let talked_about = after.notices.iter().any(|notice| notice.key == key);
                    effect |= if matches!(row.handler, Handler::Apply(_)) {
                        changed
                    } else {
                        talked_about
                    };
                    // No family may match a key that has its own row, and no key is unknown.
                    let unknown =
                        |notice: &Notice| matches!(notice.kind, NoticeKind::Unknown { .. });
                    assert!(!after.notices.iter().any(unknown), "{key}");
                }
                Err(error) => {
                    let blamed = |problem: &Problem| problem.key.as_ref() == Some(&key);
                    effect |= error.problems().iter().any(blamed);
                }
            }
        }
        assert!(effect, "{key}={} went by unnoticed", row.example);
    }
}

#[test]
fn every_key_of_the_table_is_found_as_a_flag_where_it_may_be_one() {
    for row in known_keys() {
        let key = row.name.replace(".N", ".1").replace(".*", ".1");
        let names = match row.place {
            Place::ZooCfg => continue,
            Place::Property => vec![format!("zookeeper.{key}")],
            Place::PropertyEitherName => vec![format!("zookeeper.{key}"), key.clone()],
            Place::JvmProperty => vec![key.clone()],
        };
        for name in names {
            let flag = Setting {
                key: name.clone(),
                value: row.example.to_owned(),
                origin: Origin::Flags(FlagVariable::JvmFlags),
            };
            let candidate =
                Candidate::from_flag(&flag).unwrap_or_else(|| panic!("-D{name} is not known"));
            assert_eq!((candidate.row.name, candidate.name.as_str()), (row.name, key.as_str()));
            assert_eq!(candidate.apache_spelling, None, "-D{name}");
        }
    }
}

#[test]
fn names_in_the_table_are_unique() {
    let mut names: Vec<_> = known_keys().iter().map(|row| row.name).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn client_address_may_name_a_host() {
    let config = with("clientPortAddress=zk1.example.com").config;
    assert_eq!(config.client_address.to_string(), "zk1.example.com:2181");
    let config = with("clientPortAddress=[::1]").config;
    assert_eq!(config.client_address.to_string(), "[::1]:2181");
}

#[test]
fn missing_basics_are_reported_together_with_what_to_do() {
    let error = Config::from_sources(&sources("tickTime=2000")).expect_err("nothing is set");
    let text = error.to_string();
    assert!(text.contains("dataDir is not set: add a line dataDir="), "{text}");
    assert!(text.contains("clientPort is not set: add a line such as clientPort=2181"), "{text}");
}

#[test]
fn an_address_needs_its_port() {
    assert!(problem_in("dataDir=/d\nclientPortAddress=::1").contains("clientPort is missing"));
    assert!(problem("secureClientPortAddress=::1").contains("secureClientPort is missing"));
}

#[test]
fn impossible_values_are_refused_with_line_and_key() {
    assert_eq!(
        problem("\ntickTime=0"),
        "zoo.cfg line 4: tickTime: must be a number of milliseconds from 1 to 2147483647, without a \
         unit, not \"0\""
    );
    for line in [
        "tickTime=-1",
        "tickTime=2s",
        "clientPort=65536",
        "clientPort=-1",
        "clientPort=http",
        "clientPort=",
        "clientPortAddress=",
        "dataDir=",
        "minSessionTimeout=-2",
        "minSessionTimeout=1m",
        "minSessionTimeout=70000",
        "maxSessionTimeout=5000",
        "maxClientCnxns=many",
        "localSessionsEnabled=yes",
        "reconfigEnabled=1",
        "quorumListenOnAllIPs=on",
        "initLimit=ten",
        "peerType=leader",
        "electionAlg=0",
        "autopurge.purgeInterval=1w",
        "jvm.pause.monitor=maybe",
        "jvm.pause.sleep.time.ms=x",
        "forceSync=false",
        "skipACL=true",
        "enforceQuota=yes",
        "snapCount=100k",
        "preAllocSize=64M",
        "jute.maxbuffer=0",
        "jute.maxbuffer=1MB",
        "snapshot.compression.method=zstd",
        "largeRequestMaxBytes=0",
        "znode.container.checkIntervalMs=0",
        "znode.container.maxPerMinute=0",
        "nio.sessionlessCnxnTimeout=0",
        "connection_throttle_drop_increase=lots",
        "DigestAuthenticationProvider.digestAlg=MD5",
        "server.1=localhost",
        "server.x=localhost:2888:3888",
    ] {
        let text = problem(line);
        let key = line.split('=').next().expect("split yields something");
        assert!(text.starts_with("zoo.cfg line 3: ") && text.contains(key), "{line}: {text}");
    }
}

#[test]
fn a_broken_line_is_reported_with_its_number() {
    let text = problem_in("dataDir=/d\n\nclientPort=2181\nkey=\\u12");
    assert!(text.contains("line 4"), "{text}");
}

#[test]
fn port_zero_lets_the_system_choose() {
    assert_eq!(with("clientPort=0").config.client_address.port, 0);
}

#[test]
fn session_bounds_follow_the_tick_unless_set() {
    let bounds = |lines: &str| {
        let config = with(lines).config;
        (config.min_session_timeout_ms, config.max_session_timeout_ms)
    };
    assert_eq!(bounds("tickTime=1000"), (2000, 20_000));
    assert_eq!(bounds("minSessionTimeout=100\ntickTime=1000"), (100, 20_000));
    assert_eq!(bounds("maxSessionTimeout=90000"), (6000, 90_000));
    assert_eq!(bounds("minSessionTimeout=-1\nmaxSessionTimeout=-1\ntickTime=500"), (1000, 10_000));
    assert_eq!(bounds("minSessionTimeout=5000\nmaxSessionTimeout=5000"), (5000, 5000));
}

#[test]
fn purging_keeps_three_snapshots_at_least() {
    let loaded = with("autopurge.snapRetainCount=1\nautopurge.purgeInterval=30m");
    assert_eq!(loaded.config.snap_retain_count, 3);
    assert_eq!(loaded.config.purge_interval_ms, Some(1_800_000));
    assert_eq!(kinds(&loaded), ["autopurge.snapRetainCount: adjusted"]);
    assert_eq!(with("autopurge.purgeInterval=-1").config.purge_interval_ms, None);
}

#[test]
fn values_out_of_bounds_that_apache_corrects_are_corrected_with_a_notice() {
    let loaded = with(
        "snapCount=1\njute.maxbuffer.extrasize=10\nlargeRequestThreshold=0\nglobalOutstandingLimit=-5\n\
         connection_throttle_global_session_weight=0\nconnection_throttle_weight_enabled=true\n\
         connection_throttle_tokens=1",
    );
    assert_eq!(loaded.config.snap_count, 2);
    assert_eq!(loaded.config.jute_extra_size_bytes, 1024);
    assert_eq!(loaded.config.large_request_threshold_bytes, None);
    assert_eq!(loaded.config.global_outstanding_limit, 0);
    assert_eq!(loaded.config.connection_throttle.weights, Some(SessionWeights::default()));
    assert_eq!(loaded.notices.len(), 5);
    assert!(kinds(&loaded).iter().all(|kind| kind.ends_with(": adjusted")));
}

#[test]
fn no_session_is_cheaper_than_a_local_one() {
    let loaded = with(
        "connection_throttle_tokens=1\nconnection_throttle_weight_enabled=true\n\
         connection_throttle_local_session_weight=4\n\
         connection_throttle_global_session_weight=2",
    );
    let weights = loaded.config.connection_throttle.weights.expect("weights are on");
    assert_eq!(weights, SessionWeights { global: 4, local: 4, renew: 4 });
    assert_eq!(kinds(&loaded), ["connection_throttle_global_session_weight: adjusted"]);
}

#[test]
fn zero_and_below_switch_limits_off() {
    let config = with(
        "maxClientCnxns=-1\nmaxCnxns=-1\nsnapSizeLimitInKb=0\ntxnLogSizeLimitInKb=0\npreAllocSize=0\n\
         throttled_op_wait_time=0\nclientPortListenBacklog=0\nmaxBatchSize=0",
    )
    .config;
    assert_eq!((config.max_client_cnxns, config.max_cnxns, config.pre_alloc_size_kb), (0, 0, 0));
    assert_eq!((config.snap_size_limit_kb, config.txn_log_size_limit_kb), (None, None));
    assert_eq!((config.throttled_op_wait_time_ms, config.client_port_listen_backlog), (None, None));
    assert_eq!(config.max_batch_size, None);
}

#[test]
fn settings_of_something_that_is_off_are_reported() {
    let loaded = with(
        "throttled_op_wait_time=5\nrequest_stale_latency_check=true\nrequest_throttle_stall_time=100\n\
         connection_throttle_fill_time=7\nmaxWriteQueuePollTime=2",
    );
    assert_eq!(
        kinds(&loaded),
        [
            "throttled_op_wait_time: adjusted",
            "request_stale_latency_check: adjusted",
            "connection_throttle_fill_time: adjusted",
            "maxWriteQueuePollTime: adjusted",
        ]
    );
    let loaded = with(
        "throttled_op_wait_time=5\nrequest_throttle_max_requests=7\nconnection_throttle_fill_time=7\n\
         connection_throttle_tokens=3\nmaxWriteQueuePollTime=2\nflushDelay=9",
    );
    assert_eq!(kinds(&loaded), Vec::<String>::new());
}

#[test]
fn gathering_writes_ends_after_a_third_of_its_time_without_a_write() {
    let quiet = |lines| with(lines).config.flush_quiet_ms;
    assert_eq!((quiet(""), quiet("flushDelay=9")), (0, 3));
    assert_eq!(quiet("flushDelay=9\nmaxWriteQueuePollTime=5"), 5);
}

#[test]
fn what_only_members_of_ensembles_have_a_use_for_is_reported_quietly() {
    let loaded = with("localSessionsEnabled=true\nleaderServes=yes\ntcpKeepAlive=true");
    assert_eq!(kinds(&loaded), ["localSessionsEnabled: ensembles", "tcpKeepAlive: ensembles"]);
    assert!(!loaded.notices[0].deserves_attention(), "one Apache server ignores it as well");
}

#[test]
fn passwords_may_be_hashed_by_any_of_the_sha_family() {
    let algorithm = |name: &str| {
        with(&format!("DigestAuthenticationProvider.digestAlg={name}")).config.digest_auth.algorithm
    };
    assert_eq!(algorithm("sha-1"), DigestAlgorithm::Sha1);
    assert_eq!(algorithm("SHA-256"), DigestAlgorithm::Sha256);
    assert_eq!(algorithm("SHA3-256"), DigestAlgorithm::Sha3With256);
}

#[test]
fn fields_may_exceed_frames_by_the_size_of_a_frame_unless_told_otherwise() {
    let extra = |lines| with(lines).config.jute_extra_size_bytes;
    assert_eq!(extra("jute.maxbuffer=5000000"), 5_000_000);
    assert_eq!(extra("jute.maxbuffer=5000000\njute.maxbuffer.extrasize=2000"), 2000);
}

#[test]
fn white_listed_words_are_split_and_unknown_ones_reported() {
    let words = |loaded: &Loaded| {
        loaded.config.four_letter_words.iter().map(FourLetterWord::name).collect::<Vec<_>>()
    };
    let loaded = with("4lw.commands.whitelist=mntr, ruok,,help , sysp");
    assert_eq!(words(&loaded), ["mntr", "ruok", "srvr"]);
    assert_eq!(
        loaded.notices[0].to_string(),
        "zoo.cfg line 3: 4lw.commands.whitelist=mntr, ruok,,help , sysp: there is no four-letter word help, sysp."
    );
    assert_eq!(with("4lw.commands.whitelist=*").config.four_letter_words, FourLetterWords::all());
    assert_eq!(
        with("4lw.commands.whitelist=ruok,*").config.four_letter_words,
        FourLetterWords::all()
    );
    assert_eq!(words(&with("4lw.commands.whitelist=")), ["srvr"]);
    assert_eq!(
        words(&with("readonlymode.enabled=true\n4lw.commands.whitelist=ruok")),
        ["isro", "ruok", "srvr"]
    );
}

#[test]
fn compression_is_named_in_any_case() {
    let of =
        |value| with(&format!("snapshot.compression.method={value}")).config.snapshot_compression;
    assert_eq!(of("gz"), SnapshotCompression::Gzip);
    assert_eq!(of("Snappy"), SnapshotCompression::Snappy);
    assert_eq!(of(""), SnapshotCompression::None);
}

#[test]
fn demanded_schemes_must_be_there() {
    let schemes = |lines| with(lines).config.enforced_auth_schemes;
    assert_eq!(
        schemes("enforce.auth.enabled=true\nenforce.auth.schemes=digest, ip,digest"),
        [AuthScheme::Digest, AuthScheme::Ip]
    );
    assert_eq!(schemes("enforce.auth.enabled=false"), []);
    let loaded = with("enforce.auth.schemes=digest");
    assert_eq!(kinds(&loaded), ["enforce.auth.schemes: adjusted"]);
    assert!(problem("enforce.auth.enabled=true").contains("enforce.auth.schemes is missing"));
    assert!(problem("enforce.auth.enabled=true\nenforce.auth.schemes=sasl").contains("\"sasl\""));
    let off = "DigestAuthenticationProvider.enabled=false\nenforce.auth.enabled=true\nenforce.auth.schemes=digest";
    assert!(problem(off).contains("\"digest\""));
}

#[test]
fn protection_that_cannot_be_given_refuses_the_start() {
    for key in [
        "sslQuorum",
        "portUnification",
        "quorum.auth.enableSasl",
        "quorum.auth.serverRequireSasl",
        "quorum.auth.learnerRequireSasl",
        "sessionRequireClientSASLAuth",
    ] {
        assert!(problem(&format!("{key}=true")).contains("does not have"), "{key}");
        assert_eq!(with(&format!("{key}=false")).notices, [], "{key}");
    }
}

#[test]
fn a_tls_port_alone_refuses_the_start_but_beside_a_plain_one_it_is_a_notice() {
    assert!(problem_in("dataDir=/d\nsecureClientPort=2281").contains("does not have TLS yet"));
    assert_eq!(kinds(&with("secureClientPort=2281")), ["secureClientPort: not yet: Tls"]);
    assert!(problem("secureClientPort=x").contains("port"));
}

#[test]
fn ttl_nodes_of_old_form_need_ttl_nodes() {
    let loaded = with("emulate353TTLNodes=true");
    assert!(!loaded.config.emulate_353_ttl);
    assert_eq!(kinds(&loaded), ["emulate353TTLNodes: adjusted"]);
    assert!(with("emulate353TTLNodes=true\nextendedTypesEnabled=true").config.emulate_353_ttl);
}

#[test]
fn a_super_digest_that_no_password_matches_is_refused_and_hidden() {
    let key = "DigestAuthenticationProvider.superDigest";
    let of_sha1 = "xQJmxLMiHGwaqBvst5y6rkB6HQs=";
    for digest in [
        "hunter2".to_owned(),
        "super:plainpw".to_owned(),
        of_sha1.to_owned(),
        format!(":{of_sha1}"),
        format!("super:{of_sha1}="),
        format!("super:a:{}", &of_sha1[2..]),
        format!("super:{}", of_sha1.replace('=', "x")),
        format!("super:{of_sha1}\nDigestAuthenticationProvider.digestAlg=SHA-256"),
    ] {
        let problem = problem(&format!("{key}={digest}"));
        assert!(problem.contains("`ironkeeper digest user:password`"), "{problem}");
        assert!(!problem.contains("hunter2") && !problem.contains("plainpw"), "{problem}");
    }
    let sha256 = DigestAlgorithm::Sha256.id("super:secret");
    with(&format!("{key}={sha256}\nDigestAuthenticationProvider.digestAlg=SHA-256"));
    with(&format!("{key}="));
}

#[test]
fn settings_of_the_command_line_win_and_are_checked_alike() {
    let set = |lines: &[(&str, &str)]| -> Vec<(String, String)> {
        lines.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let zoo_cfg = format!("{LEAST}tickTime=1000\nDigestAuthenticationProvider.enabled=true\n");
    let good = set(&[("tickTime", "500"), ("4lw.commands.whitelist", "mntr"), ("tickTime", "700")]);
    let loaded = Config::from_sources(&Sources {
        set: &good,
        jvmflags: "-Dzookeeper.4lw.commands.whitelist=ruok",
        ..sources(&zoo_cfg)
    });
    let loaded = loaded.expect("it is good");
    assert_eq!(loaded.config.tick_time_ms, 700);
    assert!(loaded.config.four_letter_words.allows(FourLetterWord::Mntr));
    assert!(!loaded.config.four_letter_words.allows(FourLetterWord::Ruok));
    assert!(loaded.notices[0].to_string().ends_with("it is set again in --set, which wins."));

    let alone = |lines: &[(&str, &str)]| {
        let with = Overrides { set: &set(lines), ..Overrides::default() };
        Config::standalone_with("/data".into(), &with)
    };
    let loaded = alone(&[("clientPort", "77"), ("dataDir", "/other"), ("tickTime", "100")]);
    let config = loaded.expect("it is good").config;
    assert_eq!(config.client_address.to_string(), "127.0.0.1:77");
    assert_eq!((config.data_dir, config.max_session_timeout_ms), ("/other".into(), 2000));
    for (key, value, why) in [
        ("tickTime", "2s", "must be a number of milliseconds from 1 to 2147483647, without a unit"),
        ("tikcTime", "2", "did you mean tickTime?"),
        ("server.1", "a:1:2", "give it with --config"),
    ] {
        let error = alone(&[(key, value)]).expect_err(key).to_string();
        assert!(error.contains(&format!("--set: {key}: ")) && error.contains(why), "{error}");
    }
}

#[test]
fn messages_name_the_file_that_was_read() {
    let notice = &with("ticktime=2000").notices[0];
    assert!(notice.shown_in("a.cfg").starts_with("a.cfg line 3: ticktime=2000: no effect"));
    let text = format!("{LEAST}tickTime=0\nthis is not a config\n");
    let error = Config::from_sources(&sources(&text)).expect_err("the tick").shown_in("a.cfg");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "a.cfg cannot be used:");
    assert!(lines[1].starts_with("  a.cfg line 3: tickTime: must be a number"), "{error}");
    assert!(lines[2].starts_with("  a.cfg line 4: this: no effect"), "{error}");
    let error = Config::from_sources(&sources("a=\\u12")).expect_err("half an escape");
    assert!(error.shown_in("a.cfg").contains("\n  a.cfg line 1: "), "{error}");
}

#[test]
fn a_directory_with_what_looks_like_a_comment_is_reported() {
    let loaded = load("dataDir=/data # the data\nclientPort=2181\n");
    assert_eq!(loaded.config.data_dir, PathBuf::from("/data # the data"));
    assert_eq!(kinds(&loaded), ["dataDir: adjusted"]);
}

#[test]
fn unknown_keys_come_with_a_suggestion() {
    for (written, meant) in [
        ("ticktime", "tickTime"),
        ("tickTme", "tickTime"),
        ("tikcTime", "tickTime"),
        ("maxClientConns", "maxClientCnxns"),
        ("autopurge.snapRetainCounts", "autopurge.snapRetainCount"),
        ("4lw.command.whitelist", "4lw.commands.whitelist"),
        ("connectionMaxTokens", "connection_throttle_tokens"),
        ("requestThrottleLimit", "request_throttle_max_requests"),
        ("zookeeper.tickTime", "tickTime"),
        ("ssl.keystore.location", "ssl.keyStore.location"),
        ("favouriteColour", "-"),
        ("x", "-"),
        ("", "-"),
    ] {
        let loaded = with(&format!("{written}=1"));
        assert_eq!(kinds(&loaded), [format!("{written}: unknown: {meant}")]);
    }
    assert_eq!(
        with("maxClientConns=5").notices[0].to_string(),
        "zoo.cfg line 3: maxClientConns=5: no effect: not a key that is read here. Did you mean maxClientCnxns?"
    );
}

#[test]
fn the_last_of_repeated_keys_wins_and_the_others_are_reported() {
    let loaded = with("tickTime=1000\ntickTime=2000\ntickTime=4000\nsnapCount=7\nsnapCount=7");
    assert_eq!(loaded.config.tick_time_ms, 4000);
    assert_eq!(kinds(&loaded), ["tickTime: overridden", "tickTime: overridden"]);
    assert_eq!(
        loaded.notices[0].to_string(),
        "zoo.cfg line 3: tickTime=1000: no effect: it is set again in zoo.cfg line 5, which wins."
    );
}

#[test]
fn the_file_wins_over_flags_for_keys_that_apache_passes_through() {
    let loaded =
        flags("snapCount=10", "", "-Dzookeeper.snapCount=20 -Dzookeeper.enforceQuota=true");
    assert_eq!(loaded.config.snap_count, 10);
    assert!(loaded.config.enforce_quota);
    assert_eq!(kinds(&loaded), ["zookeeper.snapCount: overridden"]);
}

#[test]
fn flags_win_over_the_file_for_properties_that_apache_reads_from_flags_only() {
    let loaded = flags("jute.maxbuffer=10", "", "-Djute.maxbuffer=0x9fffff");
    assert_eq!(loaded.config.jute_max_buffer_bytes, 0x9f_ffff);
    assert_eq!(kinds(&loaded), ["jute.maxbuffer: overridden"]);
    assert_eq!(with("jute.maxbuffer=10").config.jute_max_buffer_bytes, 10);
}

#[test]
fn jvmflags_win_over_server_jvmflags() {
    let loaded =
        flags("", "-Dzookeeper.snapCount=10 -Dzookeeper.snapCount=15", "-Dzookeeper.snapCount=20");
    assert_eq!(loaded.config.snap_count, 20);
    assert_eq!(loaded.notices.len(), 2);
    assert_eq!(
        loaded.notices[0].to_string(),
        "SERVER_JVMFLAGS: zookeeper.snapCount=10: no effect: it is set again in JVMFLAGS, which wins."
    );
}

#[test]
fn pass_through_keys_work_with_and_without_prefix_in_both_places() {
    let digest = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
    let key = "DigestAuthenticationProvider.superDigest";
    for (line, flag, kind) in [
        (format!("{key}={digest}"), String::new(), None),
        (String::new(), format!("-Dzookeeper.{key}={digest}"), None),
        (
            format!("zookeeper.{key}={digest}"),
            String::new(),
            Some(format!("zookeeper.{key}: adjusted")),
        ),
        (String::new(), format!("-D{key}={digest}"), Some(format!("{key}: adjusted"))),
    ] {
        let loaded = flags(&line, "", &flag);
        assert_eq!(loaded.config.digest_auth.super_digest.as_deref(), Some(digest), "{line}{flag}");
        assert_eq!(kinds(&loaded), kind.into_iter().collect::<Vec<_>>(), "{line}{flag}");
    }
}

#[test]
fn the_spelling_apache_reads_wins_over_the_other() {
    let loaded = flags("snapCount=10\nzookeeper.snapCount=20", "-DsnapCount=30", "");
    assert_eq!(loaded.config.snap_count, 10);
    assert_eq!(kinds(&loaded), ["zookeeper.snapCount: overridden", "snapCount: overridden"]);
    let loaded =
        flags("", "-Dzookeeper.fsync.warningthresholdms=1", "-Dfsync.warningthresholdms=2");
    assert_eq!(loaded.config.fsync_warning_threshold_ms, 1);
    assert_eq!(flags("", "", "-Dfsync.warningthresholdms=2").notices, []);
}

#[test]
fn keys_of_the_file_are_not_read_from_flags() {
    let loaded =
        flags("", "", "-Dzookeeper.clientPort=2281 -DdataDir=/x -Dzookeeper.server.1=h:1:2");
    assert_eq!(loaded.config.client_address.port, 2181);
    assert_eq!(
        kinds(&loaded),
        [
            "zookeeper.clientPort: unknown: clientPort",
            "dataDir: unknown: dataDir",
            "zookeeper.server.1: unknown: server.N",
        ]
    );
}

#[test]
fn flags_for_the_jvm_are_noted_and_need_no_attention() {
    let loaded = flags(
        "",
        "-Xmx1000m",
        "-XX:+UseG1GC -javaagent:/jmx.jar -Dcom.sun.management.jmxremote -Duser.tz=UTC",
    );
    assert_eq!(
        kinds(&loaded),
        [
            "-Xmx1000m: not needed",
            "-XX:+UseG1GC: not needed",
            "-javaagent:/jmx.jar: not needed",
            "com.sun.management.jmxremote: not needed",
            "user.tz: not needed",
        ]
    );
    assert!(!loaded.notices.iter().any(Notice::deserves_attention));
    assert_eq!(
        loaded.notices[0].to_string(),
        "SERVER_JVMFLAGS: -Xmx1000m: no effect and none needed: there is no JVM here."
    );
}

#[test]
fn flags_with_an_open_quote_are_refused() {
    let error =
        Config::from_sources(&Sources { zoo_cfg: LEAST, jvmflags: "'-Da=b", ..Sources::default() })
            .expect_err("the quote is open");
    assert!(error.to_string().contains("JVMFLAGS has an opening '"), "{error}");
}

#[test]
fn a_server_without_a_file_takes_flags_too() {
    let loaded = Config::standalone(
        "/data".into(),
        "-Djute.maxbuffer=2000000 -Dzookeeper.snapCount=1000",
        "",
    )
    .expect("the flags are valid");
    assert_eq!(loaded.config.jute_max_buffer_bytes, 2_000_000);
    assert_eq!(loaded.config.jute_extra_size_bytes, 2_000_000);
    assert_eq!(loaded.config.snap_count, 1000);
    let plain = Config::standalone("/data".into(), "", "").expect("nothing can be wrong");
    assert_eq!(
        plain,
        Loaded { config: Config::standalone_default("/data".into()), notices: Vec::new() }
    );
    assert!(Config::standalone("/data".into(), "-Djute.maxbuffer=x", "").is_err());
}

#[test]
fn a_single_server_line_starts_standalone_and_names_the_client_port() {
    let loaded = load("dataDir=/d\nserver.5=localhost:2888:3888;2381");
    assert_eq!(loaded.config.client_address.to_string(), "0.0.0.0:2381");
    assert_eq!(kinds(&loaded), ["server.5: ensembles"]);
    let loaded = load("dataDir=/d\nclientPort=2181\nserver.5=localhost:2888:3888;10.0.0.1:2181");
    assert_eq!(loaded.config.client_address.to_string(), "10.0.0.1:2181");
    assert_eq!(with("server.5=localhost:2888:3888").config.client_address.to_string(), "*:2181");
}

#[test]
fn client_ports_that_disagree_are_refused() {
    assert!(problem("server.1=h:2888:3888;2281").contains("make them agree"));
    assert!(
        problem("clientPortAddress=10.0.0.1\nserver.1=h:2888:3888;2181")
            .contains("make them agree")
    );
    let agreed = with("clientPortAddress=10.0.0.1\nserver.1=h:2888:3888;10.0.0.1:2181");
    assert_eq!(agreed.config.client_address.to_string(), "10.0.0.1:2181");
}

/// Three servers with their limits.
const THREE: &str = "initLimit=5\nsyncLimit=2\nserver.1=a:2888:3888\nserver.2=b:2888:3888\n\
                     server.3=c:2888:3888\n";

/// Returns member 2 of the ensemble of the smallest file with `lines` added.
fn member(lines: &str) -> Result<Loaded, ConfigError> {
    let zoo_cfg = format!("{LEAST}{lines}");
    Config::from_sources(&Sources { zoo_cfg: &zoo_cfg, my_id: Some("2\n"), ..Sources::default() })
}

#[track_caller]
fn ensemble(lines: &str) -> EnsembleConfig {
    let loaded = member(lines).unwrap_or_else(|error| panic!("{error}"));
    loaded.config.ensemble.expect("it is an ensemble")
}

#[track_caller]
fn no_ensemble(lines: &str, words: &str) {
    let error = member(lines).expect_err("it is wrong");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn servers_make_an_ensemble() {
    let loaded = member(THREE).expect("it is complete");
    assert_eq!(kinds(&loaded), Vec::<String>::new());
    let config = loaded.config.ensemble.expect("it is an ensemble");
    assert_eq!((config.my_id, config.init_limit, config.sync_limit), (ServerId(2), 5, 2));
    assert_eq!(config.membership.voters().collect::<Vec<_>>(), [1, 2, 3].map(ServerId));
    assert_eq!(config.membership.version, 0);
    assert_eq!(loaded.config.client_address.to_string(), "*:2181");
}

#[test]
fn one_server_is_an_ensemble_only_if_that_is_asked_for() {
    let one = "initLimit=5\nsyncLimit=2\nserver.2=a:1:2\n";
    assert!(member(one).expect("it is standalone").config.ensemble.is_none());
    assert_eq!(ensemble(&format!("{one}standaloneEnabled=false")).membership.members.len(), 1);
    let observed = format!("{one}server.3=b:1:2:observer\n");
    no_ensemble(&observed, "one server on its own is none");
    ensemble(&format!("{observed}standaloneEnabled=false"));
    assert!(problem("server.1=a:1:2:observer").contains("no server votes"));
    assert!(problem("standaloneEnabled=false").contains("there is no server line"));
    assert!(problem("server.1=a:1:2\nserver.01=a:1:2").contains("listed twice"));
}

#[test]
fn an_ensemble_needs_limits_and_a_number_of_this_server() {
    let bare = "server.1=a:1:2\nserver.2=b:1:2\n";
    no_ensemble(bare, "initLimit is not set");
    no_ensemble(bare, "syncLimit is not set");
    let text = format!("{LEAST}{THREE}");
    let with_id = |my_id| Config::from_sources(&Sources { my_id, ..sources(&text) });
    for (my_id, words) in [
        (None, "myid is missing"),
        (Some("two"), "must hold a number"),
        (Some(""), "must hold a number"),
        (Some("4"), "there is no line server.4"),
    ] {
        let error = with_id(my_id).expect_err("it has no number");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn groups_weights_and_further_addresses_are_read() {
    let config = ensemble(&format!("{THREE}group.1=1:2:3\nweight.1=0\nweight.2=4"));
    assert_eq!(config.membership.weight(ServerId(2)), 4);
    assert_eq!(config.membership.groups[&ServerId(3)], 1);
    no_ensemble(&format!("{THREE}group.1=1:2"), "not all");
    no_ensemble(&format!("{THREE}group.1=1:x"), "group.1");
    let many = THREE.replace("a:2888:3888", "a:2888:3888|a2:2888:3888");
    no_ensemble(&many, "multiAddress.enabled=true");
    let config = ensemble(&format!("{many}multiAddress.enabled=true"));
    assert_eq!(config.membership.members[&ServerId(1)].addresses.len(), 2);
}

#[test]
fn a_server_line_says_where_its_server_serves_clients_and_whether_it_votes() {
    let lines = THREE.replace("b:2888:3888", "b:2888:3888:observer;10.0.0.1:2281");
    no_ensemble(&lines, "make them agree");
    let zoo_cfg = format!("dataDir=/d\n{lines}peerType=participant\n");
    let loaded = Config::from_sources(&Sources {
        zoo_cfg: &zoo_cfg,
        my_id: Some("2"),
        ..Sources::default()
    })
    .expect("it is complete");
    assert_eq!(loaded.config.client_address.to_string(), "10.0.0.1:2281");
    assert_eq!(kinds(&loaded), ["peerType: adjusted"]);
}

#[test]
fn settings_of_members_reach_the_member() {
    let config = ensemble(&format!(
        "{THREE}connectToLearnerMasterLimit=7\nleaderConnectDelayDuringRetryMs=8\ncnxTimeout=9\n\
         quorumCnxnTimeoutMs=10\nfastleader.minNotificationInterval=11\n\
         fastleader.maxNotificationInterval=12\nobserver.election.DelayMs=13\ncommitLogCount=14\n\
         snapshotSizeFactor=-1\nlocalSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n\
         readonlymode.enabled=true\nleaderServes=no\ntcpKeepAlive=true\nquorumListenOnAllIPs=true"
    ));
    let plain = ensemble(THREE);
    assert_eq!(
        config,
        EnsembleConfig {
            connect_limit: Some(7),
            leader_connect_delay_ms: 8,
            election_connect_timeout_ms: 9,
            election_read_timeout_ms: Some(10),
            notification_min_ms: 11,
            notification_max_ms: 12,
            observer_election_delay_ms: 13,
            commit_log_count: 14,
            snapshot_size_factor: None,
            local_sessions: true,
            local_sessions_upgrading: true,
            read_only: true,
            leader_serves: false,
            tcp_keep_alive: true,
            listen_on_all_ips: true,
            ..plain
        }
    );
}

#[test]
fn large_server_numbers_do_not_go_with_ttl_nodes() {
    assert!(problem("server.255=a:1:2\nextendedTypesEnabled=true").contains("254"));
    with("server.254=a:1:2\nextendedTypesEnabled=true");
    with("server.255=a:1:2");
}

#[test]
fn members_may_be_in_a_file_of_their_own() {
    let zoo_cfg = "dataDir=/d\ndynamicConfigFile=/etc/zoo.cfg.dynamic";
    let read = |dynamic| Config::from_sources(&Sources { zoo_cfg, dynamic, ..Sources::default() });
    let loaded = read(Some("server.1=localhost:2888:3888:participant;2181")).expect("one server");
    assert_eq!(loaded.config.client_address.port, 2181);
    assert_eq!(loaded.notices[0].origin, Origin::DynamicFile { line: 1 });
    let refused = |dynamic, words: &str| {
        let text = read(dynamic).expect_err("it is wrong").to_string();
        assert!(text.contains(words), "{text}");
    };
    refused(Some("server.1=a:1:2\nserver.2=b:1:2;2181"), "myid is missing");
    refused(Some("server.1=a:1:2;2181\nversion=100"), "dynamic configuration line 2: version");
    refused(Some("server.1=a:1:2;2181\ntickTime=1"), "only server.N");
    refused(Some("a=\\u1"), "line 1");
    refused(None, "was not read");
    let both = format!("{zoo_cfg}\nclientPort=2181\nserver.1=a:1:2");
    let error = Config::from_sources(&Sources {
        zoo_cfg: &both,
        dynamic: Some("server.2=a:1:2"),
        ..Sources::default()
    });
    assert!(error.expect_err("members in two places").to_string().contains("move the line there"));
}

#[test]
fn files_are_read_from_disk_with_the_file_they_name() {
    let dir = std::env::temp_dir().join(format!("ironkeeper-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the test");
    let (zoo_cfg, dynamic) = (dir.join("zoo.cfg"), dir.join("zoo.cfg.dynamic"));
    std::fs::write(&dynamic, "server.1=localhost:2888:3888;2181").expect("written");
    let text = format!("dataDir=/d\ndynamicConfigFile={}", dynamic.display());
    std::fs::write(&zoo_cfg, text).expect("written");
    let loaded =
        Config::from_file(&zoo_cfg, "-Dzookeeper.snapCount=5", "").expect("both files are good");
    assert_eq!((loaded.config.client_address.port, loaded.config.snap_count), (2181, 5));

    std::fs::remove_file(&dynamic).expect("it is there");
    let error = Config::from_file(&zoo_cfg, "", "").expect_err("the named file is gone");
    assert!(error.to_string().contains("zoo.cfg.dynamic"), "{error}");
    assert!(error.problems().is_empty());

    // Bytes that are not UTF-8 are read as ISO-8859-1, which Java uses for every file.
    std::fs::write(&zoo_cfg, b"clientPort=2181\ndataDir=/donn\xe9es").expect("written");
    let loaded = Config::from_file(&zoo_cfg, "", "").expect("latin text is text");
    assert_eq!(loaded.config.data_dir, Path::new("/donn\u{e9}es"));
    assert_eq!(kinds(&loaded), ["dataDir: adjusted"]);
    std::fs::remove_dir_all(&dir).expect("it is ours");
}

#[test]
fn a_file_too_large_to_be_a_configuration_is_not_read_whole() {
    let dir = std::env::temp_dir().join(format!("ironkeeper-config-large-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the test");
    let path = dir.join("zoo.cfg");
    File::create(&path).and_then(|file| file.set_len(FILE_BYTES_MAX + 1)).expect("a sparse file");
    let error = Config::from_file(&path, "", "").expect_err("it is too large");
    assert!(error.to_string().contains("larger than"), "{error}");
    std::fs::remove_dir_all(&dir).expect("it is ours");
}

#[test]
fn notices_come_in_the_order_of_the_file() {
    let loaded = flags("zzz=1\ninitLimit=5\naaa=1\nmaxResponseCacheSize=4", "-Xms1m", "-Xmx1m");
    let lines: Vec<_> = loaded.notices.iter().map(Notice::line).collect();
    assert_eq!(lines, [Some(3), Some(4), Some(5), Some(6), None, None]);
    assert_eq!(loaded.notices[4].key, "-Xms1m");
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let error =
        Config::from_sources(&sources("dataDir=/d\nsslQuorum=true\ntickTime=0\nclientPort=x"))
            .expect_err("three lines are wrong");
    let lines: Vec<_> = error.problems().iter().map(Problem::line).collect();
    assert_eq!(lines, [Some(2), Some(3), Some(4)], "{error}");
    assert_eq!(error.to_string().lines().count(), 4);
}

// Files of widely used packages and images.

#[test]
fn the_sample_file_of_apache_starts_with_quiet_notices_only() {
    let loaded =
        load("tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/tmp/zookeeper\nclientPort=2181\n");
    assert_eq!(kinds(&loaded), ["initLimit: ensembles", "syncLimit: ensembles"]);
    assert!(!loaded.notices.iter().any(Notice::deserves_attention));
}

#[test]
fn the_file_of_the_official_docker_image_starts() {
    let loaded = load(
        "dataDir=/data\ndataLogDir=/datalog\ntickTime=2000\ninitLimit=5\nsyncLimit=2\n\
         autopurge.snapRetainCount=3\nautopurge.purgeInterval=0\nmaxClientCnxns=60\nstandaloneEnabled=true\n\
         admin.enableServer=true\nserver.1=localhost:2888:3888;2181\n",
    );
    assert_eq!(loaded.config.client_address.to_string(), "0.0.0.0:2181");
    assert_eq!(loaded.config.data_log_dir, Path::new("/datalog"));
    let loud: Vec<_> = loaded.notices.iter().filter(|notice| notice.deserves_attention()).collect();
    assert_eq!(loud.len(), 1);
    assert_eq!(
        loud[0].to_string(),
        "zoo.cfg line 10: admin.enableServer=true: no effect: this version of Ironkeeper does not have \
         the HTTP admin server yet."
    );
}

#[test]
fn the_file_of_debian_starts_without_a_word() {
    let loaded = load(
        "# The number of milliseconds of each tick\ntickTime=2000\ndataDir=/var/lib/zookeeper\n\
         # Place the dataLogDir to a separate physical disc\n# dataLogDir=/disk2/zookeeper\n\n\
         clientPort=2181\n\n#server.1=zookeeper1:2888:3888\n#preAllocSize=65536\n#snapCount=1000\n\
         #traceFile=\n#leaderServes=yes\n",
    );
    assert_eq!(loaded.notices, []);
    assert_eq!(loaded.config.data_dir, Path::new("/var/lib/zookeeper"));
}

#[test]
fn the_file_and_flags_of_bitnamis_image_start() {
    let zoo_cfg = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/bitnami/zookeeper/data\nclientPort=2181\n\
         maxClientCnxns=60\nautopurge.snapRetainCount=3\nautopurge.purgeInterval=0\n\npreAllocSize=65536\n\
         snapCount=100000\nmaxCnxns=0\nreconfigEnabled=false\nquorumListenOnAllIPs=false\n\
         4lw.commands.whitelist=srvr, mntr\nmaxSessionTimeout=40000\nadmin.serverAddress=0.0.0.0\n\
         admin.serverPort=8080\nadmin.enableServer=false\n";
    let loaded = Config::from_sources(&Sources {
        zoo_cfg,
        jvmflags: " -Dzookeeper.fips-mode=false -Xmx1024m -Xms1024m -Dzookeeper.electionPortBindRetry=0",
        ..Sources::default()
    })
    .expect("it is a good configuration");
    assert!(loaded.config.four_letter_words.allows(FourLetterWord::Mntr));
    assert_eq!(
        kinds(&loaded),
        [
            "initLimit: ensembles",
            "syncLimit: ensembles",
            "admin.serverAddress: not yet: AdminServer",
            "admin.serverPort: not yet: AdminServer",
            "-Xmx1024m: not needed",
            "-Xms1024m: not needed",
            "zookeeper.fips-mode: not yet: Tls",
            "zookeeper.electionPortBindRetry: ensembles",
        ]
    );
}

#[test]
fn the_file_and_flags_of_kazoos_test_harness_start() {
    let zoo_cfg = "\ntickTime=2000\ndataDir=/tmp/k/data\nclientPort=20000\nsecureClientPort=20004\n\
         maxClientCnxns=0\nadmin.serverPort=20003\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
         ssl.keyStore.location=/tmp/k/keystore.jks\nssl.keyStore.password=apassword\n\
         ssl.trustStore.location=/tmp/k/truststore.jks\nssl.trustStore.password=apassword\n\
         4lw.commands.whitelist=*\nreconfigEnabled=true\nlocalSessionsEnabled=false\n\
         localSessionsUpgradingEnabled=false\n";
    let jvmflags = "-Dfile.encoding=UTF-8 -Dreadonlymode.enabled=true -Dzookeeper.log.dir=/tmp/k/log \
         -Dzookeeper.root.logger=INFO,CONSOLE -Dlog4j.configuration=file:/tmp/k/log4j.properties \
         -Djava.awt.headless=true -Djava.security.auth.login.config=/tmp/k/jaas.conf \
         -Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let loaded = Config::from_sources(&Sources { zoo_cfg, jvmflags, ..Sources::default() })
        .expect("it is a good configuration");
    let config = &loaded.config;
    assert_eq!((config.max_client_cnxns, config.client_address.port), (0, 20000));
    assert_eq!(config.four_letter_words, FourLetterWords::all());
    assert!(config.four_letter_words.allows(FourLetterWord::Isro) && config.reconfig_enabled);
    assert_eq!(
        config.digest_auth.super_digest.as_deref(),
        Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    );
    let text: Vec<_> = loaded.notices.iter().map(ToString::to_string).collect();
    assert!(!text.concat().contains("apassword"), "{text:#?}");
    let loud: Vec<_> = loaded
        .notices
        .iter()
        .filter(|notice| notice.deserves_attention())
        .map(|n| n.key.as_str())
        .collect();
    assert_eq!(
        loud,
        [
            "secureClientPort",
            "admin.serverPort",
            "authProvider.1",
            "ssl.keyStore.location",
            "ssl.keyStore.password",
            "ssl.trustStore.location",
            "ssl.trustStore.password",
            "java.security.auth.login.config",
        ]
    );
}

#[test]
fn built_in_providers_may_be_named() {
    assert_eq!(
        with("authProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider")
            .notices,
        []
    );
    let loaded = with(
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\nauthProvider.2=a.B",
    );
    assert_eq!(
        kinds(&loaded),
        ["authProvider.x509: not yet: Tls", "authProvider.2: not yet: AuthProviders"]
    );
}

#[test]
fn a_problem_names_its_file_line_and_key() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (zoo_cfg, dynamic) = (dir.path().join("zoo.cfg"), dir.path().join("members"));
    let text = format!(
        "dataDir={}\ndynamicConfigFile={}\nclientPort=x\n",
        dir.path().display(),
        dynamic.display()
    );
    std::fs::write(&zoo_cfg, text).expect("written");
    std::fs::write(&dynamic, "server.1=a:2888:3888\nserver.x=b:2888:3888\n").expect("written");
    let error = Config::from_file(&zoo_cfg, "", "").expect_err("two lines are wrong");
    let located = |problem: &Problem| {
        let ProblemKind::Value(error) = problem.kind.clone() else { return None };
        Some((problem.file.clone()?, problem.line()?, problem.key.clone()?, error))
    };
    let found: Vec<_> = error.problems().iter().filter_map(located).collect();
    let port = ValueError::NoPort { value: "x".to_owned() };
    let id = ValueError::NoServerId { id: "x".to_owned() };
    assert_eq!(
        found,
        [(zoo_cfg, 3, "clientPort".to_owned(), port), (dynamic, 2, "server.x".to_owned(), id)],
        "{error}"
    );
}
