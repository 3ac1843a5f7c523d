//! One server, driven by hand: what it says, in which order, and what it does not say before its disk has
//! answered. Most of these are ways in which ZooKeeper has once lost data or come to a halt.

use bytes::Bytes;
use ironkeeper_proto::election::{Opening, PeerState};
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Membership, Notification, Packet, ServerId, Zxid};
use ironkeeper_zab::{
    Durable, Ensemble, Epochs, Input, LinkId, Output, Port, Recovered, Settings, Zab,
};

const THREE: &str = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2:observer";

struct Server {
    zab: Zab,
    now_ms: u64,
    links: u64,
    /// The round of the election everybody is in.
    round: i64,
}

fn z(epoch: i64, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

/// An output in few words. Votes and dials of the election port are left out.
fn word(output: Output) -> Option<String> {
    let zxid = |zxid: Zxid| format!("{}:{}", zxid.epoch(), zxid.counter());
    Some(match output {
        Output::Append { zxid: at, .. } => format!("append {}", zxid(at)),
        Output::Commit { zxid: at, .. } => format!("commit {}", zxid(at)),
        Output::FastForward { zxid: at, .. } => format!("forward {}", zxid(at)),
        Output::WriteAcceptedEpoch(epoch) => format!("accepted={epoch}"),
        Output::WriteCurrentEpoch(epoch) => format!("current={epoch}"),
        Output::Truncate(at) => format!("truncate {}", zxid(at)),
        Output::InstallSnapshot { zxid: at, .. } => format!("install {}", zxid(at)),
        Output::ReadLog { after, .. } => format!("read-log {}", zxid(after)),
        Output::SendSnapshot { zxid: at, .. } => format!("tree {}", zxid(at)),
        Output::ReceiveSnapshot { .. } => "receive".to_owned(),
        Output::Hangup { reason, .. } => format!("hangup {reason:?}"),
        Output::Dial { peer, port: Port::Quorum, .. } => format!("dial {peer}"),
        Output::Became { status, .. } => format!("[{status:?}]"),
        Output::Send { packet, .. } => match packet {
            Packet::LeaderInfo { epoch, .. } => format!("LEADERINFO {epoch}"),
            Packet::AckEpoch { last, current } => {
                format!("ACKEPOCH {} {:?}", zxid(last), current.map(|epoch| epoch.0))
            }
            Packet::Ack { zxid: at } => format!("ACK {}", zxid(at)),
            Packet::Diff { zxid: at } => format!("DIFF {}", zxid(at)),
            Packet::Trunc { zxid: at } => format!("TRUNC {}", zxid(at)),
            Packet::Snap { zxid: at } => format!("SNAP {}", zxid(at)),
            Packet::Proposal { zxid: at, .. } => format!("PROPOSAL {}", zxid(at)),
            Packet::Commit { zxid: at } => format!("COMMIT {}", zxid(at)),
            Packet::Inform { zxid: at, .. } => format!("INFORM {}", zxid(at)),
            Packet::NewLeader { epoch, .. } => format!("NEWLEADER {epoch}"),
            Packet::UpToDate => "UPTODATE".to_owned(),
            Packet::FollowerInfo { accepted, .. } => format!("FOLLOWERINFO {accepted}"),
            Packet::Sync => "SYNC".to_owned(),
            Packet::Ping { .. } => return None,
            other => format!("{other:?}"),
        },
        Output::Notify { .. } | Output::Dial { .. } => return None,
        other => format!("{other:?}"),
    })
}

impl Server {
    /// Server `id` with transactions 1:1 to 1:`last` and the epochs given.
    fn new(id: i64, last: u32, accepted: i64, current: i64) -> Server {
        Server::with(id, last, accepted, current, Settings::default())
    }

    fn with(id: i64, last: u32, accepted: i64, current: i64, settings: Settings) -> Server {
        let recovered = Recovered {
            epochs: Epochs { accepted: Epoch(accepted), current: Epoch(current) },
            last: z(1, last),
            log_from: z(1, 0),
            history: (1..=last).map(|counter| (z(1, counter), Bytes::new())).collect(),
            history_base: z(1, 0),
        };
        let ensemble = Ensemble::new(Membership::parse(THREE).unwrap(), None);
        let zab = Zab::member(ServerId(id), settings, ensemble, recovered, 7);
        let mut server = Server { zab, now_ms: 1000, links: 0, round: 1 };
        server.input(Input::Timer);
        server
    }

    fn input(&mut self, input: Input) -> String {
        let mut out = Vec::new();
        self.zab.step(self.now_ms, input, &mut out);
        out.into_iter().filter_map(word).collect::<Vec<_>>().join(", ")
    }

    fn link(&mut self) -> LinkId {
        self.links += 1;
        LinkId(self.links)
    }

    fn votes(&mut self, from: i64, state: PeerState, leader: i64, last: u32, epoch: i64) -> String {
        let link = self.link();
        let opening = Opening { from: ServerId(from), addresses: vec!["h:3".to_owned()] };
        self.input(Input::Opened { link, opening });
        // The larger id dials.
        self.input(Input::Dialed { peer: ServerId(from), port: Port::Election, link: Some(link) });
        let notification = Notification {
            state,
            leader: ServerId(leader),
            zxid: z(1, last),
            round: self.round,
            peer_epoch: Epoch(epoch),
            format: 2,
            config: Bytes::new(),
        };
        self.input(Input::Notification { link, notification })
    }

    /// Everybody votes for server 3, which is this one.
    fn elected(mut self, last: u32, epoch: i64) -> Server {
        self.votes(1, PeerState::Looking, 3, last, epoch);
        self.votes(2, PeerState::Looking, 3, last, epoch);
        self
    }

    /// A learner comes and says who it is.
    fn greet(&mut self, from: i64, accepted: i64) -> (LinkId, String) {
        let link = self.link();
        self.input(Input::Accepted { link });
        let info = LearnerInfo {
            server: Some(ServerId(from)),
            protocol: PROTOCOL_VERSION,
            config_version: 0,
        };
        let accepted = Epoch(accepted);
        let packet = match from {
            4 => Packet::ObserverInfo { accepted, info },
            _ => Packet::FollowerInfo { accepted, info },
        };
        (link, self.packet(link, packet))
    }

    fn packet(&mut self, link: LinkId, packet: Packet) -> String {
        self.input(Input::Packet { link, packet })
    }

    fn done(&mut self, durable: Durable) -> String {
        self.input(Input::Done(durable))
    }

    /// Follows server 3 and has said so.
    fn follows(&mut self) -> LinkId {
        self.votes(3, PeerState::Looking, 3, 9, 1);
        self.votes(2, PeerState::Looking, 3, 9, 1);
        let link = self.link();
        self.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) });
        link
    }
}

fn proposal(zxid: Zxid) -> Packet {
    Packet::Proposal { zxid, txn: Bytes::new() }
}

/// An established leader of epoch 3 with followers 1 and 2.
fn established() -> (Server, LinkId, LinkId) {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    let (one, _) = leader.greet(1, 2);
    let (two, _) = leader.greet(2, 1);
    leader.done(Durable::AcceptedEpoch(Epoch(3)));
    let ack = |last| Packet::AckEpoch { last, current: Some(Epoch(1)) };
    leader.packet(one, ack(z(1, 2)));
    leader.packet(two, ack(z(1, 2)));
    leader.done(Durable::CurrentEpoch(Epoch(3)));
    leader.packet(one, Packet::Ack { zxid: z(3, 0) });
    leader.packet(two, Packet::Ack { zxid: z(3, 0) });
    (leader, one, two)
}

/// ZOOKEEPER-335, 1343.
#[test]
fn an_epoch_is_larger_than_every_promise_and_is_told_only_when_it_is_written_down() {
    let mut leader = Server::new(3, 2, 1, 1).elected(2, 1);
    // An observer's promise counts for the number, but not for the quorum.
    let (_, said) = leader.greet(4, 6);
    assert_eq!(said, "");
    let (_, said) = leader.greet(1, 2);
    assert_eq!(said, "accepted=7");
    let said = leader.done(Durable::AcceptedEpoch(Epoch(7)));
    assert_eq!(said, "LEADERINFO 7, LEADERINFO 7");
    // Whoever comes later is told at once.
    assert_eq!(leader.greet(2, 5).1, "LEADERINFO 7");
    // Whoever has promised more can follow only the next one.
    let (_, said) = leader.greet(2, 9);
    assert_eq!(said, "hangup Replaced, hangup RoleEnded, hangup RoleEnded, hangup RoleEnded");
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
    let mut out = Vec::new();
    let zxid = leader.zab.next_zxid();
    assert_eq!(zxid, z(3, 1));
    leader.zab.propose(zxid, Bytes::new(), &mut out);
    let said: Vec<String> = out.drain(..).filter_map(word).collect();
    assert_eq!(said, ["PROPOSAL 3:1", "PROPOSAL 3:1", "append 3:1"]);
    assert_eq!(leader.packet(one, Packet::Ack { zxid }), "");
    assert_eq!(leader.done(Durable::Flushed(zxid)), "commit 3:1, COMMIT 3:1, COMMIT 3:1");
}

#[test]
fn two_followers_commit_even_before_the_leaders_own_disk() {
    let (mut leader, one, two) = established();
    let zxid = leader.zab.next_zxid();
    leader.zab.propose(zxid, Bytes::new(), &mut Vec::new());
    assert_eq!(leader.packet(one, Packet::Ack { zxid }), "");
    let said = leader.packet(two, Packet::Ack { zxid });
    assert_eq!(said, "commit 3:1, COMMIT 3:1, COMMIT 3:1");
    // Repeated, unknown and future acknowledgements say nothing.
    assert_eq!(leader.packet(two, Packet::Ack { zxid }), "");
    assert_eq!(leader.packet(two, Packet::Ack { zxid: z(3, 9) }), "");
}

/// ZOOKEEPER-4394, 962.
#[test]
fn a_late_learner_gets_each_proposal_once_and_every_commit() {
    let (mut leader, one, _) = established();
    let propose = |server: &mut Server| {
        let zxid = server.zab.next_zxid();
        let mut out = Vec::new();
        server.zab.propose(zxid, Bytes::new(), &mut out);
        out.into_iter().filter_map(word).collect::<Vec<_>>().join(", ")
    };
    propose(&mut leader);
    let (observer, said) = leader.greet(4, 1);
    assert_eq!(said, "LEADERINFO 3");
    let ack = Packet::AckEpoch { last: z(1, 1), current: Some(Epoch(1)) };
    let said = leader.packet(observer, ack);
    assert_eq!(said, "DIFF 1:2, PROPOSAL 1:2, COMMIT 1:2, NEWLEADER 3");
    // It is not up to date yet, and hears of the commit all the same.
    leader.packet(one, Packet::Ack { zxid: z(3, 1) });
    let said = leader.done(Durable::Flushed(z(3, 1)));
    assert_eq!(said, "commit 3:1, COMMIT 3:1, COMMIT 3:1, INFORM 3:1");
    // A follower comes back: what is outstanding is proposed to it again, behind the history.
    propose(&mut leader);
    let (_, said) = leader.greet(1, 3);
    assert_eq!(said, "hangup Replaced, LEADERINFO 3");
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
    leader.zab.propose(z(2, 1), Bytes::new(), &mut Vec::new());
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
    // A proposal of the new epoch waits until the epoch is ours.
    assert_eq!(follower.packet(link, proposal(z(2, 1))), "");
    let new_leader = Packet::NewLeader { epoch: Epoch(2), config: None };
    assert_eq!(follower.packet(link, new_leader), "append 1:3, append 1:4");
    assert_eq!(follower.done(Durable::Flushed(z(1, 3))), "");
    assert_eq!(follower.done(Durable::Flushed(z(1, 4))), "current=2");
    // A ping now is not answered: the leader would take it for the acknowledgement.
    assert_eq!(follower.packet(link, Packet::Ping { zxid: z(2, 1) }), "");
    assert_eq!(follower.done(Durable::CurrentEpoch(Epoch(2))), "ACK 2:0");
    // A commit for what is not in our log yet is remembered.
    assert_eq!(follower.packet(link, Packet::Commit { zxid: z(2, 1) }), "");
    assert_eq!(
        follower.packet(link, Packet::UpToDate),
        "ACK 2:0, [Following { leader: 3, epoch: Epoch(2) }], append 2:1, commit 1:3, commit 1:4, \
         commit 2:1"
    );
    assert_eq!(follower.done(Durable::Flushed(z(2, 1))), "ACK 2:1");
    // And then one by one.
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
    assert_eq!(follower.input(Input::Closed { link }), "");
    // The tree was never exchanged: we vote with what our own log has.
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
    // What was logged is brought into the tree, though nobody has committed it.
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
    // No leader has that: it sends everything. Nothing of ours is gone until it is here.
    assert_eq!(follower.packet(link, info), "ACKEPOCH 3:0 None");
    follower.packet(link, Packet::Snap { zxid: z(1, 3) });
    follower.input(Input::SnapshotReceived { link });
    let new_leader = Packet::NewLeader { epoch: Epoch(2), config: None };
    assert_eq!(follower.packet(link, new_leader), "install 1:3");
    assert_eq!(follower.done(Durable::Installed(z(1, 3))), "current=2");
}

/// ZOOKEEPER-2418, 2846.
#[test]
fn a_hole_in_a_leaders_history_is_not_taken_over() {
    let mut follower = Server::new(1, 2, 1, 1);
    let link = follower.follows();
    follower.packet(link, Packet::LeaderInfo { epoch: Epoch(2), protocol: PROTOCOL_VERSION });
    follower.done(Durable::AcceptedEpoch(Epoch(2)));
    follower.packet(link, Packet::Diff { zxid: z(1, 9) });
    assert_eq!(follower.packet(link, proposal(z(1, 4))), "hangup RoleEnded");
}

#[test]
fn a_leader_of_an_older_epoch_is_left() {
    let mut follower = Server::new(1, 2, 5, 1);
    let link = follower.follows();
    let info = Packet::LeaderInfo { epoch: Epoch(4), protocol: PROTOCOL_VERSION };
    assert_eq!(follower.packet(link, info), "hangup RoleEnded");
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
