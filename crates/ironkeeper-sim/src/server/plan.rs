//! The parameters of a world of servers.

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::auth::AuthConfig;
use ironkeeper_engine::config::LocalSessions;
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::{Compression, StoreOptions};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::Settings;

use crate::faults::Faults;
use crate::random::{Random, mix};

/// The unit of all timeouts.
const TICK_MS: u64 = 200;

/// The parameters of a world of servers.
#[derive(Clone, Debug)]
pub struct Plan {
    pub membership: Membership,
    pub settings: Settings,
    pub engine: EngineConfig,
    pub store: StoreOptions,
    /// The size above which a new log file is started, if set.
    pub log_file_bytes_max: Option<u64>,
    /// The number of snapshots that a purge keeps.
    pub snapshots_retained: usize,
    /// The number of servers, including non-members.
    pub servers: usize,
    pub clients: usize,
    /// The number of clients that only read, after syncs, so that no reply waits for a write of
    /// their own.
    pub readers: usize,
    /// The number of clients, counted from the last, that accept a server in read-only mode.
    pub read_only_clients: usize,
    /// The number of nodes that clients write and read.
    pub registers: usize,
    pub session_timeout_ms: (u64, u64),
    pub faults: Faults,
    /// The pause of a client between two actions, in microseconds.
    pub load_us: (u64, u64),
    pub latency_us: (u64, u64),
    pub disk_us: (u64, u64),
    /// The duration of the fault phase.
    pub trouble_us: u64,
    /// How many in a thousand requests are reconfigs.
    pub reconfig_per_mille: u64,
    /// How many in a thousand actions of a client start a pause without pings.
    pub silence_per_mille: u64,
    /// How many in a thousand actions of a client are a move to another server.
    pub move_per_mille: u64,
    /// A seeded bug of clients.
    pub client_bug: Option<ClientBug>,
    /// Disks ignore writes that change nothing, so the tail rewrite of recovery does not reach the
    /// medium.
    pub skips_equal_writes: bool,
}

/// A seeded bug of a client. The checkers must detect its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientBug {
    /// Reconnects without its last zxid, so that it may reach a server that is behind it.
    HideZxid,
    /// Reconnects without setting its watches again.
    ForgetWatches,
    /// Treats a plain read as a read after a sync.
    SkipSync,
    /// Uses a longer session timeout than the server granted.
    IgnoreTimeout,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let random = &mut Random::new(mix(seed ^ 0x5e4e4));
        let voters = random.pick(&[3, 3, 3, 5, 5, 4, 2, 1]).unwrap_or(3);
        let observers = random.pick(&[0, 0, 0, 1, 2]).unwrap_or(0);
        let reconfig = random.chance(300);
        let strangers = if reconfig { random.below(3) } else { 0 };
        let faults = Faults::draw(random).with_bad_disks(random);
        let slow_load = random.chance(300);
        let settings = Settings {
            init_limit: random.between(5, 15),
            sync_limit: random.between(3, 6),
            history_count_max: random.pick(&[3, 10, 50, 500]).unwrap_or(50) as usize,
            counter_max: random.pick(&[60, 400, u64::from(u32::MAX - 1)]).unwrap_or(400) as u32,
            ..Plan::calm(voters, observers).settings
        };
        let calm = Plan::calm(voters, observers);
        Plan {
            settings: Settings { reconfig_enabled: reconfig, ..settings },
            engine: EngineConfig {
                reconfig_enabled: reconfig,
                snap_count: random.pick(&[10, 40, 200, 100_000]).unwrap_or(40),
                digest_enabled: random.chance(900),
                tree: TreeConfig { hash_seed: seed, ..TreeConfig::default() },
                ..calm.engine
            },
            store: StoreOptions {
                prealloc_bytes: random.pick(&[0, 4 << 10, 16 << 10]).unwrap_or(0),
                compression: random
                    .pick(&[Compression::None, Compression::Gzip, Compression::Snappy])
                    .unwrap_or(Compression::None),
                ..calm.store
            },
            log_file_bytes_max: random.pick(&[None, Some(2 << 10), Some(16 << 10)]).flatten(),
            snapshots_retained: random.between(1, 3) as usize,
            servers: (voters + observers + strangers) as usize,
            clients: random.between(2, 6) as usize,
            registers: random.between(1, 4) as usize,
            faults,
            load_us: if slow_load { (10_000, 200_000) } else { (2_000, 40_000) },
            latency_us: random
                .pick(&[(100, 2_000), (500, 30_000), (50, 300)])
                .unwrap_or((100, 500)),
            disk_us: random.pick(&[(100, 3_000), (1_000, 30_000)]).unwrap_or((100, 3_000)),
            trouble_us: random.between(3_000_000, 15_000_000),
            reconfig_per_mille: if reconfig { random.between(5, 30) } else { 0 },
            silence_per_mille: random.pick(&[0, 2, 10]).unwrap_or(2),
            move_per_mille: random.pick(&[2, 20, 150]).unwrap_or(2),
            readers: random.pick(&[0, 0, 1, 2]).unwrap_or(0),
            ..calm
        }
        .with_other_sessions(random)
    }

    /// Adds, for some seeds, local sessions and read-only mode.
    fn with_other_sessions(mut self, random: &mut Random) -> Plan {
        self.engine.local_sessions = random
            .pick(&[
                LocalSessions::Off,
                LocalSessions::Off,
                LocalSessions::On,
                LocalSessions::Upgrading,
                LocalSessions::Upgrading,
            ])
            .unwrap_or(LocalSessions::Off);
        self.engine.read_only_enabled = random.chance(400);
        if self.engine.read_only_enabled {
            self.read_only_clients = random.between(1, 3) as usize;
        }
        self
    }

    /// Returns the plan of a cluster without faults.
    pub fn calm(voters: u64, observers: u64) -> Plan {
        Plan {
            membership: membership(voters, observers),
            settings: Settings {
                tick_ms: TICK_MS,
                notification_max_ms: 3000,
                ..Settings::default()
            },
            engine: EngineConfig {
                tick_ms: TICK_MS,
                session_timeout_min_ms: 2 * TICK_MS as i32,
                session_timeout_max_ms: 60_000,
                auth: AuthConfig { skip_acl: true, ..AuthConfig::default() },
                ..EngineConfig::default()
            },
            store: StoreOptions { prealloc_bytes: 4 << 10, ..StoreOptions::default() },
            log_file_bytes_max: None,
            snapshots_retained: 3,
            servers: (voters + observers) as usize,
            clients: 2,
            readers: 0,
            read_only_clients: 0,
            registers: 2,
            session_timeout_ms: (1_000, 6_000),
            faults: Faults::none(),
            load_us: (2_000, 20_000),
            latency_us: (100, 2_000),
            disk_us: (100, 2_000),
            trouble_us: 0,
            reconfig_per_mille: 0,
            silence_per_mille: 0,
            move_per_mille: 0,
            client_bug: None,
            skips_equal_writes: false,
        }
    }

    /// Adds a seeded bug of clients.
    pub fn with_client_bug(mut self, bug: ClientBug) -> Plan {
        self.client_bug = Some(bug);
        if bug == ClientBug::IgnoreTimeout {
            self.engine.session_timeout_max_ms = self.engine.session_timeout_min_ms;
        }
        self
    }

    /// Returns the configuration of one server.
    pub fn engine_of(&self, id: ServerId) -> EngineConfig {
        EngineConfig { server_id: id.0 as u8, ..self.engine.clone() }
    }
}

/// Returns the value of a server's line in the membership.
pub fn member_line(id: u64, role: &str) -> String {
    format!("h{id}:2888:3888:{role};h{id}:2181")
}

/// Returns a membership with voters 1 to `voters`, followed by observers.
fn membership(voters: u64, observers: u64) -> Membership {
    let lines = (1..=voters + observers).map(|id| {
        let role = if id <= voters { "participant" } else { "observer" };
        format!("server.{id}={}\n", member_line(id, role))
    });
    Membership::parse(&lines.collect::<String>()).expect("a text of our own making")
}
