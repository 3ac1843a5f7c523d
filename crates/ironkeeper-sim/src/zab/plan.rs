//! The parameters of a world.

use ironkeeper_proto::Membership;
use ironkeeper_zab::Settings;

use crate::faults::Faults;
use crate::random::{Random, mix};

/// The parameters of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub membership: Membership,
    pub settings: Settings,
    pub faults: Faults,
    /// The pause between two requests, in microseconds.
    pub load_us: (u64, u64),
    pub latency_us: (u64, u64),
    pub disk_us: (u64, u64),
    /// The duration of the fault phase.
    pub trouble_us: u64,
    /// How many in a thousand requests are followed by a snapshot.
    pub snapshot_per_mille: u64,
    /// The number of servers, including non-members.
    pub servers: u64,
    /// How many in a thousand requests are followed by a reconfiguration.
    pub reconfig_per_mille: u64,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let random = &mut Random::new(mix(seed ^ 0x51a1));
        let voters = random.pick(&[3, 3, 3, 5, 5, 4, 2, 7, 1]).unwrap_or(3);
        let observers = random.pick(&[0, 0, 0, 1, 2]).unwrap_or(0);
        let hierarchical = voters >= 5 && random.chance(200);
        let settings = Settings {
            tick_ms: 200,
            init_limit: random.between(5, 15),
            sync_limit: random.between(3, 6),
            notification_max_ms: 3000,
            history_count_max: random.pick(&[3, 10, 50, 500]).unwrap_or(50) as usize,
            counter_max: random.pick(&[30, 200, u64::from(u32::MAX - 1)]).unwrap_or(200) as u32,
            ..Settings::default()
        };
        let slow_load = random.chance(300);
        let reconfig = !hierarchical && random.chance(300);
        let settings = Settings { reconfig_enabled: reconfig, ..settings };
        let strangers = if reconfig { random.below(3) } else { 0 };
        Plan {
            servers: voters + observers + strangers,
            reconfig_per_mille: if reconfig { random.between(2, 20) } else { 0 },
            membership: membership(voters, observers, hierarchical),
            settings,
            faults: Faults::draw(random),
            load_us: if slow_load { (10_000, 300_000) } else { (1_000, 20_000) },
            latency_us: random
                .pick(&[(100, 2_000), (500, 30_000), (50, 300)])
                .unwrap_or((100, 500)),
            disk_us: random.pick(&[(100, 3_000), (1_000, 30_000)]).unwrap_or((100, 3_000)),
            trouble_us: random.between(5_000_000, 30_000_000),
            snapshot_per_mille: random.pick(&[0, 5, 30]).unwrap_or(5),
        }
    }
}

/// Returns a membership with voters 1 to `voters`, followed by observers.
pub fn membership(voters: u64, observers: u64, hierarchical: bool) -> Membership {
    let mut text = String::new();
    for id in 1..=voters + observers {
        let role = if id <= voters { "participant" } else { "observer" };
        text.push_str(&format!("server.{id}=h{id}:2888:3888:{role}\n"));
        if hierarchical && id <= voters {
            let weight = if id == voters { 0 } else { 1 };
            text.push_str(&format!("weight.{id}={weight}\n"));
        }
    }
    if hierarchical {
        let group = |which: u64| {
            let ids = (1..=voters).filter(|id| id % 2 == which);
            ids.map(|id| id.to_string()).collect::<Vec<_>>().join(":")
        };
        text.push_str(&format!("group.1={}\ngroup.2={}\n", group(0), group(1)));
    }
    Membership::parse(&text).expect("a text of our own making")
}
