//! What anybody can say who reaches the ports.

use ironkeeper_proto::election::{Opening, PeerState};
use ironkeeper_proto::{Epoch, Notification, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, Output, Port, Settings};

use crate::server::*;

#[test]
fn nobody_uses_up_the_epochs_or_brings_down_a_leader_whose_followers_are_there() {
    let (mut leader, ..) = established();
    // As a voter that is here already, as one beyond reach, as a stranger, as an observer.
    let (_, said) = leader.greet(1, 9);
    assert!(said.starts_with("hangup Protocol"), "{said}");
    for (id, accepted) in [(1, i64::from(i32::MAX) - 1), (77, 1 << 30), (4, 1 << 30)] {
        let (_, said) = leader.greet(id, accepted);
        assert!(said.starts_with("hangup Protocol"), "{id}: {said}");
    }
    assert_eq!(leader.greet(77, 500).1, "LEADERINFO 3");
    assert_eq!(leader.zab.learners().iter().filter(|learner| learner.is_up_to_date).count(), 2);
    // The next epoch is the next one, whatever strangers have said.
    leader.now_ms += 60_000;
    leader.input(Input::Timer);
    leader.now_ms += 60_000;
    assert!(leader.input(Input::Timer).contains("[Looking]") || leader.zab.learners().is_empty());
    leader.round = 2;
    let mut leader = leader.elected(2, 3);
    assert_eq!(leader.greet(1, 3).1, "accepted=4");
    leader.done(Durable::AcceptedEpoch(Epoch(4)));
}

fn told(server: &mut Server, link: LinkId, config: &str) -> Vec<Output> {
    let notification = Notification {
        state: PeerState::Looking,
        leader: ServerId(3),
        zxid: z(1, 2),
        round: 1,
        peer_epoch: Epoch(1),
        format: 2,
        config: config.to_owned().into(),
    };
    let mut out = Vec::new();
    server.zab.step(server.now_ms, Input::Notification { link, notification }, &mut out);
    out
}

fn opened(server: &mut Server, from: i64) -> LinkId {
    let link = server.link();
    let opening = Opening { from: ServerId(from), addresses: vec!["h:3".to_owned()] };
    server.input(Input::Opened { link, opening });
    server.input(Input::Dialed { peer: ServerId(from), port: Port::Election, link: Some(link) });
    link
}

#[test]
fn members_that_cannot_be_ours_are_not_adopted() {
    let settings = Settings { reconfig_enabled: true, ..Settings::default() };
    let adopts = |from: i64, config: &str| {
        let mut server = Server::with(1, 2, 1, 1, settings.clone());
        let link = opened(&mut server, from);
        let out = told(&mut server, link, config);
        out.iter().any(|output| matches!(output, Output::ConfigCommitted(_)))
    };
    let two = "server.2=b:1:2\nserver.3=c:1:2\nversion=100000005";
    assert!(adopts(2, two), "somebody was removed while we were away");
    let others = "server.7=g:1:2\nserver.8=h:1:2\nversion=100000005";
    assert!(adopts(2, others), "all were replaced while we were away, and one who was tells us");
    assert!(!adopts(7, others), "a stranger tells of strangers");
    assert!(!adopts(7, two), "told by one who is neither of them nor of ours");
    assert!(!adopts(2, "version=7fffffffffffffff"), "nobody is in it");
    assert!(!adopts(2, "server.2=b:1:2:observer\nversion=100000005"), "nobody votes");
    assert!(!adopts(2, "server.2=x:1:2\nserver.3=y:1:2\nversion=100000005"), "another ensemble");
    assert!(!adopts(2, &two.replace("100000005", "7fffffff00000001")), "a time that never was");
}

#[test]
fn two_that_look_do_not_answer_each_other_without_end() {
    let mut server = Server::new(1, 2, 1, 1);
    let link = opened(&mut server, 9);
    let answers = |server: &mut Server| {
        let out = told(server, link, "");
        out.iter().filter(|output| matches!(output, Output::Notify { .. })).count()
    };
    assert_eq!(answers(&mut server), 1);
    assert_eq!(answers(&mut server), 0, "it was told just now");
    server.now_ms += Settings::default().notification_min_ms;
    assert_eq!(answers(&mut server), 1);
}

#[test]
fn of_those_who_are_no_members_a_few_get_the_history_at_a_time() {
    let (mut leader, ..) = established();
    let join = |leader: &mut Server, id: i64| {
        let (link, said) = leader.greet(id, 2);
        assert!(said.ends_with("LEADERINFO 3"), "{id}: {said}");
        let behind = Packet::AckEpoch { last: z(1, 1), current: Some(Epoch(1)) };
        (link, leader.packet(link, behind))
    };
    let mut links = Vec::new();
    for id in 70..74 {
        let (link, said) = join(&mut leader, id);
        assert!(said.contains("NEWLEADER 3"), "{said}");
        links.push(link);
    }
    assert_eq!(join(&mut leader, 74).1, "hangup TooManyStrangers");
    // Members need not wait for them, and whoever is through makes room.
    let (_, said) = join(&mut leader, 2);
    assert!(said.contains("NEWLEADER 3"), "{said}");
    leader.packet(links[0], Packet::Ack { zxid: z(3, 0) });
    let (_, said) = join(&mut leader, 74);
    assert!(said.contains("NEWLEADER 3"), "{said}");
}
