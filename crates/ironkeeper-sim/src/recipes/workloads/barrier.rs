//! A sequence of double barriers: no program passes before the required number of programs has
//! come, and no `leave` completes while another program is inside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironkeeper_recipes::barrier::{DoubleBarrier, Membership};

use crate::recipes::plan::ProgramBug;
use crate::recipes::program::{Program, Waited};

/// The time within which the node of a program that dropped its wait is deleted, or its session is
/// over.
const LINGER_US: u64 = 40_000_000;

#[derive(Debug, Default)]
pub struct Record {
    rounds: Vec<Round>,
    /// The last round of the run.
    last: Option<usize>,
}

#[derive(Debug, Default)]
struct Round {
    /// The intervals in which a program's node may have existed.
    attempts: Vec<(u64, Option<u64>)>,
    inside: BTreeSet<usize>,
    /// Programs that were inside from the start to the end of another program's `leave`, each with
    /// the number of that other program.
    left_behind: BTreeMap<usize, usize>,
    has_passed: bool,
}

impl Round {
    /// Returns the largest number of nodes that may have existed at the same time.
    fn largest_crowd(&self) -> usize {
        let at = |moment: u64| {
            let is_there = |(from, until): &&(u64, Option<u64>)| {
                *from <= moment && until.is_none_or(|until| moment <= until)
            };
            self.attempts.iter().filter(is_there).count()
        };
        self.attempts.iter().map(|(from, _)| at(*from)).max().unwrap_or(0)
    }
}

impl Record {
    fn round(&mut self, number: usize) -> &mut Round {
        if self.rounds.len() <= number {
            self.rounds.resize_with(number + 1, Round::default);
        }
        &mut self.rounds[number]
    }
}

pub async fn run(program: &mut Program) {
    let mut round = 0;
    loop {
        if program.must_finish() {
            let mut observations = program.observations();
            let record = &mut observations.records.barrier;
            let latest = record.rounds.len().saturating_sub(1);
            let last = *record.last.get_or_insert(latest);
            if round > last || record.round(round).has_passed && round == last {
                return;
            }
        }
        program.pause_ms((0, 300)).await;
        if take_part(program, round).await
            || program.observations().records.barrier.round(round).has_passed
        {
            round += 1;
        }
    }
}

/// Runs one round. Returns whether the program has passed the barrier.
async fn take_part(program: &mut Program, round: usize) -> bool {
    let client = program.client().await;
    let size = program.context.plan.programs;
    let barrier = DoubleBarrier::new(&client, format!("/barriers/{round}"), size);
    let barrier = barrier.expect("the barrier has at least one member");
    let attempt = {
        let mut observations = program.observations();
        let now_us = observations.now_us();
        let attempts = &mut observations.records.barrier.round(round).attempts;
        attempts.push((now_us, None));
        attempts.len() - 1
    };
    program.log(format!("comes to barrier {round}"));
    let patience = Duration::from_millis(program.random.between(1_000, 6_000));
    let entered = program.wait("enter", barrier.enter_within(patience)).await;
    let passes = match &entered {
        Waited::Got(inside) => inside.is_some() || program.has_bug(ProgramBug::PassBarrier),
        _ => false,
    };
    if passes {
        program.log(format!("is inside of barrier {round}"));
        let mut observations = program.observations();
        let this = observations.records.barrier.round(round);
        this.has_passed = true;
        this.inside.insert(program.number);
        let crowd = this.largest_crowd();
        observations.operations += 1;
        if crowd < size {
            let who = program.number;
            let what =
                format!("barrier: program {who} went on with {crowd} of {size} in round {round}");
            observations.fail(Err(what));
        }
    }
    if let Waited::Got(Some(inside)) = entered {
        program.pause_ms(program.context.plan.hold_ms).await;
        see_who_left(program, &inside, round).await;
        let crashes = program.draws_crash();
        let others = {
            let mut observations = program.observations();
            let inside = &mut observations.records.barrier.round(round).inside;
            inside.remove(&program.number);
            inside.clone()
        };
        if crashes {
            program.crash();
        } else {
            program.log(format!("leaves barrier {round}"));
            if let Waited::Got(()) = program.wait("leave", inside.leave()).await {
                program.log(format!("has left barrier {round}"));
                let mut observations = program.observations();
                let this = observations.records.barrier.round(round);
                let late = others.intersection(&this.inside).copied();
                this.left_behind.extend(late.map(|late| (late, program.number)));
            }
        }
    }
    let mut observations = program.observations();
    let until_us = observations.now_us() + LINGER_US;
    let this = observations.records.barrier.round(round);
    this.inside.remove(&program.number);
    this.attempts[attempt].1 = Some(until_us);
    passes
}

/// Reports a failure if this program is inside according to the servers, although another program's
/// `leave` has completed that had to wait for it.
async fn see_who_left(program: &mut Program, inside: &Membership, round: usize) {
    let number = program.number;
    let left =
        program.observations().records.barrier.round(round).left_behind.get(&number).copied();
    let Some(left) = left else { return };
    if let Waited::Got(true) = program.wait_long("look around", inside.guard().check()).await {
        let what =
            format!("barrier: program {left} has left, and program {number} is inside still");
        program.observations().fail(Err(what));
    }
}
