//! The transition table of ZAB: what each input does in each state. The test prints it into
//! `testdata/transitions.txt`. `UPDATE_TRANSCRIPTS=1 cargo test -p ironkeeper-zab transitions`
//! rewrites the file; review it as a diff.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{
    ForwardedRequest, LeaderMessage, LearnerInfo, LearnerMessage, PROTOCOL_VERSION,
};
use ironkeeper_proto::{Epoch, Packet, ServerId, SessionId};
use ironkeeper_zab::{Durable, Input, LinkId, Port};

use crate::server::*;

/// A server in the state under test, and the link on which the inputs arrive.
type State = (Server, LinkId);

/// Builds a server in a state.
type Build = fn() -> State;

/// Applies an input and returns the outputs.
type Apply = fn(&mut Server, LinkId) -> String;

fn leader_info(epoch: i64) -> Packet {
    Packet::LeaderInfo { epoch: Epoch(epoch), protocol: PROTOCOL_VERSION }
}

fn new_leader() -> Packet {
    Packet::NewLeader { epoch: Epoch(2), config: None }
}

// States of a learner. The leader is server 3, its epoch is 2, our log ends at 1:2.

fn looking() -> State {
    let mut server = Server::new(1, 2, 1, 1);
    let link = server.link();
    (server, link)
}

fn dialing() -> State {
    let mut server = Server::new(1, 2, 1, 1);
    server.votes(3, ironkeeper_proto::election::PeerState::Looking, 3, 9, 1);
    server.votes(2, ironkeeper_proto::election::PeerState::Looking, 3, 9, 1);
    let link = server.link();
    (server, link)
}

fn greeted() -> State {
    let mut server = Server::new(1, 2, 1, 1);
    let link = server.follows();
    (server, link)
}

fn promising() -> State {
    let (mut server, link) = greeted();
    server.packet(link, leader_info(2));
    (server, link)
}

fn promised() -> State {
    let (mut server, link) = promising();
    server.done(Durable::AcceptedEpoch(Epoch(2)));
    (server, link)
}

fn receiving() -> State {
    let (mut server, link) = promised();
    server.packet(link, Packet::Snap { zxid: z(1, 9) });
    (server, link)
}

fn syncing() -> State {
    let (mut server, link) = promised();
    server.packet(link, Packet::Diff { zxid: z(1, 3) });
    server.packet(link, proposal(z(1, 3)));
    server.packet(link, Packet::Commit { zxid: z(1, 3) });
    (server, link)
}

fn taking_over() -> State {
    let (mut server, link) = syncing();
    server.packet(link, new_leader());
    (server, link)
}

fn writing_current() -> State {
    let (mut server, link) = taking_over();
    server.done(Durable::Flushed(z(1, 3)));
    (server, link)
}

fn acked() -> State {
    let (mut server, link) = writing_current();
    server.done(Durable::CurrentEpoch(Epoch(2)));
    (server, link)
}

fn live() -> State {
    let (mut server, link) = acked();
    server.packet(link, Packet::UpToDate);
    server.packet(link, proposal(z(2, 1)));
    (server, link)
}

fn settling() -> State {
    let (mut server, link) = live();
    server.input(Input::Closed { link });
    (server, link)
}

const LEARNER_STATES: [Build; 12] = [
    looking,
    dialing,
    greeted,
    promising,
    promised,
    receiving,
    syncing,
    taking_over,
    writing_current,
    acked,
    live,
    settling,
];

const LEARNER_INPUTS: [(&str, Apply); 26] = [
    ("dialed", |server, link| {
        server.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) })
    }),
    ("dial failed", |server, _| {
        server.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: None })
    }),
    ("link closed", |server, link| server.input(Input::Closed { link })),
    ("learner connects", |server, _| {
        let link = server.link();
        server.input(Input::Accepted { link })
    }),
    ("10 ticks without packets", |server, _| {
        server.now_ms += 20_000;
        server.input(Input::Timer)
    }),
    ("acceptedEpoch 2 stored", |server, _| server.done(Durable::AcceptedEpoch(Epoch(2)))),
    ("currentEpoch 2 stored", |server, _| server.done(Durable::CurrentEpoch(Epoch(2)))),
    ("flushed 1:3", |server, _| server.done(Durable::Flushed(z(1, 3)))),
    ("flushed 2:1", |server, _| server.done(Durable::Flushed(z(2, 1)))),
    ("snapshot received", |server, link| server.input(Input::SnapshotReceived { link })),
    ("LEADERINFO 2", |server, link| server.packet(link, leader_info(2))),
    ("LEADERINFO 0", |server, link| server.packet(link, leader_info(0))),
    ("DIFF 1:3", |server, link| server.packet(link, Packet::Diff { zxid: z(1, 3) })),
    ("TRUNC 1:1", |server, link| server.packet(link, Packet::Trunc { zxid: z(1, 1) })),
    ("SNAP 1:9", |server, link| server.packet(link, Packet::Snap { zxid: z(1, 9) })),
    ("PROPOSAL 2:1", |server, link| server.packet(link, proposal(z(2, 1)))),
    ("PROPOSAL 2:2", |server, link| server.packet(link, proposal(z(2, 2)))),
    ("PROPOSAL 2:7", |server, link| server.packet(link, proposal(z(2, 7)))),
    ("COMMIT 1:3", |server, link| server.packet(link, Packet::Commit { zxid: z(1, 3) })),
    ("COMMIT 2:1", |server, link| server.packet(link, Packet::Commit { zxid: z(2, 1) })),
    ("INFORM 2:1", |server, link| {
        server.packet(link, Packet::Inform { zxid: z(2, 1), txn: Bytes::new() })
    }),
    ("NEWLEADER 2", |server, link| server.packet(link, new_leader())),
    ("UPTODATE", |server, link| server.packet(link, Packet::UpToDate)),
    ("PING", |server, link| server.packet(link, Packet::Ping { zxid: z(2, 1) })),
    ("SYNC", |server, link| server.packet(link, Packet::Leader(LeaderMessage::Synced))),
    ("REQUEST", |server, link| server.packet(link, request())),
];

// States of a leader. This is server 3, its log ends at 1:2, the link is the one of follower 1.

fn discovering() -> State {
    let mut server = Server::new(3, 2, 1, 1).elected(2, 1);
    let link = server.link();
    server.input(Input::Accepted { link });
    (server, link)
}

fn writing_accepted() -> State {
    let mut server = Server::new(3, 2, 1, 1).elected(2, 1);
    let (link, _) = server.greet(1, 1);
    (server, link)
}

fn awaiting_promises() -> State {
    let (mut server, link) = writing_accepted();
    server.done(Durable::AcceptedEpoch(Epoch(2)));
    (server, link)
}

fn leader_writing_current() -> State {
    let (mut server, link) = awaiting_promises();
    server.packet(link, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) });
    (server, link)
}

fn synchronizing() -> State {
    let (mut server, link) = leader_writing_current();
    server.done(Durable::CurrentEpoch(Epoch(2)));
    (server, link)
}

fn leading() -> State {
    let (mut server, link) = synchronizing();
    server.packet(link, Packet::Ack { zxid: z(2, 0) });
    server.propose(z(2, 1));
    (server, link)
}

const LEADER_STATES: [Build; 6] = [
    discovering,
    writing_accepted,
    awaiting_promises,
    leader_writing_current,
    synchronizing,
    leading,
];

const LEADER_INPUTS: [(&str, Apply); 20] = [
    ("follower 2 sends FOLLOWERINFO 1", |server, _| server.greet(2, 1).1),
    ("follower 2 sends FOLLOWERINFO 9", |server, _| server.greet(2, 9).1),
    ("observer sends OBSERVERINFO 1", |server, _| server.greet(4, 1).1),
    ("link closed", |server, link| server.input(Input::Closed { link })),
    ("1 tick", |server, _| {
        server.now_ms += 2_000;
        server.input(Input::Timer)
    }),
    ("20 ticks without packets", |server, _| {
        server.now_ms += 40_000;
        server.input(Input::Timer)
    }),
    ("acceptedEpoch 2 stored", |server, _| server.done(Durable::AcceptedEpoch(Epoch(2)))),
    ("currentEpoch 2 stored", |server, _| server.done(Durable::CurrentEpoch(Epoch(2)))),
    ("flushed 2:1", |server, _| server.done(Durable::Flushed(z(2, 1)))),
    ("FOLLOWERINFO 1", |server, link| {
        let server_id = Some(ServerId(1));
        let info = LearnerInfo { server: server_id, protocol: PROTOCOL_VERSION, config_version: 0 };
        server.packet(link, Packet::FollowerInfo { accepted: Epoch(1), info })
    }),
    ("ACKEPOCH 1:2 of 1", |server, link| {
        server.packet(link, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(1)) })
    }),
    ("ACKEPOCH 1:3 of 1", |server, link| {
        server.packet(link, Packet::AckEpoch { last: z(1, 3), current: Some(Epoch(1)) })
    }),
    ("ACK 2:0", |server, link| server.packet(link, Packet::Ack { zxid: z(2, 0) })),
    ("ACK 2:1", |server, link| server.packet(link, Packet::Ack { zxid: z(2, 1) })),
    ("PING reply", |server, link| server.packet(link, pong(z(2, 0)))),
    ("REQUEST", |server, link| server.packet(link, request())),
    ("REVALIDATE", |server, link| {
        let message = LearnerMessage::Revalidate { session: SessionId(7), timeout_ms: 4000 };
        server.packet(link, Packet::Learner(message))
    }),
    ("UPTODATE", |server, link| server.packet(link, Packet::UpToDate)),
    ("propose", |server, _| match server.zab.accepts_proposals() {
        true => server.propose(z(2, 2)),
        false => "refused".to_owned(),
    }),
    ("confirm leadership", |server, link| {
        server.sync(Some(link)).into_iter().map(|output| format!("{output:?}")).collect()
    }),
];

fn request() -> Packet {
    let request =
        ForwardedRequest { session: SessionId(7), cxid: 1, op: 5, body: Bytes::new(), auth: None };
    Packet::Learner(LearnerMessage::Request(Box::new(request)))
}

/// Prints one block for each state: the effects of the inputs (outputs and, if it differs, the next
/// state), each with the inputs that have this effect. Inputs without any effect are omitted.
fn print(table: &mut String, states: &[Build], inputs: &[(&str, Apply)]) {
    for build in states {
        let (server, _) = build();
        let state = server.zab.state_name();
        let mut effects: Vec<(String, Vec<&str>)> = Vec::new();
        for (name, apply) in inputs {
            let (mut server, link) = build();
            let mut effect = apply(&mut server, link);
            let next = server.zab.state_name();
            if next != state {
                write!(effect, " => {next}").unwrap();
            }
            match effects.iter_mut().find(|(known, _)| *known == effect) {
                Some((_, names)) => names.push(name),
                None => effects.push((effect, vec![name])),
            }
        }
        writeln!(table, "\n{state}").unwrap();
        for (effect, names) in effects.iter().filter(|(effect, _)| !effect.is_empty()) {
            writeln!(table, "  {}\n      {}", names.join(", "), effect.trim_start()).unwrap();
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares a file and can rewrite it")]
fn transitions_are_those_of_the_printed_table() {
    let mut table = String::from(
        "# For each state: inputs, and below them their outputs => next state. Votes, pings and inputs\n\
         # without an effect are omitted.\n\
         # Rewritten by UPDATE_TRANSCRIPTS=1 cargo test -p ironkeeper-zab transitions\n",
    );
    writeln!(table, "\n## A follower (server 1, log 1:2) of server 3 in epoch 2").unwrap();
    print(&mut table, &LEARNER_STATES, &LEARNER_INPUTS);
    writeln!(table, "\n## A leader (server 3, log 1:2), inputs on the link of follower 1").unwrap();
    print(&mut table, &LEADER_STATES, &LEADER_INPUTS);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/transitions.txt");
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&file, table).unwrap();
    } else {
        let expected = std::fs::read_to_string(&file).unwrap();
        assert_eq!(expected, table, "rerun with UPDATE_TRANSCRIPTS=1 and look at the diff");
    }
}
