//! One server; the test supplies all inputs.

use std::collections::BTreeMap;

use bytes::Bytes;
use ironkeeper_proto::election::{Opening, PeerState};
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Membership, Notification, Packet, ServerId, Zxid};
use ironkeeper_zab::{
    Durable, DurableStep, Ensemble, Epochs, Input, LinkId, LinkOp, LogQuery, Output, Port,
    Recovered, Settings, Upcall, Zab,
};

pub const THREE: &str = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2:observer";

pub struct Server {
    pub zab: Zab,
    pub now_ms: u64,
    pub links: u64,
    /// The election round of all servers.
    pub round: i64,
    /// The last ping on each link.
    pub pings: BTreeMap<LinkId, Zxid>,
    /// All outputs so far, as [`word`] formats them.
    pub said: Vec<String>,
}

pub fn z(epoch: i64, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

fn leader_word(message: LeaderMessage) -> String {
    match message {
        LeaderMessage::Synced => "SYNC".to_owned(),
        LeaderMessage::Revalidated { session, valid } => format!("REVALIDATE {session} {valid}"),
    }
}

/// Formats an output. Votes and dials of the election port are omitted.
pub fn word(output: Output) -> Option<String> {
    let zxid = |zxid: Zxid| format!("{}:{}", zxid.epoch(), zxid.counter());
    Some(match output {
        Output::Durable(DurableStep::Append { zxid: at, .. }) => format!("append {}", zxid(at)),
        Output::Up(Upcall::Commit { zxid: at, .. }) => format!("commit {}", zxid(at)),
        Output::Up(Upcall::FastForward { zxid: at, .. }) => format!("forward {}", zxid(at)),
        Output::Durable(DurableStep::WriteAcceptedEpoch(epoch)) => format!("accepted={epoch}"),
        Output::Durable(DurableStep::WriteCurrentEpoch(epoch)) => format!("current={epoch}"),
        Output::Durable(DurableStep::Truncate(at)) => format!("truncate {}", zxid(at)),
        Output::Durable(DurableStep::InstallSnapshot { zxid: at, .. }) => {
            format!("install {}", zxid(at))
        }
        Output::ReadLog(LogQuery { after, .. }) => format!("read-log {}", zxid(after)),
        Output::Up(Upcall::SendSnapshot { zxid: at, .. }) => format!("tree {}", zxid(at)),
        Output::Link(LinkOp::ReceiveSnapshot { .. }) => "receive".to_owned(),
        Output::Link(LinkOp::Hangup { reason, .. }) => format!("hangup {reason:?}"),
        Output::Link(LinkOp::Dial { peer, port: Port::Quorum, .. }) => format!("dial {peer}"),
        Output::Up(Upcall::Became { status, .. }) => format!("[{status:?}]"),
        Output::Link(LinkOp::Send { packet, .. }) => match packet {
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
            Packet::Leader(message) => leader_word(message),
            Packet::Ping { .. } => return None,
            other => format!("{other:?}"),
        },
        Output::Link(LinkOp::Notify { .. } | LinkOp::Dial { .. }) => return None,
        // The same membership as in the durable step.
        Output::Up(Upcall::MembersCommitted(_)) => return None,
        Output::Durable(step) => format!("{step:?}"),
        Output::Up(Upcall::FromLeader(message)) => format!("own {}", leader_word(message)),
        Output::Up(upcall) => format!("{upcall:?}"),
    })
}

impl Server {
    /// Creates server `id` with transactions 1:1 to 1:`last` and the given epochs.
    pub fn new(id: i64, last: u32, accepted: i64, current: i64) -> Server {
        Server::with(id, last, accepted, current, Settings::default())
    }

    pub fn with(id: i64, last: u32, accepted: i64, current: i64, settings: Settings) -> Server {
        Server::of(THREE, id, last, accepted, current, settings)
    }

    pub fn of(
        members: &str,
        id: i64,
        last: u32,
        accepted: i64,
        current: i64,
        settings: Settings,
    ) -> Server {
        let recovered = Recovered {
            epochs: Epochs { accepted: Epoch(accepted), current: Epoch(current) },
            last: z(1, last),
            log_from: z(1, 0),
            history: (1..=last).map(|counter| (z(1, counter), Bytes::new())).collect(),
            history_base: z(1, 0),
        };
        let ensemble = Ensemble::new(Membership::parse(members).unwrap(), None);
        let zab = Zab::member(ServerId(id), settings, ensemble, recovered, 7);
        let mut server = Server {
            zab,
            now_ms: 1000,
            links: 0,
            round: 1,
            pings: BTreeMap::new(),
            said: Vec::new(),
        };
        server.input(Input::Timer);
        server
    }

    pub fn input(&mut self, input: Input) -> String {
        let mut out = Vec::new();
        self.zab.step(self.now_ms, input, &mut out);
        for output in &out {
            if let Output::Link(LinkOp::Send { link, packet: Packet::Ping { zxid } }) = output {
                self.pings.insert(*link, *zxid);
            }
        }
        self.say(out)
    }

    fn say(&mut self, out: Vec<Output>) -> String {
        let words: Vec<String> = out.into_iter().filter_map(word).collect();
        self.said.extend_from_slice(&words);
        words.join(", ")
    }

    pub fn link(&mut self) -> LinkId {
        self.links += 1;
        LinkId(self.links)
    }

    pub fn votes(
        &mut self,
        from: i64,
        state: PeerState,
        leader: i64,
        last: u32,
        epoch: i64,
    ) -> String {
        let link = self.link();
        let opening = Opening { from: ServerId(from), addresses: vec!["h:3".to_owned()] };
        self.input(Input::Opened { link, opening, from_its_address: true });
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

    /// Servers 1 and 2 vote for server 3, which is this one.
    pub fn elected(mut self, last: u32, epoch: i64) -> Server {
        self.elect(last, epoch);
        self
    }

    pub fn elect(&mut self, last: u32, epoch: i64) {
        self.votes(1, PeerState::Looking, 3, last, epoch);
        self.votes(2, PeerState::Looking, 3, last, epoch);
    }

    /// A learner connects and sends FOLLOWERINFO or OBSERVERINFO.
    pub fn greet(&mut self, from: i64, accepted: i64) -> (LinkId, String) {
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

    pub fn packet(&mut self, link: LinkId, packet: Packet) -> String {
        self.input(Input::Packet { link, packet })
    }

    /// A learner replies to the last ping on its link.
    pub fn answers(&mut self, link: LinkId) -> String {
        let zxid = self.pings[&link];
        self.packet(link, pong(zxid))
    }

    pub fn done(&mut self, durable: Durable) -> String {
        self.input(Input::Done(durable))
    }

    pub fn sync(&mut self, link: Option<LinkId>) -> Vec<Output> {
        let mut out = Vec::new();
        self.zab.reply_confirmed(link, LeaderMessage::Synced, &mut out);
        out
    }

    /// Proposes the next transaction, which must have this zxid.
    #[track_caller]
    pub fn propose(&mut self, zxid: Zxid) -> String {
        let mut out = Vec::new();
        let proposer = self.zab.proposer().expect("an established leader");
        assert_eq!(proposer.zxid(), zxid);
        proposer.propose(Bytes::new(), &mut out);
        self.say(out)
    }

    /// Elects server 3 and connects to it; FOLLOWERINFO is sent.
    pub fn follows(&mut self) -> LinkId {
        self.votes(3, PeerState::Looking, 3, 9, 1);
        self.votes(2, PeerState::Looking, 3, 9, 1);
        let link = self.link();
        self.input(Input::Dialed { peer: ServerId(3), port: Port::Quorum, link: Some(link) });
        link
    }
}

pub fn proposal(zxid: Zxid) -> Packet {
    Packet::Proposal { zxid, txn: Bytes::new() }
}

/// An established leader of epoch 3 with followers 1 and 2.
pub fn established() -> (Server, LinkId, LinkId) {
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

/// Creates the reply of a learner to a ping with this zxid.
pub fn pong(zxid: Zxid) -> Packet {
    Packet::Pong { zxid, report: Bytes::new() }
}
