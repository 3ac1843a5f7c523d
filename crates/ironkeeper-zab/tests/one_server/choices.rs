//! A server that ended its election before all votes had come, and receives votes for another
//! leader since.

use ironkeeper_proto::election::PeerState::{Following, Leading, Looking};
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, Output, Port};

use crate::server::*;

/// Server 1 has chosen server 2 with the votes of 1 and 2; the vote of 3 has not come in time.
fn chose_two() -> Server {
    let mut server = Server::new(1, 2, 1, 1);
    server.votes(2, Looking, 2, 2, 1);
    server.now_ms += 200;
    let mut out = Vec::new();
    server.zab.step(server.now_ms, Input::Timer, &mut out);
    let dials = |output: &Output| {
        matches!(output, Output::Dial { peer: ServerId(2), port: Port::Quorum, .. })
    };
    assert!(out.iter().any(dials), "{out:?}");
    server
}

/// The chosen server takes the connection.
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
        // The two others answer in their round.
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

/// An Apache server listens on its quorum port only when it leads, which may take it some time.
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
    // It has come: the vote was sent before.
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
    // It leads.
    let (server, _) = early(3);
    let mut server = server.elected(2, 1);
    assert_eq!(server.done(Durable::AcceptedEpoch(Epoch(2))), "LEADERINFO 2");
    // It follows another one, and says so at once, then and later.
    let (mut server, _) = early(2);
    server.votes(3, Looking, 3, 2, 1);
    assert_eq!(server.votes(1, Looking, 3, 2, 1), "dial 3, hangup NotLeading");
    let link = server.link();
    assert_eq!(server.input(Input::Accepted { link }), "hangup NotLeading");
    // It does not come to an end.
    let (mut server, _) = early(3);
    server.now_ms += 500;
    assert_eq!(server.zab.deadline_ms().min(server.now_ms), server.zab.deadline_ms());
    assert_eq!(server.input(Input::Timer), "hangup NotLeading");
    // It is closed, or does not wait.
    let (mut server, link) = early(3);
    server.input(Input::Closed { link });
    server.now_ms += 500;
    assert_eq!(server.input(Input::Timer), "");
    let (mut server, link) = early(3);
    let said = server.packet(link, greeting());
    assert!(said.starts_with("hangup Protocol"), "{said}");
}
