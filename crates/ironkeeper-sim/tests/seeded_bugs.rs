//! Breaks a rule on purpose and sees that somebody notices. A checker that finds nothing here would find
//! nothing elsewhere.

use ironkeeper_sim::run_seed;
use ironkeeper_zab::Bug;

/// Runs seeds until one of them fails, and says how.
#[track_caller]
fn check(bug: Bug, seeds: std::ops::Range<u64>, expected: &[&str]) {
    for seed in seeds.clone() {
        let outcome = std::panic::catch_unwind(|| run_seed(seed, Some(bug), false));
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => {
                println!("{bug:?}: {failure}");
                assert!(
                    expected.iter().any(|kind| failure.what.starts_with(kind)),
                    "{bug:?} was noticed for another reason: {failure}"
                );
                return;
            }
            // An assertion of the machine itself has seen it.
            Err(_) => return,
        }
    }
    panic!("nobody noticed {bug:?} in the seeds {seeds:?}");
}

#[test]
fn an_acknowledgement_before_the_flush_is_noticed() {
    check(Bug::AckBeforeFlush, 0..2000, &["durability", "agreement"]);
}

#[test]
fn a_truncation_left_out_is_noticed() {
    check(Bug::SkipTrunc, 0..2000, &["agreement", "durability", "order", "progress"]);
}

#[test]
fn a_commit_by_a_minority_is_noticed() {
    check(Bug::MinorityCommit, 0..2000, &["durability", "agreement"]);
}

#[test]
fn a_wrong_order_of_votes_is_noticed() {
    check(Bug::VoteOrder, 0..2000, &["durability", "agreement", "progress"]);
}

#[test]
fn a_promise_that_is_not_written_down_is_noticed() {
    check(Bug::ForgetAcceptedEpoch, 0..2000, &["leadership", "agreement", "durability", "epochs"]);
}

#[test]
fn an_epoch_that_is_not_written_down_is_noticed() {
    check(Bug::ForgetCurrentEpoch, 0..2000, &["leadership", "agreement", "durability"]);
}

#[test]
fn a_history_taken_over_too_early_is_noticed() {
    // It takes two losses of power in the right moment: the seeds begin where this happens.
    check(Bug::EarlyNewLeaderAck, 3500..6000, &["durability", "agreement", "order"]);
}

#[test]
fn a_tree_that_is_not_where_its_log_is_is_noticed() {
    check(Bug::SkipFastForward, 0..2000, &["agreement", "durability", "order", "progress"]);
}
