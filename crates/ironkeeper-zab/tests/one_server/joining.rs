//! Learners that connect during writes, and learners that synchronize slowly.

use ironkeeper_proto::election::PeerState;
use ironkeeper_proto::quorum_packet::PROTOCOL_VERSION;
use ironkeeper_proto::{Epoch, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, Port, Settings};

use crate::server::*;

const TICK_MS: u64 = 2000;
const FIVE: &str = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\nserver.5=e:1:2";

/// A follower that knows the epoch and begins to receive a history that ends with 1:2.
fn catching_up() -> (Server, LinkId) {
    let mut follower = Server::new(1, 2, 2, 1);
    let link = follower.follows();
    follower.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    follower.packet(link, Packet::Diff { zxid: z(1, 2) });
    (follower, link)
}

#[test]
fn what_is_committed_while_a_history_is_taken_over_is_not_waited_for() {
    let (mut follower, link) = catching_up();
    assert_eq!(follower.packet(link, proposal(z(1, 3))), "");
    follower.packet(link, Packet::Commit { zxid: z(1, 3) });
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "", "not committed yet");
    let new_leader = Packet::NewLeader { epoch: Epoch(2), config: None };
    assert_eq!(follower.packet(link, new_leader), "append 1:3");
    follower.packet(link, Packet::Commit { zxid: z(2, 1) });
    assert_eq!(follower.done(Durable::Flushed(z(1, 3))), "current=2", "no further append");
    assert_eq!(follower.done(Durable::CurrentEpoch(Epoch(2))), "ACK 2:0");
    assert_eq!(
        follower.packet(link, Packet::UpToDate),
        "ACK 2:0, [Following { leader: 3, epoch: Epoch(2) }], append 2:1, commit 1:3, commit 2:1"
    );
    // The leader requires an ACK of every proposal.
    assert_eq!(follower.done(Durable::Flushed(z(2, 1))), "ACK 2:1");
}

/// An established leader whose follower 1 has disconnected, connected again and is being
/// synchronized.
fn rejoining() -> (Server, LinkId, LinkId) {
    let (mut leader, one, two) = established();
    leader.input(Input::Closed { link: one });
    let (one, _) = leader.greet(1, 3);
    leader.packet(one, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(3)) });
    (leader, one, two)
}

/// Lets time pass while `alive` replies to pings.
fn wait(
    leader: &mut Server,
    ticks: u64,
    alive: LinkId,
    mut also: impl FnMut(&mut Server),
) -> String {
    let mut said = Vec::new();
    for _ in 0..2 * ticks {
        leader.now_ms += TICK_MS / 2;
        said.push(leader.packet(alive, pong(z(3, 0))));
        also(leader);
        said.push(leader.input(Input::Timer));
    }
    said.retain(|said| !said.is_empty());
    said.join(", ")
}

#[test]
fn a_learner_that_takes_over_a_large_tree_is_not_taken_for_one_that_acknowledges_nothing() {
    let (mut leader, one, two) = rejoining();
    leader.propose(z(3, 1));
    leader.done(Durable::Flushed(z(3, 1)));
    leader.packet(two, Packet::Ack { zxid: z(3, 1) });
    // Longer than syncLimit, not longer than initLimit.
    assert_eq!(wait(&mut leader, 9, two, |_| {}), "");
    assert_eq!(leader.packet(one, Packet::Ack { zxid: z(3, 0) }), "UPTODATE");
    let pongs = |leader: &mut Server| drop(leader.packet(one, pong(z(3, 0))));
    assert_eq!(wait(&mut leader, 4, two, pongs), "", "now it has syncLimit to acknowledge");
    assert_eq!(leader.packet(one, Packet::Ack { zxid: z(3, 1) }), "");
    assert_eq!(wait(&mut leader, 20, two, pongs), "");
}

#[test]
fn a_tree_that_moves_is_a_sign_of_life_on_both_sides() {
    let (mut leader, one, two) = rejoining();
    let moves = |leader: &mut Server| drop(leader.input(Input::TreeMoved { link: one }));
    assert_eq!(wait(&mut leader, 100, two, moves), "");
    assert_eq!(wait(&mut leader, 17, two, |_| {}), "hangup Silent");

    let mut follower = Server::new(1, 2, 2, 1);
    let link = follower.follows();
    follower.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    assert_eq!(follower.packet(link, Packet::Snap { zxid: z(1, 9) }), "receive");
    for _ in 0..100 {
        follower.now_ms += TICK_MS;
        assert_eq!(follower.input(Input::TreeMoved { link }), "");
    }
    follower.now_ms += 11 * TICK_MS;
    assert_eq!(follower.input(Input::Timer), "hangup RoleEnded, [Looking]");
}

#[test]
fn those_who_have_the_history_wait_for_the_others_as_long_as_the_leader_does() {
    let settings = Settings { init_limit: 30, ..Settings::default() };
    let mut leader = Server::of(FIVE, 3, 2, 1, 1, settings);
    for voter in [1, 2, 4, 5] {
        leader.votes(voter, PeerState::Looking, 3, 2, 1);
    }
    let links: Vec<LinkId> = [1, 2].map(|voter| leader.greet(voter, 1).0).to_vec();
    leader.done(Durable::AcceptedEpoch(Epoch(2)));
    for link in &links {
        leader.packet(*link, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) });
    }
    leader.done(Durable::CurrentEpoch(Epoch(2)));
    leader.packet(links[0], Packet::Ack { zxid: z(2, 0) });
    // The first follower has nothing to send until there is a quorum.
    assert_eq!(wait(&mut leader, 20, links[1], |_| {}), "");
    let said = leader.packet(links[1], Packet::Ack { zxid: z(2, 0) });
    assert_eq!(said, "[Leading { epoch: Epoch(2) }], UPTODATE, UPTODATE");
}

#[test]
fn an_observer_gets_the_whole_tree_when_it_needs_it_in_a_new_epoch_too() {
    let mut observer = Server::new(4, 5, 1, 1);
    observer.votes(2, PeerState::Following, 3, 9, 2);
    observer.votes(3, PeerState::Leading, 3, 9, 2);
    let link = observer.link();
    observer.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) });
    let info = |epoch| Packet::LeaderInfo { epoch: Epoch(epoch), protocol: PROTOCOL_VERSION };
    assert_eq!(observer.packet(link, info(2)), "ACKEPOCH 1:5 Some(1)");
    assert_eq!(observer.packet(link, Packet::Trunc { zxid: z(1, 3) }), "truncate 1:3");
    let said = observer.done(Durable::CannotTruncate(z(1, 3)));
    assert_eq!(said, "hangup NeedSnapshot, dial 3");
    let link = observer.link();
    observer.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) });
    assert_eq!(observer.packet(link, info(2)), "ACKEPOCH 3:0 None");
}
