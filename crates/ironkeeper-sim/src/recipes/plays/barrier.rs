//! Double barriers, one after the other: nobody goes on before as many have come as there have to be, and
//! nobody is through with leaving while somebody is inside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironkeeper_recipes::barrier::{DoubleBarrier, Membership};

use crate::recipes::plan::Misconduct;
use crate::recipes::program::{Program, Waited};

/// Within so much time the node of one who has dropped its wait is gone, or its session is.
const LINGER_US: u64 = 40_000_000;

#[derive(Debug, Default)]
pub struct Record {
    rounds: Vec<Round>,
    /// The round after which everybody stops.
    last: Option<usize>,
}

#[derive(Debug, Default)]
struct Round {
    /// From when until when somebody's node may have been there.
    attempts: Vec<(u64, Option<u64>)>,
    inside: BTreeSet<usize>,
    /// Who was inside when somebody began to leave that is through with leaving, and who that is.
    left_behind: BTreeMap<usize, usize>,
    has_passed: bool,
}

impl Round {
    /// How many may have been there at once until now.
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

pub async fn act(program: &mut Program) {
    let mut round = 0;
    loop {
        if program.is_over() {
            let mut ledger = program.ledger();
            let record = &mut ledger.records.barrier;
            let latest = record.rounds.len().saturating_sub(1);
            let last = *record.last.get_or_insert(latest);
            if round > last || record.round(round).has_passed && round == last {
                return;
            }
        }
        program.pause_ms((0, 300)).await;
        if take_part(program, round).await
            || program.ledger().records.barrier.round(round).has_passed
        {
            round += 1;
        }
    }
}

/// Says whether it has passed and left.
async fn take_part(program: &mut Program, round: usize) -> bool {
    let client = program.client().await;
    let size = program.stage.plan.programs;
    let barrier = DoubleBarrier::new(&client, format!("/barriers/{round}"), size);
    let barrier = barrier.expect("there is somebody");
    let attempt = {
        let mut ledger = program.ledger();
        let now_us = ledger.now_us();
        let attempts = &mut ledger.records.barrier.round(round).attempts;
        attempts.push((now_us, None));
        attempts.len() - 1
    };
    program.say(format!("comes to barrier {round}"));
    let patience = Duration::from_millis(program.random.between(1_000, 6_000));
    let entered = program.wait("enter", barrier.enter_within(patience)).await;
    let passes = match &entered {
        Waited::Got(inside) => inside.is_some() || program.has_misconduct(Misconduct::PassBarrier),
        _ => false,
    };
    if passes {
        program.say(format!("is inside of barrier {round}"));
        let mut ledger = program.ledger();
        let this = ledger.records.barrier.round(round);
        this.has_passed = true;
        this.inside.insert(program.number);
        let crowd = this.largest_crowd();
        ledger.deeds += 1;
        if crowd < size {
            let who = program.number;
            let what =
                format!("barrier: program {who} went on with {crowd} of {size} in round {round}");
            ledger.fail(Err(what));
        }
    }
    if let Waited::Got(Some(inside)) = entered {
        program.pause_ms(program.stage.plan.hold_ms).await;
        see_who_left(program, &inside, round).await;
        let crashes = program.shall_crash();
        let others = {
            let mut ledger = program.ledger();
            let inside = &mut ledger.records.barrier.round(round).inside;
            inside.remove(&program.number);
            inside.clone()
        };
        if crashes {
            program.crash();
        } else {
            program.say(format!("leaves barrier {round}"));
            if let Waited::Got(()) = program.wait("leave", inside.leave()).await {
                program.say(format!("has left barrier {round}"));
                let mut ledger = program.ledger();
                let this = ledger.records.barrier.round(round);
                let late = others.intersection(&this.inside).copied();
                this.left_behind.extend(late.map(|late| (late, program.number)));
            }
        }
    }
    let mut ledger = program.ledger();
    let until_us = ledger.now_us() + LINGER_US;
    let this = ledger.records.barrier.round(round);
    this.inside.remove(&program.number);
    this.attempts[attempt].1 = Some(until_us);
    passes
}

/// Whoever is inside, as the servers say, was waited for by all who began to leave meanwhile.
async fn see_who_left(program: &mut Program, inside: &Membership, round: usize) {
    let number = program.number;
    let left = program.ledger().records.barrier.round(round).left_behind.get(&number).copied();
    let Some(left) = left else { return };
    if let Waited::Got(true) = program.wait_long("look around", inside.guard().check()).await {
        let what =
            format!("barrier: program {left} has left, and program {number} is inside still");
        program.ledger().fail(Err(what));
    }
}
