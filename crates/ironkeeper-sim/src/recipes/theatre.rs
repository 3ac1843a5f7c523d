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

use super::ledger::SharedLedger;
use super::plan::Plan;
use super::plays;
use super::program::{Program, Stage};
use super::wire::{Ask, Wires};
use crate::outcome::{Failure, Layer, Report};
use crate::random::{Random, mix};
use crate::server::World;

/// The maximal time that programs may take to finish in the recovery phase.
const PROGRESS_US_MAX: u64 = 240_000_000;
/// The maximal time for background deletions.
const TIDY_US_MAX: u64 = 30_000_000;

/// Runs a plan.
pub fn run(seed: u64, plan: Plan, verbose: bool) -> Result<Report, Failure> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without IO needs nothing from the system");
    runtime.block_on(async {
        let mut theatre = Theatre::new(seed, plan, verbose);
        let outcome = theatre.run().await;
        outcome.map_err(|failure| Failure { layer: Layer::Recipes, ..failure })
    })
}

struct Theatre {
    began: Instant,
    world: World,
    stage: Stage,
    tell_over: watch::Sender<bool>,
    random: Random,
    next_reset_us: u64,
}

impl Theatre {
    fn new(seed: u64, plan: Plan, verbose: bool) -> Theatre {
        let (tell_over, is_over) = watch::channel(false);
        let mut world = World::new(seed, plan.servers.clone(), verbose);
        // One more client for the program that makes the final check.
        world.invite(plan.programs + 1);
        let ledger = SharedLedger::new(plan.programs + 1, verbose);
        let mut random = Random::new(mix(seed ^ 0x007e_a74e));
        let next_reset_us = random.between(plan.reset_us.0, plan.reset_us.1);
        let stage = Stage { seed, plan, wires: Wires::default(), ledger, is_over };
        Theatre { began: Instant::now(), world, stage, tell_over, random, next_reset_us }
    }

    async fn run(&mut self) -> Result<Report, Failure> {
        self.world.begin();
        self.world.begin_trouble();
        let mut programs = JoinSet::new();
        for number in 0..self.stage.plan.programs {
            programs.spawn(plays::act(Program::new(number, self.stage.clone())));
        }
        let trouble_us = self.stage.plan.servers.trouble_us;
        let mut at_rest = Vec::new();
        self.go_on(trouble_us, &mut programs, &mut at_rest).await?;
        self.world.heal();
        self.next_reset_us = u64::MAX;
        self.tell_over.send_replace(true);
        self.go_on(PROGRESS_US_MAX, &mut programs, &mut at_rest).await?;
        if at_rest.len() < self.stage.plan.programs {
            return Err(self.stuck(&at_rest));
        }
        self.see_everything(&mut programs).await?;
        self.see_tidy(&at_rest).await?;
        for mut program in at_rest {
            programs.spawn(async move {
                program.close().await;
                program
            });
        }
        self.go_on(PROGRESS_US_MAX, &mut programs, &mut Vec::new()).await?;
        self.world.converge()?;
        let ledger = self.stage.ledger.open();
        let report = self.world.report();
        let trace = mix(report.trace ^ ledger.trace);
        Ok(Report { deeds: ledger.deeds, expired: ledger.losses, trace, ..report })
    }

    /// Advances the time until all programs have finished, or by at most `us_max`.
    async fn go_on(
        &mut self,
        us_max: u64,
        programs: &mut JoinSet<Program>,
        ended: &mut Vec<Program>,
    ) -> Result<(), Failure> {
        let until_us = self.now_us() + us_max;
        let wires = self.stage.wires.clone();
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
                () = wires.asked() => {}
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
            self.trouble_somebody();
        }
        for (line, ask) in self.stage.wires.take_asks() {
            match ask {
                Ask::Dial { program, to } => self.world.guest_dials(program, line, to),
                Ask::Send(bytes) => {
                    self.stage.ledger.open().note_bytes(line, &bytes);
                    self.world.guest_sends(line, bytes);
                }
                Ask::HangUp => self.world.guest_hangs_up(line),
            }
        }
        self.stage.wires.tell(self.world.take_told());
        let mut ledger = self.stage.ledger.open();
        let checked = ledger.holdings.check(&self.world);
        ledger.fail(checked);
        let failure = ledger.take_failure();
        drop(ledger);
        match failure {
            Some(what) => Err(self.failed(what)),
            None => Ok(()),
        }
    }

    /// Resets the connection of a program, or cuts the program off for a longer time.
    fn trouble_somebody(&mut self) {
        let (low, high) = self.stage.plan.reset_us;
        self.next_reset_us = self.now_us() + self.random.between(low, high);
        let program = self.random.below(self.stage.plan.programs as u64) as usize;
        let is_cut_off = self.random.chance(200);
        let what = if is_cut_off { "is cut off" } else { "loses its connection" };
        self.stage.ledger.open().say(program, what.to_owned());
        match is_cut_off {
            true => self.world.cut_off_guest(program),
            false => self.world.reset_guest(program),
        }
    }

    /// Checks the final state with a new program.
    async fn see_everything(&mut self, programs: &mut JoinSet<Program>) -> Result<(), Failure> {
        let judge = Program::new(self.stage.plan.programs, self.stage.clone());
        programs.spawn(async move {
            let mut judge = judge;
            let judged = plays::judge(&mut judge).await;
            judge.ledger().fail(judged);
            judge.close().await;
            judge
        });
        let mut ended = Vec::new();
        self.go_on(PROGRESS_US_MAX, programs, &mut ended).await?;
        if ended.is_empty() {
            return Err(self.failed("progress: nobody can look at the outcome".to_owned()));
        }
        Ok(())
    }

    /// Checks that no ephemeral nodes of released or cancelled requests remain, although the
    /// sessions are alive.
    async fn see_tidy(&mut self, at_rest: &[Program]) -> Result<(), Failure> {
        let sessions: Vec<SessionId> = at_rest
            .iter()
            .filter_map(|program| program.living_client().map(|client| client.session_id()))
            .collect();
        let until_us = self.now_us() + TIDY_US_MAX;
        let mut nobody = JoinSet::from_iter([std::future::pending::<Program>()]);
        loop {
            let left: Vec<String> = match self.world.newest_leader() {
                Some(db) => {
                    let state = db.read();
                    sessions.iter().flat_map(|session| state.tree.ephemerals(*session)).collect()
                }
                None => vec!["nobody leads".to_owned()],
            };
            if left.is_empty() {
                nobody.abort_all();
                return Ok(());
            }
            if self.now_us() >= until_us {
                return Err(self.failed(format!("orphans: nobody needs these any more: {left:?}")));
            }
            self.go_on(500_000, &mut nobody, &mut Vec::new()).await?;
        }
    }

    fn stuck(&self, at_rest: &[Program]) -> Failure {
        let mut lines = "progress: in minutes of peace not all programs came to an end".to_owned();
        for (number, words) in self.stage.ledger.open().last_words.iter().enumerate() {
            let is_at_rest = at_rest.iter().any(|program| program.number == number);
            let what = if is_at_rest { "is at rest" } else { words };
            lines.push_str(&format!("\n  program {number}: {what}"));
        }
        self.failed(lines)
    }

    fn failed(&self, what: String) -> Failure {
        Failure { layer: Layer::Recipes, seed: self.stage.seed, at_us: self.now_us(), what }
    }
}
