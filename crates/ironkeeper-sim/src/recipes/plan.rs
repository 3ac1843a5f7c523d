//! The parameters of a world of programs.

use ironkeeper_engine::config::LocalSessions;

use super::workloads::Workload;
use crate::faults::Faults;
use crate::random::{Random, mix};
use crate::server;

/// The parameters of a world of programs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub servers: server::Plan,
    pub workload: Workload,
    pub programs: usize,
    pub session_timeout_ms: (u64, u64),
    /// The pause between two faults of programs' connections, in microseconds.
    pub reset_us: (u64, u64),
    /// How many in a thousand rounds of a program end with the end of its process.
    pub crash_per_mille: u64,
    /// How many in a thousand waits are cancelled.
    pub give_up_per_mille: u64,
    /// How long programs keep what they hold, in milliseconds.
    pub hold_ms: (u64, u64),
    /// Whether an operator deletes nodes.
    pub has_operator: bool,
    pub program_bug: Option<ProgramBug>,
}

/// A seeded bug of a program. The checkers must detect its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramBug {
    /// Continues with a lock although its guard reports the loss.
    IgnoreLoss,
    /// Writes under a lock without making the write conditional on it.
    WriteUnfenced,
    /// Enqueues a contender and assumes that it is the first without checking.
    SkipLook,
    /// Takes an item out of the work queue before the work is done.
    DoneBeforeWork,
    /// Repeats an operation that may have been applied.
    RepeatInDoubt,
    /// Continues when a barrier takes too long.
    PassBarrier,
}

impl ProgramBug {
    /// Returns the workload in which the bug can be detected.
    fn workload(self) -> Workload {
        match self {
            ProgramBug::IgnoreLoss | ProgramBug::WriteUnfenced | ProgramBug::SkipLook => {
                Workload::Mutex
            }
            ProgramBug::DoneBeforeWork => Workload::WorkQueue,
            ProgramBug::RepeatInDoubt => Workload::Counter,
            ProgramBug::PassBarrier => Workload::Barrier,
        }
    }
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let random = &mut Random::new(mix(seed ^ 0x04ec_19e5));
        let mut drawn = server::Plan::from_seed(seed);
        if drawn.engine.local_sessions == LocalSessions::On {
            // Recipes need ephemeral nodes.
            drawn.engine.local_sessions = LocalSessions::Upgrading;
        }
        let mut faults = drawn.faults.clone();
        // Programs need a cluster that is available some of the time.
        faults.pause_us = random
            .pick(&[(100_000, 1_500_000), (300_000, 4_000_000), (1_500_000, 10_000_000)])
            .unwrap_or((300_000, 3_000_000));
        if random.chance(100) {
            faults = Faults::none();
        }
        let is_small = random.chance(700);
        Plan {
            servers: server::Plan {
                faults,
                clients: 0,
                readers: 0,
                registers: 0,
                // No program requests a reconfiguration.
                reconfig_per_mille: 0,
                trouble_us: random.between(8_000_000, 40_000_000),
                ..drawn
            },
            workload: random.pick(Workload::ALL).unwrap_or(Workload::Mutex),
            programs: random.between(2, if is_small { 4 } else { 8 }) as usize,
            session_timeout_ms: random
                .pick(&[(4_000, 6_000), (6_000, 12_000)])
                .unwrap_or((6_000, 9_000)),
            reset_us: random
                .pick(&[
                    (100_000, 3_000_000),
                    (1_000_000, 20_000_000),
                    (u64::MAX / 4, u64::MAX / 4),
                ])
                .unwrap_or((1_000_000, 20_000_000)),
            crash_per_mille: random.pick(&[0, 20, 100]).unwrap_or(0),
            give_up_per_mille: random.pick(&[0, 100, 400]).unwrap_or(0),
            hold_ms: random.pick(&[(0, 20), (10, 800), (500, 4_000)]).unwrap_or((10, 800)),
            has_operator: random.chance(200),
            program_bug: None,
        }
    }

    /// Adds a seeded bug and selects the workload in which it can be detected.
    pub fn with_program_bug(self, bug: ProgramBug) -> Plan {
        let is_lost = matches!(bug, ProgramBug::IgnoreLoss | ProgramBug::WriteUnfenced);
        Plan {
            workload: bug.workload(),
            has_operator: self.has_operator || is_lost,
            hold_ms: if is_lost { (1_000, 20_000) } else { self.hold_ms },
            crash_per_mille: self.crash_per_mille.max(20),
            program_bug: Some(bug),
            ..self
        }
    }
}
