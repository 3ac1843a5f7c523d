//! Programs on simulated clusters: every workload makes progress, and seeded bugs are detected.

use ironkeeper_sim::Layer;
use ironkeeper_sim::broken_rules::{BrokenRule, IN_RECIPES};
use ironkeeper_sim::recipes::{Plan, ProgramBug, Workload, run};

/// Runs a workload with a plan from the seed and checks that operations were completed.
#[track_caller]
fn check(workload: Workload) {
    for seed in 0..2 {
        let plan = Plan { workload, ..Plan::from_seed(seed) };
        match run(seed, plan, false) {
            Ok(report) => assert!(report.operations > 0, "{workload:?} {seed}: {report:?}"),
            Err(failure) => panic!("{workload:?}: {failure}"),
        }
    }
}

#[test]
fn programs_share_locks() {
    check(Workload::Mutex);
    check(Workload::ReadWriteLock);
    check(Workload::Semaphore);
}

#[test]
fn programs_elect_a_leader() {
    check(Workload::Latch);
}

#[test]
fn programs_hand_on_items_and_work() {
    check(Workload::SimpleQueue);
    check(Workload::WorkQueue);
}

#[test]
fn programs_meet_at_barriers() {
    check(Workload::Barrier);
}

#[test]
fn programs_count_and_look_on() {
    check(Workload::Counter);
    check(Workload::Cache);
    check(Workload::Group);
}

/// The bugs that are detected fastest; `cargo xtask sim --broken-rules` checks all of them.
#[test]
fn a_program_with_a_seeded_bug_is_detected() {
    for quick in [ProgramBug::IgnoreLoss, ProgramBug::SkipLook, ProgramBug::PassBarrier] {
        let (rule, from, expected) = IN_RECIPES
            .iter()
            .find(|(rule, ..)| *rule == BrokenRule::Program(quick))
            .expect("all of them are in the list");
        if let Err(what) = rule.find(Layer::Recipes, *from..from + 20, expected) {
            panic!("{what}");
        }
    }
}
