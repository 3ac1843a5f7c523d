//! Packets that any program can send that reaches the ports.

use ironkeeper_proto::election::{Opening, PeerState};
use ironkeeper_proto::{Epoch, Notification, Packet, ServerId};
use ironkeeper_zab::{Durable, Input, LinkId, LinkOp, Output, Port, Settings, Upcall};

use crate::server::*;

#[test]
fn nobody_uses_up_the_epochs_or_brings_down_a_leader_whose_followers_are_there() {
    let (mut leader, one, _) = established();
    // As a voter that is connected, with an epoch out of reach, as a non-member, as an observer.
    assert_eq!(leader.greet(1, 9).1, "");
    assert_eq!(leader.answers(one), "hangup Connected");
    for (id, accepted) in [(1, i64::from(i32::MAX) - 1), (77, 1 << 30), (4, 1 << 30)] {
        let (_, said) = leader.greet(id, accepted);
        assert!(said.starts_with("hangup Protocol"), "{id}: {said}");
    }
    assert_eq!(leader.greet(77, 500).1, "LEADERINFO 3");
    assert_eq!(leader.zab.learners().iter().filter(|learner| learner.is_up_to_date).count(), 2);
    // The next epoch is larger by one, whatever non-members have sent.
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
    server.input(Input::Opened { link, opening, from_its_address: true });
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
        out.iter().any(|output| matches!(output, Output::Up(Upcall::MembersCommitted(_))))
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
        out.iter().filter(|output| matches!(output, Output::Link(LinkOp::Notify { .. }))).count()
    };
    assert_eq!(answers(&mut server), 1);
    assert_eq!(answers(&mut server), 0, "it was told just now");
    server.now_ms += Settings::default().notification_min_ms;
    assert_eq!(answers(&mut server), 1);
}

#[test]
fn of_those_who_are_no_members_a_few_get_the_history_at_a_time() {
    let (mut leader, _, two) = established();
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
    // Members do not wait for non-members, and a non-member that is synchronized makes room.
    leader.input(Input::Closed { link: two });
    let (_, said) = join(&mut leader, 2);
    assert!(said.contains("NEWLEADER 3"), "{said}");
    leader.packet(links[0], Packet::Ack { zxid: z(3, 0) });
    let (_, said) = join(&mut leader, 74);
    assert!(said.contains("NEWLEADER 3"), "{said}");
}

/// A leader that has lost follower 1 and its links. Returns the leader and the link of the other
/// follower.
fn without_one() -> (Server, LinkId) {
    let (mut leader, one, two) = established();
    leader.input(Input::Closed { link: one });
    (leader, two)
}

const INIT_MS: u64 = 20_000;

/// Lets time pass while `alive` replies to pings.
fn pass(leader: &mut Server, ms: u64, alive: LinkId) -> String {
    let mut said = Vec::new();
    for _ in 0..ms / 1000 {
        leader.now_ms += 1000;
        said.push(leader.packet(alive, pong(z(3, 0))));
    }
    said.retain(|said| !said.is_empty());
    said.join(", ")
}

#[test]
fn a_later_promise_counts_only_with_a_vote_of_the_server_that_is_said_to_have_made_it() {
    let (mut leader, two) = without_one();
    // Server 1 was not LOOKING since it followed: the sender is not server 1.
    assert_eq!(leader.greet(1, 9).1, "");
    assert_eq!(pass(&mut leader, 2 * INIT_MS, two), "hangup Silent");
    assert_eq!(leader.greet(1, 9).1, "");
    leader.votes(1, PeerState::Looking, 1, 2, 3);
    let said = pass(&mut leader, 1000, two);
    assert_eq!(said, "hangup RoleEnded, hangup RoleEnded, [Looking]");
}

#[test]
fn later_promises_begin_new_epochs_at_growing_intervals_however_many_there_are() {
    let (mut leader, mut two) = without_one();
    let (began_ms, mut renewals) = (leader.now_ms, Vec::new());
    while leader.now_ms < began_ms + 15 * INIT_MS {
        let epoch = leader.zab.epochs().expect("a member").current.0;
        // The sender claims to be server 1, on both ports, with one acceptedEpoch after the other.
        leader.votes(1, PeerState::Looking, 1, 2, 1);
        let (_, mut said) = leader.greet(1, epoch + 1);
        said.push_str(&pass(&mut leader, 1000, two));
        if said.contains("[Looking]") {
            renewals.push((leader.now_ms - began_ms) / INIT_MS);
            leader.round += 1;
            leader.votes(2, PeerState::Looking, 3, 2, epoch);
            leader.now_ms += 200;
            leader.input(Input::Timer);
            let (link, said) = leader.greet(2, epoch);
            assert!(said.starts_with("accepted="), "{said}");
            let epoch = Epoch(said["accepted=".len()..].parse().unwrap());
            leader.done(Durable::AcceptedEpoch(epoch));
            let current = Some(Epoch(1));
            leader.packet(link, Packet::AckEpoch { last: z(1, 2), current });
            leader.done(Durable::CurrentEpoch(epoch));
            let said = leader.packet(link, Packet::Ack { zxid: z(epoch.0, 0) });
            assert!(said.contains("[Leading"), "{said}");
            two = link;
        }
    }
    assert_eq!(renewals, [0, 1, 3, 7, 15]);
}

#[test]
fn a_second_connection_of_a_server_waits_until_the_first_is_gone_or_silent() {
    // The first link is alive: the second is another server's.
    let (mut leader, one, two) = established();
    let (_, said) = leader.greet(1, 3);
    assert_eq!(said, "");
    assert_eq!(leader.answers(one), "hangup Connected");
    assert_eq!(leader.zab.learners().iter().filter(|peer| peer.is_up_to_date).count(), 2);

    // The first link is closed, after packets that were sent before.
    let (second, said) = leader.greet(1, 3);
    assert_eq!(said, "");
    leader.now_ms += 10;
    assert_eq!(leader.packet(one, pong(z(3, 0))), "");
    assert_eq!(leader.packet(one, Packet::Ack { zxid: z(3, 0) }), "");
    assert_eq!(leader.input(Input::Closed { link: one }), "LEADERINFO 3");
    let ack = Packet::AckEpoch { last: z(1, 2), current: None };
    assert_eq!(leader.packet(second, ack), "DIFF 1:2, NEWLEADER 3");
    assert_eq!(leader.packet(second, Packet::Ack { zxid: z(3, 0) }), "UPTODATE");

    // The first link is without packets for a tick: the server has restarted, and nothing has
    // closed its link.
    leader.now_ms += 1000;
    leader.packet(two, pong(z(3, 0)));
    assert_eq!(leader.greet(1, 3).1, "");
    leader.now_ms += 1000;
    assert_eq!(leader.packet(two, pong(z(3, 0))), "hangup Replaced, LEADERINFO 3");

    // A second link that sends more before the reply is rejected.
    let (third, said) = leader.greet(1, 3);
    assert_eq!(said, "");
    let said = leader.packet(third, Packet::Ack { zxid: z(3, 0) });
    assert!(said.starts_with("hangup Protocol"), "{said}");
}
