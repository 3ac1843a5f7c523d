//! The runner: programs and the world in one thread, on one clock.
//!
//! The programs are tasks of a runtime with a paused clock. When all tasks are idle, the clock
//! advances to the next timer. The world's next event is such a timer, rounded up to the
//! millisecond resolution of the runtime. So the world's microseconds and the time of the programs
//! agree, and the seed determines the order of all events.

use std::time::Duration;

use ironkeeper_client::SessionId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::observations::SharedObservations;
use super::plan::Plan;
use super::program::{Program, RunContext};
use super::wire::{Action, Wires};
use super::workloads;
use crate::outcome::{Failure, Layer, Report};
use crate::random::{Random, mix};
use crate::server::World;

/// The maximal time that programs may take to finish in the recovery phase.
const PROGRESS_US_MAX: u64 = 240_000_000;
/// The maximal time for background deletions.
const CLEANUP_US_MAX: u64 = 30_000_000;

/// Runs a plan.
pub fn run(seed: u64, plan: Plan, verbose: bool) -> Result<Report, Failure> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without IO needs nothing from the system");
    runtime.block_on(async {
        let mut runner = Runner::new(seed, plan, verbose);
        let outcome = runner.run().await;
        outcome.map_err(|failure| Failure { layer: Layer::Recipes, ..failure })
    })
}

struct Runner {
    began: Instant,
    world: World,
    context: RunContext,
    end_faults: watch::Sender<bool>,
    random: Random,
    next_reset_us: u64,
}

impl Runner {
    fn new(seed: u64, plan: Plan, verbose: bool) -> Runner {
        let (end_faults, must_finish) = watch::channel(false);
        let mut world = World::new(seed, plan.servers.clone(), verbose);
        // One more client for the program that makes the final check.
        world.invite(plan.programs + 1);
        let observations = SharedObservations::new(plan.programs + 1, verbose);
        let mut random = Random::new(mix(seed ^ 0x007e_a74e));
        let next_reset_us = random.between(plan.reset_us.0, plan.reset_us.1);
        let context = RunContext { seed, plan, wires: Wires::default(), observations, must_finish };
        Runner { began: Instant::now(), world, context, end_faults, random, next_reset_us }
    }

    async fn run(&mut self) -> Result<Report, Failure> {
        self.world.begin();
        self.world.begin_trouble();
        let mut programs = JoinSet::new();
        for number in 0..self.context.plan.programs {
            programs.spawn(workloads::run(Program::new(number, self.context.clone())));
        }
        let trouble_us = self.context.plan.servers.trouble_us;
        let mut finished = Vec::new();
        self.run_for(trouble_us, &mut programs, &mut finished).await?;
        self.world.heal();
        self.next_reset_us = u64::MAX;
        self.end_faults.send_replace(true);
        self.run_for(PROGRESS_US_MAX, &mut programs, &mut finished).await?;
        if finished.len() < self.context.plan.programs {
            return Err(self.stuck(&finished));
        }
        self.check_final_state(&mut programs).await?;
        self.check_no_orphans(&finished).await?;
        for mut program in finished {
            programs.spawn(async move {
                program.close().await;
                program
            });
        }
        self.run_for(PROGRESS_US_MAX, &mut programs, &mut Vec::new()).await?;
        self.world.converge()?;
        let observations = self.context.observations.open();
        let report = self.world.report();
        let trace = mix(report.trace ^ observations.trace);
        Ok(Report {
            operations: observations.operations,
            expired: observations.losses,
            trace,
            ..report
        })
    }

    /// Advances the time until all programs have finished, or by at most `us_max`.
    async fn run_for(
        &mut self,
        us_max: u64,
        programs: &mut JoinSet<Program>,
        ended: &mut Vec<Program>,
    ) -> Result<(), Failure> {
        let until_us = self.now_us() + us_max;
        let wires = self.context.wires.clone();
        loop {
            self.advance()?;
            let now_us = self.now_us();
            if now_us >= until_us || programs.is_empty() {
                return Ok(());
            }
            let next_us =
                self.world.next_us().unwrap_or(u64::MAX).min(self.next_reset_us).min(until_us);
            // The clock always advances while there is something to wait for.
            let next = self.began + Duration::from_micros(next_us.max(now_us + 1));
            tokio::select! {
                biased;
                Some(program) = programs.join_next() => match program {
                    Ok(program) => ended.push(program),
                    Err(panic) => return Err(self.failed(format!("assertion: {panic}"))),
                },
                () = wires.acted() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Advances the world to the current time, exchanges connection events with the programs, and
    /// checks all holds.
    fn advance(&mut self) -> Result<(), Failure> {
        let now_us = self.now_us();
        self.world.run_for(now_us - self.world.now_us())?;
        if now_us >= self.next_reset_us {
            self.inject_fault();
        }
        for (line, action) in self.context.wires.take_actions() {
            match action {
                Action::Dial { program, to } => self.world.guest_dials(program, line, to),
                Action::Send(bytes) => {
                    self.context.observations.open().note_bytes(line, &bytes);
                    self.world.guest_sends(line, bytes);
                }
                Action::HangUp => self.world.guest_hangs_up(line),
            }
        }
        self.context.wires.tell(self.world.take_told());
        let mut observations = self.context.observations.open();
        let checked = observations.claimed_holds.check(&self.world);
        observations.fail(checked);
        let failure = observations.take_failure();
        drop(observations);
        match failure {
            Some(what) => Err(self.failed(what)),
            None => Ok(()),
        }
    }

    /// Resets the connection of a program, or cuts the program off for a longer time.
    fn inject_fault(&mut self) {
        let (low, high) = self.context.plan.reset_us;
        self.next_reset_us = self.now_us() + self.random.between(low, high);
        let program = self.random.below(self.context.plan.programs as u64) as usize;
        let is_cut_off = self.random.chance(200);
        let what = if is_cut_off { "is cut off" } else { "loses its connection" };
        self.context.observations.open().log(program, what.to_owned());
        match is_cut_off {
            true => self.world.cut_off_guest(program),
            false => self.world.reset_guest(program),
        }
    }

    /// Checks the final state with a new program.
    async fn check_final_state(&mut self, programs: &mut JoinSet<Program>) -> Result<(), Failure> {
        let check = Program::new(self.context.plan.programs, self.context.clone());
        programs.spawn(async move {
            let mut check = check;
            let judged = workloads::check(&mut check).await;
            check.observations().fail(judged);
            check.close().await;
            check
        });
        let mut ended = Vec::new();
        self.run_for(PROGRESS_US_MAX, programs, &mut ended).await?;
        if ended.is_empty() {
            return Err(self.failed("progress: no program can check the final state".to_owned()));
        }
        Ok(())
    }

    /// Checks that no ephemeral nodes of released or cancelled requests remain, although the
    /// sessions are alive.
    async fn check_no_orphans(&mut self, finished: &[Program]) -> Result<(), Failure> {
        let sessions: Vec<SessionId> = finished
            .iter()
            .filter_map(|program| program.live_client().map(|client| client.session_id()))
            .collect();
        let until_us = self.now_us() + CLEANUP_US_MAX;
        let mut idle = JoinSet::from_iter([std::future::pending::<Program>()]);
        loop {
            let left: Vec<String> = match self.world.newest_leader() {
                Some(db) => {
                    let state = db.read();
                    sessions.iter().flat_map(|session| state.tree.ephemerals(*session)).collect()
                }
                None => vec!["there is no leader".to_owned()],
            };
            if left.is_empty() {
                idle.abort_all();
                return Ok(());
            }
            if self.now_us() >= until_us {
                return Err(self.failed(format!("orphans: no request needs these nodes: {left:?}")));
            }
            self.run_for(500_000, &mut idle, &mut Vec::new()).await?;
        }
    }

    fn stuck(&self, finished: &[Program]) -> Failure {
        let mut lines = "progress: not all programs finished in the recovery phase".to_owned();
        for (number, words) in self.context.observations.open().last_lines.iter().enumerate() {
            let has_finished = finished.iter().any(|program| program.number == number);
            let what = if has_finished { "has finished" } else { words };
            lines.push_str(&format!("\n  program {number}: {what}"));
        }
        self.failed(lines)
    }

    fn failed(&self, what: String) -> Failure {
        Failure { layer: Layer::Recipes, seed: self.context.seed, at_us: self.now_us(), what }
    }
}
