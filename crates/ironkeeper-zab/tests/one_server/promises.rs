//! The order of packets and durable steps: which packets wait for the disk.

use ironkeeper_proto::quorum_packet::PROTOCOL_VERSION;
use ironkeeper_proto::{Epoch, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, Port, Settings};

use crate::server::*;

/// ZOOKEEPER-335, 1343.
#[test]
fn an_epoch_is_larger_than_every_promise_and_is_told_only_when_it_is_written_down() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    // An observer's acceptedEpoch counts for the number of the epoch, but not for the quorum.
    let (_, said) = leader.greet(4, 6);
    assert_eq!(said, "");
    let (_, said) = leader.greet(1, 2);
    assert_eq!(said, "accepted=7");
    let said = leader.done(Durable::AcceptedEpoch(Epoch(7)));
    assert_eq!(said, "LEADERINFO 7, LEADERINFO 7");
    // A learner that connects later receives the epoch at once.
    let (two, said) = leader.greet(2, 5);
    assert_eq!(said, "LEADERINFO 7");
    leader.input(Input::Closed { link: two });
    // A voter with a larger acceptedEpoch can follow only in a new epoch.
    let (_, said) = leader.greet(2, 9);
    assert_eq!(said, "hangup RoleEnded, hangup RoleEnded, hangup RoleEnded, [Looking]");
    leader.round = 2;
    let mut leader = leader.elected(2, 1);
    assert_eq!(leader.greet(1, 7).1, "accepted=10");
}

/// ZOOKEEPER-790, 1192, 1270.
#[test]
fn a_leader_synchronizes_only_after_a_quorum_has_promised_and_its_epoch_is_written_down() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    let said = leader.packet(one, Packet::AckEpoch { last: z(1, 1), current: Some(Epoch(1)) });
    assert_eq!(said, "current=2");
    let said = leader.done(Durable::CurrentEpoch(Epoch(2)));
    assert_eq!(said, "DIFF 1:2, PROPOSAL 1:2, COMMIT 1:2, NEWLEADER 2");
    let said = leader.packet(one, Packet::Ack { zxid: z(2, 0) });
    assert_eq!(said, "[Leading { epoch: Epoch(2) }], UPTODATE");
}

#[test]
fn a_learner_with_a_longer_history_is_not_led() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    let said = leader.packet(one, Packet::AckEpoch { last: z(1, 3), current: Some(Epoch(1)) });
    assert_eq!(said, "hangup LearnerAhead");
}

#[test]
fn a_promise_repeated_is_not_counted_again() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    let said = leader.packet(one, Packet::AckEpoch { last: z(1, 2), current: None });
    assert_eq!(said, "");
}

/// ZOOKEEPER-764, 769, 2959.
#[test]
fn observers_are_served_but_never_counted() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (observer, said) = leader.greet(4, 1);
    assert_eq!(said, "");
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    let ack = Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) };
    assert_eq!(leader.packet(observer, ack.clone()), "");
    assert_eq!(leader.packet(one, ack), "current=2");
    leader.done(Durable::CurrentEpoch(Epoch(2)));
    assert_eq!(leader.packet(observer, Packet::Ack { zxid: z(2, 0) }), "");
    let said = leader.packet(one, Packet::Ack { zxid: z(2, 0) });
    assert_eq!(said, "[Leading { epoch: Epoch(2) }], UPTODATE, UPTODATE");
}

#[test]
fn nothing_is_committed_before_a_quorum_has_it_and_the_leader_counts_only_what_it_has_flushed() {
    let (mut leader, one, _) = established();
    let zxid = z(3, 1);
    assert_eq!(leader.propose(zxid), "PROPOSAL 3:1, PROPOSAL 3:1, append 3:1");
    assert_eq!(leader.packet(one, Packet::Ack { zxid }), "");
    assert_eq!(leader.done(Durable::Flushed(zxid)), "commit 3:1, COMMIT 3:1, COMMIT 3:1");
}

#[test]
fn two_followers_commit_even_before_the_leaders_own_disk() {
    let (mut leader, one, two) = established();
    let zxid = z(3, 1);
    leader.propose(zxid);
    assert_eq!(leader.packet(one, Packet::Ack { zxid }), "");
    let said = leader.packet(two, Packet::Ack { zxid });
    assert_eq!(said, "commit 3:1, COMMIT 3:1, COMMIT 3:1");
    // Repeated, unknown and future ACKs have no effect.
    assert_eq!(leader.packet(two, Packet::Ack { zxid }), "");
    assert_eq!(leader.packet(two, Packet::Ack { zxid: z(3, 9) }), "");
}

/// ZOOKEEPER-4394, 962.
#[test]
fn a_late_learner_gets_each_proposal_once_and_every_commit() {
    let (mut leader, one, _) = established();
    leader.propose(z(3, 1));
    let (observer, said) = leader.greet(4, 1);
    assert_eq!(said, "LEADERINFO 3");
    let ack = Packet::AckEpoch { last: z(1, 1), current: Some(Epoch(1)) };
    let said = leader.packet(observer, ack);
    assert_eq!(said, "DIFF 1:2, PROPOSAL 1:2, COMMIT 1:2, NEWLEADER 3");
    // The observer is not up to date yet, but receives the commit.
    leader.packet(one, Packet::Ack { zxid: z(3, 1) });
    let said = leader.done(Durable::Flushed(z(3, 1)));
    assert_eq!(said, "commit 3:1, COMMIT 3:1, COMMIT 3:1, INFORM 3:1");
    // A follower reconnects: outstanding transactions are proposed to it again, after the history.
    leader.propose(z(3, 2));
    leader.input(Input::Closed { link: one });
    assert_eq!(leader.greet(1, 3).1, "LEADERINFO 3");
    let back = LinkId(leader.links);
    let said = leader.packet(back, Packet::AckEpoch { last: z(1, 2), current: None });
    assert_eq!(said, "DIFF 3:1, PROPOSAL 3:1, COMMIT 3:1, PROPOSAL 3:2, NEWLEADER 3");
}

/// ZOOKEEPER-4685.
#[test]
fn a_proposal_acknowledged_before_newleader_does_not_cost_the_learner() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    leader.packet(one, Packet::AckEpoch { last: z(1, 1), current: Some(Epoch(1)) });
    leader.done(Durable::CurrentEpoch(Epoch(2)));
    assert_eq!(leader.packet(one, Packet::Ack { zxid: z(1, 2) }), "");
    let said = leader.packet(one, Packet::Ack { zxid: z(2, 0) });
    assert_eq!(said, "[Leading { epoch: Epoch(2) }], UPTODATE");
}

#[test]
fn a_learner_is_told_to_forget_or_sent_everything() {
    for (last, expected) in [
        (z(1, 5), "TRUNC 1:2, NEWLEADER 2"),
        (z(2, 0), "SNAP 1:2, tree 1:2, NEWLEADER 2"),
        (z(0, 7), "SNAP 1:2, tree 1:2, NEWLEADER 2"),
        (z(1, 2), "DIFF 1:2, NEWLEADER 2"),
    ] {
        let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
        let (one, _) = leader.greet(1, 1);
        let (two, _) = leader.greet(2, 1);
        leader.done(Durable::AcceptedEpoch(Epoch(2)));
        leader.packet(one, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) });
        leader.done(Durable::CurrentEpoch(Epoch(2)));
        let said = leader.packet(two, Packet::AckEpoch { last, current: None });
        assert_eq!(said, expected, "{last}");
    }
}

#[test]
fn the_last_id_of_an_epoch_ends_it() {
    let settings = Settings { counter_max: 1, ..Settings::default() };
    let mut leader = Server::with(3, 2, 1, 1, settings).elected(2, 1);
    let (one, _) = leader.greet(1, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    leader.packet(one, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) });
    leader.done(Durable::CurrentEpoch(Epoch(2)));
    leader.packet(one, Packet::Ack { zxid: z(2, 0) });
    assert!(leader.zab.accepts_proposals());
    leader.propose(z(2, 1));
    assert!(!leader.zab.accepts_proposals(), "the counter must not walk into the epoch");
    leader.packet(one, Packet::Ack { zxid: z(2, 1) });
    let said = leader.done(Durable::Flushed(z(2, 1)));
    assert_eq!(said, "commit 2:1, COMMIT 2:1, hangup RoleEnded, [Looking]");
}

/// ZOOKEEPER-3109.
#[test]
fn a_leader_without_followers_steps_down() {
    let (mut leader, one, two) = established();
    leader.input(Input::Closed { link: one });
    leader.input(Input::Closed { link: two });
    leader.now_ms += 1000;
    assert_eq!(leader.input(Input::Timer), "");
    leader.now_ms += 1000;
    assert_eq!(leader.input(Input::Timer), "[Looking]");
}

/// ZOOKEEPER-3911, 3023, 4646, 4643, 4785.
#[test]
fn a_learner_promises_and_takes_over_only_what_is_durable() {
    let mut follower = Server::new(1, 2, 1, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION };
    assert_eq!(follower.packet(link, info), "accepted=2");
    assert_eq!(follower.done(Durable::AcceptedEpoch(Epoch(2))), "ACKEPOCH 1:2 Some(1)");
    assert_eq!(follower.packet(link, Packet::Diff { zxid: z(1, 4) }), "");
    for counter in [3, 4] {
        assert_eq!(follower.packet(link, proposal(z(1, counter))), "");
        assert_eq!(follower.packet(link, Packet::Commit { zxid: z(1, counter) }), "");
    }
    // A proposal of the new epoch is buffered until UPTODATE.
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "");
    let new_leader = Packet::NewLeader { epoch: Epoch(2), config: None };
    assert_eq!(follower.packet(link, new_leader), "append 1:3, append 1:4");
    assert_eq!(follower.done(Durable::Flushed(z(1, 3))), "");
    assert_eq!(follower.done(Durable::Flushed(z(1, 4))), "current=2");
    // A ping gets no reply now: the leader would take the reply for the ACK.
    assert_eq!(follower.packet(link, Packet::Ping { zxid: z(2, 1) }), "");
    assert_eq!(follower.done(Durable::CurrentEpoch(Epoch(2))), "ACK 2:0");
    // A commit of a transaction that is not in our log yet is remembered.
    assert_eq!(follower.packet(link, Packet::Commit { zxid: z(2, 1) }), "");
    assert_eq!(
        follower.packet(link, Packet::UpToDate),
        "ACK 2:0, [Following { leader: 3, epoch: Epoch(2) }], append 2:1, commit 1:3, commit 1:4, \
         commit 2:1"
    );
    assert_eq!(follower.done(Durable::Flushed(z(2, 1))), "ACK 2:1");
    // Later proposals are acknowledged one by one.
    assert_eq!(follower.packet(link, proposal(z(2, 2))), "append 2:2");
    assert_eq!(follower.packet(link, Packet::Commit { zxid: z(2, 2) }), "commit 2:2");
    assert_eq!(follower.done(Durable::Flushed(z(2, 2))), "ACK 2:2");
}

/// ZOOKEEPER-3642, 5094.
#[test]
fn an_aborted_synchronization_leaves_nothing_behind() {
    let mut follower = Server::new(1, 2, 2, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION };
    assert_eq!(follower.packet(link, info), "ACKEPOCH 1:2 None");
    assert_eq!(follower.packet(link, Packet::Snap { zxid: z(1, 9) }), "receive");
    assert_eq!(follower.input(Input::SnapshotReceived { link }), "");
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "");
    assert_eq!(follower.input(Input::Closed { link }), "[Looking]");
    // The snapshot was never installed: the vote names the end of our own log.
    assert_eq!(follower.zab.last_proposed(), z(1, 2));
}

/// ZOOKEEPER-4712.
#[test]
fn nobody_votes_before_its_writes_have_ended() {
    let mut follower = Server::new(1, 2, 2, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION };
    follower.packet(link, info);
    follower.packet(link, Packet::Diff { zxid: z(1, 2) });
    follower.packet(link, Packet::NewLeader { epoch: Epoch(2), config: None });
    follower.done(Durable::CurrentEpoch(Epoch(2)));
    follower.packet(link, Packet::UpToDate);
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "append 2:1");
    assert_eq!(follower.input(Input::Closed { link }), "[Looking]");
    // The logged transaction is applied, although it was not committed.
    assert_eq!(follower.done(Durable::Flushed(z(2, 1))), "forward 2:1");
}

#[test]
fn a_truncation_that_cannot_be_done_ends_in_a_snapshot() {
    let mut follower = Server::new(1, 5, 1, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION };
    follower.packet(link, info.clone());
    follower.done(Durable::AcceptedEpoch(Epoch(2)));
    assert_eq!(follower.packet(link, Packet::Trunc { zxid: z(1, 3) }), "truncate 1:3");
    let said = follower.done(Durable::CannotTruncate(z(1, 3)));
    assert_eq!(said, "hangup NeedSnapshot, dial 3");
    let link = follower.link();
    follower.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) });
    // No leader has this zxid: it sends a snapshot. Our files are unchanged until it is complete.
    assert_eq!(follower.packet(link, info), "ACKEPOCH 3:0 None");
    follower.packet(link, Packet::Snap { zxid: z(1, 3) });
    follower.input(Input::SnapshotReceived { link });
    let new_leader = Packet::NewLeader { epoch: Epoch(2), config: None };
    assert_eq!(follower.packet(link, new_leader), "install 1:3");
    assert_eq!(follower.done(Durable::Installed { zxid: z(1, 3), state: () }), "current=2");
}

/// ZOOKEEPER-2418, 2846.
#[test]
fn a_hole_in_a_leaders_history_is_not_taken_over() {
    let mut follower = Server::new(1, 2, 1, 1);
    let link = follower.follows();
    follower.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    follower.done(Durable::AcceptedEpoch(Epoch(2)));
    follower.packet(link, Packet::Diff { zxid: z(1, 9) });
    assert_eq!(follower.packet(link, proposal(z(1, 4))), "hangup RoleEnded, [Looking]");
}

#[test]
fn the_history_of_a_standalone_server_that_used_up_its_counter_has_no_hole() {
    let mut follower = Server::new(1, 2, 2, 1);
    let link = follower.follows();
    follower.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    follower.packet(link, Packet::Snap { zxid: z(1, u32::MAX) });
    follower.input(Input::SnapshotReceived { link });
    // Such an Apache server continues at counter 0 of the next epoch.
    assert_eq!(follower.packet(link, proposal(z(2, 0))), "");
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "");
    let said = follower.packet(link, proposal(z(3, 0)));
    assert_eq!(said, "hangup RoleEnded, [Looking]");
}

#[test]
fn a_leader_of_an_older_epoch_is_left() {
    let mut follower = Server::new(1, 2, 5, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(4), protocol: PROTOCOL_VERSION };
    assert_eq!(follower.packet(link, info), "hangup RoleEnded, [Looking]");
}

#[test]
fn whoever_does_not_speak_the_protocol_loses_its_connection() {
    let (mut leader, one, _) = established();
    let stranger = leader.link();
    leader.input(Input::Accepted { link: stranger });
    let said = leader.packet(stranger, Packet::Ack { zxid: z(3, 0) });
    assert!(said.starts_with("hangup Protocol"), "{said}");
    assert!(leader.packet(one, Packet::UpToDate).starts_with("hangup Protocol"));
    let (_, said) = leader.greet(3, 1);
    assert_eq!(said, "hangup OwnId");
    let (_, said) = leader.greet(2, i64::from(i32::MAX));
    assert!(said.starts_with("hangup Protocol"), "{said}");
}
