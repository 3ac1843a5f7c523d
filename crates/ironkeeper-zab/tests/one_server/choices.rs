//! A server that ended its election before all votes had arrived, and then receives votes for
//! another leader.

use ironkeeper_proto::election::PeerState::{self, Following, Leading, Looking};
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Notification, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, LinkOp, Output, Port, Settings};

use crate::server::*;

/// Server 1 has elected server 2 with the votes of 1 and 2; the vote of 3 did not arrive in time.
fn chose_two() -> Server {
    let mut server = Server::new(1, 2, 1, 1);
    server.votes(2, Looking, 2, 2, 1);
    server.now_ms += 200;
    let mut out = Vec::new();
    server.zab.step(server.now_ms, Input::Timer, &mut out);
    let dials = |output: &Output| {
        matches!(output, Output::Link(LinkOp::Dial { peer: ServerId(2), port: Port::Quorum, .. }))
    };
    assert!(out.iter().any(dials), "{out:?}");
    server
}

/// The elected server accepts the connection.
fn connects(server: &mut Server, to: i64) -> LinkId {
    let link = server.link();
    let dialed = Input::Dialed { peer: ServerId(to), port: Port::Quorum, link: Some(link) };
    assert_eq!(server.input(dialed), "FOLLOWERINFO 1");
    link
}

#[test]
fn the_vote_of_the_chosen_server_for_another_one_ends_the_wait() {
    for state in [Looking, Following] {
        let mut server = chose_two();
        connects(&mut server, 2);
        assert_eq!(server.votes(3, Looking, 3, 2, 1), "", "one better vote is no quorum");
        assert_eq!(server.votes(2, state, 3, 2, 1), "hangup RoleEnded, [Looking]");
        // The two others reply in their round.
        server.votes(2, Following, 3, 2, 1);
        server.votes(3, Leading, 3, 2, 1);
        connects(&mut server, 3);
    }
}

#[test]
fn a_chosen_server_that_hangs_up_twice_does_not_lead() {
    let mut server = chose_two();
    let link = connects(&mut server, 2);
    assert_eq!(server.input(Input::Closed { link }), "", "it may be about to");
    server.now_ms += 100;
    server.input(Input::Timer);
    let link = connects(&mut server, 2);
    assert_eq!(server.input(Input::Closed { link }), "[Looking]");
}

/// An Apache server listens on its quorum port only when it leads, which can take some time.
#[test]
fn a_refused_connection_is_tried_again() {
    let mut server = chose_two();
    for _ in 0..4 {
        let dialed = Input::Dialed { peer: ServerId(2), port: Port::Quorum, link: None };
        assert_eq!(server.input(dialed), "");
        server.now_ms += 100;
        server.input(Input::Timer);
    }
    connects(&mut server, 2);
}

#[test]
fn a_leader_that_told_its_epoch_is_not_left_for_a_vote() {
    let mut server = chose_two();
    let link = connects(&mut server, 2);
    server.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    assert_eq!(server.votes(3, Looking, 3, 2, 1), "");
    assert_eq!(server.votes(2, Looking, 3, 2, 1), "");
}

/// ZOOKEEPER-3109.
#[test]
fn a_server_that_chose_itself_gives_up_when_the_others_name_another_one() {
    let chose_itself = || {
        let mut server = Server::new(2, 2, 1, 1);
        server.votes(1, Looking, 2, 2, 1);
        server.now_ms += 200;
        server.input(Input::Timer);
        server
    };
    let mut server = chose_itself();
    assert_eq!(server.votes(3, Looking, 3, 2, 1), "", "server 1 may still come");
    assert_eq!(server.votes(1, Looking, 3, 2, 1), "[Looking]");
    // Server 1 follows: its vote was sent before.
    let mut server = chose_itself();
    server.votes(3, Looking, 3, 2, 1);
    assert_eq!(server.greet(1, 1).1, "accepted=2");
    assert_eq!(server.votes(1, Looking, 3, 2, 1), "");
    assert_eq!(server.done(Durable::AcceptedEpoch(Epoch(2))), "LEADERINFO 2");
}

#[test]
fn a_learner_that_comes_during_the_election_is_kept_until_it_ends() {
    let info =
        LearnerInfo { server: Some(ServerId(1)), protocol: PROTOCOL_VERSION, config_version: 0 };
    let greeting = || Packet::FollowerInfo { accepted: Epoch(1), info };
    let early = |id: i64| {
        let mut server = Server::new(id, 2, 1, 1);
        let link = server.link();
        assert_eq!(server.input(Input::Accepted { link }), "");
        assert_eq!(server.packet(link, greeting()), "");
        (server, link)
    };
    // The server is elected.
    let (server, _) = early(3);
    let mut server = server.elected(2, 1);
    assert_eq!(server.done(Durable::AcceptedEpoch(Epoch(2))), "LEADERINFO 2");
    // The server follows another one: it closes this link and later ones at once.
    let (mut server, _) = early(2);
    server.votes(3, Looking, 3, 2, 1);
    assert_eq!(server.votes(1, Looking, 3, 2, 1), "dial 3, hangup NotLeading");
    let link = server.link();
    assert_eq!(server.input(Input::Accepted { link }), "hangup NotLeading");
    // The election does not end in time.
    let (mut server, _) = early(3);
    server.now_ms += 500;
    assert_eq!(server.zab.deadline_ms().min(server.now_ms), server.zab.deadline_ms());
    assert_eq!(server.input(Input::Timer), "hangup NotLeading");
    // The learner closes the link, or sends a second packet before the reply.
    let (mut server, link) = early(3);
    server.input(Input::Closed { link });
    server.now_ms += 500;
    assert_eq!(server.input(Input::Timer), "");
    let (mut server, link) = early(3);
    let said = server.packet(link, greeting());
    assert!(said.starts_with("hangup Protocol"), "{said}");
}

/// A leader that has agreed on an epoch with server 1; server 2 is unreachable.
fn promising_with_one() -> (Server, LinkId) {
    let mut server = Server::new(3, 2, 1, 1);
    server.input(Input::Dialed { peer: ServerId(2), port: Port::Election, link: None });
    server.votes(1, Looking, 3, 2, 1);
    let (one, said) = server.greet(1, 1);
    assert_eq!(said, "accepted=2");
    assert_eq!(server.done(Durable::AcceptedEpoch(Epoch(2))), "LEADERINFO 2");
    (server, one)
}

#[test]
fn a_server_that_leads_without_the_followers_it_agreed_on_an_epoch_with_looks_again() {
    // The follower closes its link.
    let (mut server, one) = promising_with_one();
    assert_eq!(server.input(Input::Closed { link: one }), "[Looking]");
    // A connected follower counts, whatever its vote was before.
    let (mut server, one) = promising_with_one();
    assert_eq!(server.votes(2, Looking, 2, 2, 1), "");
    assert_eq!(server.votes(1, Looking, 1, 2, 1), "");
    // The follower closes its link: it is in another round, with the others.
    assert_eq!(server.input(Input::Closed { link: one }), "[Looking]");
}

/// An epoch is agreed on with the followers that are connected, not with former ones.
#[test]
fn followers_that_have_left_are_not_counted_for_an_epoch() {
    let five = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\nserver.5=e:1:2";
    let mut server = Server::of(five, 5, 2, 1, 1, Settings::default());
    for from in 1..=4 {
        server.votes(from, Looking, 5, 2, 1);
    }
    let (one, said) = server.greet(1, 1);
    assert_eq!(said, "");
    assert_eq!(server.input(Input::Closed { link: one }), "", "three others may come");
    assert_eq!(server.greet(2, 1).1, "", "one follower");
    assert_eq!(server.greet(3, 1).1, "accepted=2");
}

/// Before it is established, a leader that has lost a quorum of followers does not wait for
/// `initLimit`.
#[test]
fn a_leader_without_a_quorum_to_take_over_its_history_gives_up_within_two_ticks() {
    let (mut server, one) = promising_with_one();
    let promise = Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) };
    assert_eq!(server.packet(one, promise), "current=2");
    assert_eq!(server.done(Durable::CurrentEpoch(Epoch(2))), "DIFF 1:2, NEWLEADER 2");
    // The follower may have closed the link to request a snapshot.
    assert_eq!(server.input(Input::Closed { link: one }), "");
    let mut said = String::new();
    for _ in 0..4 {
        server.now_ms += 1000;
        said.push_str(&server.input(Input::Timer));
    }
    assert_eq!(said, "[Looking]");
}

#[test]
fn a_chosen_server_that_is_gone_from_both_ports_is_not_dialled_again() {
    let refused = || Input::Dialed { peer: ServerId(2), port: Port::Quorum, link: None };
    // The election port becomes unreachable first ...
    let mut server = chose_two();
    let election = LinkId(server.links);
    assert_eq!(server.input(Input::Closed { link: election }), "", "its quorum port is dialled");
    assert_eq!(server.input(refused()), "[Looking]");
    // ... or the quorum port.
    let mut server = chose_two();
    let election = LinkId(server.links);
    assert_eq!(server.input(refused()), "", "it may be about to lead");
    assert_eq!(server.input(Input::Closed { link: election }), "[Looking]");
    // The server votes again: it is reachable.
    let mut server = chose_two();
    let election = LinkId(server.links);
    server.input(Input::Closed { link: election });
    server.votes(2, Looking, 2, 2, 1);
    assert_eq!(server.input(refused()), "");
}

/// Returns the votes that a step sends: the link and the state.
fn votes_sent(server: &mut Server, input: Input) -> Vec<(LinkId, PeerState)> {
    let mut out = Vec::new();
    server.zab.step(server.now_ms, input, &mut out);
    let sent = out.into_iter().filter_map(|output| match output {
        Output::Link(LinkOp::Notify { link, notification }) => Some((link, notification.state)),
        _ => None,
    });
    sent.collect()
}

#[test]
fn servers_that_look_get_the_vote_of_a_leader_when_there_is_one() {
    let mut server = Server::new(3, 2, 1, 1).elected(2, 1);
    // An observer sends its vote during the election; the reply names no leader yet.
    server.votes(4, Looking, i64::MIN, 0, 0);
    let observer = LinkId(server.links);
    let (one, _) = server.greet(1, 1);
    server.done(Durable::AcceptedEpoch(Epoch(2)));
    server.packet(one, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) });
    server.done(Durable::CurrentEpoch(Epoch(2)));
    let ack = Input::Packet { link: one, packet: Packet::Ack { zxid: z(2, 0) } };
    let told = votes_sent(&mut server, ack);
    assert!(told.contains(&(observer, Leading)), "{told:?}");
}

#[test]
fn a_server_that_is_new_in_a_round_gets_our_vote_once() {
    let mut server = Server::new(3, 2, 1, 1);
    server.votes(1, Looking, 1, 1, 1);
    let link = LinkId(server.links);
    let again = |server: &mut Server, round: i64| {
        let notification = Notification {
            state: Looking,
            leader: ServerId(1),
            zxid: z(1, 1),
            round,
            peer_epoch: Epoch(1),
            format: 2,
            config: bytes::Bytes::new(),
        };
        votes_sent(server, Input::Notification { link, notification }).len()
    };
    assert_eq!(again(&mut server, 1), 0, "it has our vote of this round");
    let mut server = Server::new(3, 2, 1, 1);
    // Server 1 follows another leader when it receives our vote, then is LOOKING.
    server.votes(1, Following, 2, 1, 1);
    assert_eq!(again(&mut server, 1), 1, "it may have had no use for our vote");
}

#[test]
fn voters_that_are_away_are_dialled_again_and_again_however_long_they_are() {
    let mut server = Server::new(1, 2, 1, 1);
    let mut dials = 0;
    for _ in 0..600 {
        let refused =
            |peer| Input::Dialed { peer: ServerId(peer), port: Port::Election, link: None };
        server.input(refused(2));
        server.input(refused(3));
        server.now_ms += 100;
        let mut out = Vec::new();
        server.zab.step(server.now_ms, Input::Timer, &mut out);
        let is_dial = |output: &&Output| {
            matches!(
                output,
                Output::Link(LinkOp::Dial { peer: ServerId(2), port: Port::Election, .. })
            )
        };
        dials += out.iter().filter(is_dial).count();
    }
    assert!(dials >= 100, "{dials} dials in a minute");
}
