//! The order of packets and durable steps: which packets wait for the disk. See
//! `testdata/promises`.

use crate::transcripts::check;

/// ZOOKEEPER-335, 1343.
#[test]
fn an_epoch_is_larger_than_every_promise_and_is_told_only_when_it_is_written_down() {
    check("epoch_above_every_promise.txt");
}

/// ZOOKEEPER-790, 1192, 1270.
#[test]
fn a_leader_synchronizes_only_after_a_quorum_has_promised_and_its_epoch_is_written_down() {
    check("synchronization_after_promises.txt");
}

#[test]
fn a_learner_with_a_longer_history_is_not_led() {
    check("longer_history.txt");
}

#[test]
fn a_promise_repeated_is_not_counted_again() {
    check("repeated_promise.txt");
}

/// ZOOKEEPER-764, 769, 2959.
#[test]
fn observers_are_served_but_never_counted() {
    check("observers.txt");
}

#[test]
fn nothing_is_committed_before_a_quorum_has_it_and_the_leader_counts_only_what_it_has_flushed() {
    check("commit_by_leader_and_follower.txt");
}

#[test]
fn two_followers_commit_even_before_the_leaders_own_disk() {
    check("commit_by_followers.txt");
}

/// ZOOKEEPER-4394, 962.
#[test]
fn a_late_learner_gets_each_proposal_once_and_every_commit() {
    check("late_learner.txt");
}

/// ZOOKEEPER-4685.
#[test]
fn a_proposal_acknowledged_before_newleader_does_not_cost_the_learner() {
    check("early_ack.txt");
}

#[test]
fn a_learner_is_told_to_forget_or_sent_everything() {
    check("diff_trunc_or_snap.txt");
}

#[test]
fn the_last_id_of_an_epoch_ends_it() {
    check("last_zxid_of_an_epoch.txt");
}

/// ZOOKEEPER-3109.
#[test]
fn a_leader_without_followers_steps_down() {
    check("leader_without_followers.txt");
}

/// ZOOKEEPER-3911, 3023, 4646, 4643, 4785.
#[test]
fn a_learner_promises_and_takes_over_only_what_is_durable() {
    check("learner_takes_over_what_is_durable.txt");
}

/// ZOOKEEPER-3642, 5094.
#[test]
fn an_aborted_synchronization_leaves_nothing_behind() {
    check("aborted_synchronization.txt");
}

/// ZOOKEEPER-4712.
#[test]
fn nobody_votes_before_its_writes_have_ended() {
    check("no_vote_before_writes_end.txt");
}

#[test]
fn a_truncation_that_cannot_be_done_ends_in_a_snapshot() {
    check("impossible_truncation.txt");
}

/// ZOOKEEPER-2418, 2846.
#[test]
fn a_hole_in_a_leaders_history_is_not_taken_over() {
    check("gap_in_history.txt");
}

#[test]
fn the_history_of_a_standalone_server_that_used_up_its_counter_has_no_hole() {
    check("history_of_a_standalone_server.txt");
}

#[test]
fn a_leader_of_an_older_epoch_is_left() {
    check("older_epoch.txt");
}

#[test]
fn whoever_does_not_speak_the_protocol_loses_its_connection() {
    check("protocol_violations.txt");
}
