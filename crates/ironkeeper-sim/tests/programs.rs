//! Programs on simulated clusters: every workload makes progress, and seeded bugs are detected.

use ironkeeper_sim::Layer;
use ironkeeper_sim::broken_rules::{BrokenRule, IN_RECIPES};
use ironkeeper_sim::recipes::{Misconduct, Plan, Play, run};

/// Runs a workload with a plan from the seed and checks that operations were completed.
#[track_caller]
fn check(play: Play) {
    for seed in 0..2 {
        let plan = Plan { play, ..Plan::from_seed(seed) };
        match run(seed, plan, false) {
            Ok(report) => assert!(report.deeds > 0, "{play:?} {seed}: {report:?}"),
            Err(failure) => panic!("{play:?}: {failure}"),
        }
    }
}

#[test]
fn programs_share_locks() {
    check(Play::Mutex);
    check(Play::ReadWriteLock);
    check(Play::Semaphore);
}

#[test]
fn programs_elect_a_leader() {
    check(Play::Latch);
}

#[test]
fn programs_hand_on_items_and_work() {
    check(Play::SimpleQueue);
    check(Play::WorkQueue);
}

#[test]
fn programs_meet_at_barriers() {
    check(Play::Barrier);
}

#[test]
fn programs_count_and_look_on() {
    check(Play::Counter);
    check(Play::Cache);
    check(Play::Group);
}

/// The bugs that are detected fastest; `cargo xtask sim --broken-rules` checks all of them.
#[test]
fn what_programs_must_not_do_is_noticed() {
    for quick in [Misconduct::IgnoreLoss, Misconduct::SkipLook, Misconduct::PassBarrier] {
        let (rule, from, expected) = IN_RECIPES
            .iter()
            .find(|(rule, ..)| *rule == BrokenRule::Program(quick))
            .expect("all of them are in the list");
        if let Err(what) = rule.find(Layer::Recipes, *from..from + 20, expected) {
            panic!("{what}");
        }
    }
}
