//! Breaks a rule on purpose and sees that somebody notices. A checker that finds nothing here would find
//! nothing elsewhere.

use ironkeeper_sim::Layer;
use ironkeeper_sim::campaign::try_seed;
use ironkeeper_zab::Bug;

/// Runs seeds until one of them fails, and says how.
#[track_caller]
fn check(layer: Layer, bug: Bug, seeds: std::ops::Range<u64>, expected: &[&str]) {
    for seed in seeds.clone() {
        let Err(failure) = try_seed(layer, seed, Some(bug)) else { continue };
        println!("{bug:?}: {failure}");
        // An assertion of the product itself may have seen it first.
        assert!(
            expected.iter().chain(&["assertion"]).any(|kind| failure.what.starts_with(kind)),
            "{bug:?} was noticed for another reason: {failure}"
        );
        return;
    }
    panic!("nobody noticed {bug:?} in the seeds {seeds:?} of {layer}");
}

#[test]
fn an_acknowledgement_before_the_flush_is_noticed() {
    check(Layer::Zab, Bug::AckBeforeFlush, 0..2000, &["durability", "agreement"]);
}

#[test]
fn a_truncation_left_out_is_noticed() {
    check(Layer::Zab, Bug::SkipTrunc, 0..2000, &["agreement", "durability", "order", "progress"]);
}

#[test]
fn a_commit_by_a_minority_is_noticed() {
    check(Layer::Zab, Bug::MinorityCommit, 0..2000, &["durability", "agreement"]);
}

#[test]
fn a_wrong_order_of_votes_is_noticed() {
    check(Layer::Zab, Bug::VoteOrder, 0..2000, &["durability", "agreement", "progress"]);
}

#[test]
fn a_promise_that_is_not_written_down_is_noticed() {
    check(
        Layer::Zab,
        Bug::ForgetAcceptedEpoch,
        0..2000,
        &["leadership", "agreement", "durability", "epochs"],
    );
}

#[test]
fn an_epoch_that_is_not_written_down_is_noticed() {
    check(Layer::Zab, Bug::ForgetCurrentEpoch, 0..2000, &["leadership", "agreement", "durability"]);
}

#[test]
fn a_history_taken_over_too_early_is_noticed() {
    // It takes two losses of power in the right moment: the seeds begin where this happens.
    check(Layer::Zab, Bug::EarlyNewLeaderAck, 3500..6000, &["durability", "agreement", "order"]);
}

#[test]
fn a_tree_that_is_not_where_its_log_is_is_noticed() {
    check(
        Layer::Zab,
        Bug::SkipFastForward,
        0..2000,
        &["agreement", "durability", "order", "progress"],
    );
}
