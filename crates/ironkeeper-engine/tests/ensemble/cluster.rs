//! Several servers in one thread, with their engines, disks and the network between them.
//!
//! Nothing runs by itself: [`Cluster::settle`] processes everything that needs no time,
//! [`Cluster::advance`] moves the clock from one deadline to the next.

use std::sync::Arc;

use ironkeeper_engine::conn::Submit;
use ironkeeper_engine::database::Serving;
use ironkeeper_engine::io::Warning;
use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_engine::{
    Database, Engine, EngineConfig, Input, LogItem, MemberStart, Now, Output, ToPeers,
};
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::packet_len;
use ironkeeper_proto::{Membership, OpCode, Packet, ServerId, SessionId, Zxid};
use ironkeeper_zab::{Ensemble, Input as ZabInput, LinkId, LinkOp, LogQuery, Port, Settings};

use crate::disk::Disk;
use crate::network::{Message, Network};
use crate::world::{Client, Host};

/// A bound on the events of one [`Cluster::settle`]; no test needs so many.
const EVENTS_MAX: usize = 1_000_000;

pub struct Node {
    pub id: ServerId,
    pub config: EngineConfig,
    pub settings: Settings,
    pub engine: Option<Engine>,
    pub db: Arc<Database>,
    pub disk: Disk,
    pub warnings: Vec<Warning>,
    /// Snapshots for learners that are not yet on the wire.
    pub unsent: Vec<(LinkId, Box<SnapshotJob>)>,
    /// Packets that follow these snapshots.
    behind: Vec<(LinkId, Packet)>,
    /// Keeps snapshots in `unsent` until [`Cluster::send_trees`] is called.
    pub hold_trees: bool,
    /// The snapshot that is being written.
    snapshot: Option<Box<SnapshotJob>>,
    /// Keeps `snapshot` unfinished until [`Cluster::finish_snapshot`] is called.
    pub hold_snapshots: bool,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub now: Now,
    pub network: Network,
    next_conn: u64,
}

/// A handle to one of the servers, for its clients.
pub struct Seat<'a> {
    cluster: &'a mut Cluster,
    node: usize,
}

pub fn membership(voters: i64, observers: i64) -> Membership {
    let lines = (1..=voters + observers).map(|id| {
        let role = if id <= voters { "participant" } else { "observer" };
        format!("server.{id}=h{id}:2888:3888:{role};h{id}:2181\n")
    });
    Membership::parse(&lines.collect::<String>()).unwrap()
}

impl Cluster {
    /// Creates a running ensemble of three voters with a leader.
    pub fn three() -> Cluster {
        Cluster::elected(3, 0, |_| {})
    }

    /// Creates a running ensemble; `change` is called for each node before its start.
    pub fn elected(voters: i64, observers: i64, change: impl Fn(&mut Node)) -> Cluster {
        let mut cluster = Cluster::of(&membership(voters, observers), voters + observers, change);
        for node in 0..cluster.nodes.len() {
            cluster.start(node);
        }
        let servers = cluster.nodes.len();
        cluster.until("everybody serves", |cluster| cluster.serving() == servers);
        cluster
    }

    /// Creates servers without starting them.
    pub fn of(members: &Membership, servers: i64, change: impl Fn(&mut Node)) -> Cluster {
        let now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        let node = |id: i64| {
            let disk = Disk::new(Ensemble::new(members.clone(), None));
            let config = EngineConfig { server_id: id as u8, ..EngineConfig::default() };
            // A placeholder: replaced when the server is started.
            let (_, db) = Engine::new(config.clone(), disk.state(), 7, now);
            let mut node = Node {
                id: ServerId(id),
                config,
                settings: Settings::default(),
                engine: None,
                db,
                disk,
                warnings: Vec::new(),
                unsent: Vec::new(),
                behind: Vec::new(),
                hold_trees: false,
                snapshot: None,
                hold_snapshots: false,
                inputs: Vec::new(),
                outputs: Vec::new(),
            };
            change(&mut node);
            node
        };
        Cluster {
            nodes: (1..=servers).map(node).collect(),
            now,
            network: Network::default(),
            next_conn: 0,
        }
    }

    pub fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        assert!(node.engine.is_none(), "it runs");
        let member = MemberStart {
            me: node.id,
            settings: node.settings.clone(),
            ensemble: node.disk.ensemble.clone(),
            recovered: node.disk.recovered(),
        };
        let seed = 7 + node.id.0 as u64;
        let (engine, db) =
            Engine::member(node.config.clone(), node.disk.state(), member, seed, self.now);
        (node.engine, node.db) = (Some(engine), db);
        self.tick(at);
    }

    /// Kills the process. Completed steps stay on the disk, queued steps are lost.
    pub fn kill(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.engine = None;
        node.disk.lose_queue();
        node.unsent.clear();
        node.behind.clear();
        for link in self.network.links_of(at) {
            self.network.close(at, link);
        }
    }

    /// Isolates a server from all others and closes its links.
    pub fn isolate(&mut self, at: usize) {
        self.network.isolate(at);
        for link in self.network.links_of(at) {
            for end in self.network.sever(link) {
                self.nodes[end].inputs.push(Input::Peer(ZabInput::Closed { link }));
            }
        }
    }

    // Time.

    /// Lets `ms` pass and processes everything that becomes due.
    pub fn advance(&mut self, ms: u64) {
        let until_ms = self.now.mono_ms + ms;
        self.settle();
        loop {
            let engines = self.nodes.iter().filter_map(|node| node.engine.as_ref());
            let next_ms = engines.map(Engine::deadline_ms).min().unwrap_or(u64::MAX);
            let next_ms = next_ms.max(self.now.mono_ms + 1);
            let at_ms = next_ms.min(until_ms);
            self.now.wall_ms += (at_ms - self.now.mono_ms) as i64;
            self.now.mono_ms = at_ms;
            for node in 0..self.nodes.len() {
                self.tick(node);
            }
            self.settle();
            if next_ms >= until_ms {
                return;
            }
        }
    }

    /// Lets time pass in which only the servers' timers run.
    pub fn advance_clocks(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
        for node in 0..self.nodes.len() {
            self.tick(node);
        }
    }

    /// Lets time pass until `is_so` returns true; panics after a minute.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Cluster) -> bool) {
        for _ in 0..6000 {
            self.settle();
            if is_so(self) {
                return;
            }
            self.advance(10);
        }
        panic!("it did not come to pass that {what}");
    }

    fn tick(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if let Some(engine) = &mut node.engine {
            engine.on_timer(self.now, &mut node.outputs);
            engine.settle(self.now, &mut node.outputs);
        }
        self.perform(at);
    }

    /// Processes everything that needs no time.
    pub fn settle(&mut self) {
        for _ in 0..EVENTS_MAX {
            let mut idle = true;
            for node in 0..self.nodes.len() {
                while self.work(node) {
                    idle = false;
                }
            }
            if let Some((to, link, message)) = self.network.arrive(0) {
                idle = false;
                self.deliver(to, link, message);
            }
            if idle {
                return;
            }
        }
        panic!("servers that never stop talking to each other");
    }

    /// Processes one event selected by the random number `draw`: a server runs or a message
    /// arrives.
    pub fn happen(&mut self, draw: usize) {
        let node = draw % (2 * self.nodes.len());
        if node < self.nodes.len() {
            self.work(node);
        } else if let Some((to, link, message)) = self.network.arrive(draw / 8) {
            self.deliver(to, link, message);
        }
    }

    fn work(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let Some(engine) = &mut node.engine else {
            node.inputs.clear();
            return false;
        };
        node.inputs.extend(node.disk.work().map(Input::Durable));
        if node.inputs.is_empty() {
            return !node.disk.is_held && !node.disk.queue.is_empty();
        }
        engine.step(self.now, &mut node.inputs, &mut node.outputs);
        engine.settle(self.now, &mut node.outputs);
        self.perform(at);
        true
    }

    fn input(&mut self, at: usize, input: ZabInput) {
        self.nodes[at].inputs.push(Input::Peer(input));
        while self.work(at) {}
    }

    // The network.

    fn deliver(&mut self, to: usize, link: LinkId, message: Message) {
        match message {
            Message::Dial { from, port } => self.on_dial(from, to, link, port),
            Message::Opening(opening) => {
                self.input(to, ZabInput::Opened { link, opening, from_its_address: true });
            }
            Message::Notification(notification) => {
                self.input(to, ZabInput::Notification { link, notification });
            }
            Message::Packet(packet) => self.input(to, ZabInput::Packet { link, packet }),
            Message::Tree(tree) => {
                self.nodes[to].disk.received = tree;
                self.input(to, ZabInput::SnapshotReceived { link });
            }
            Message::End => self.input(to, ZabInput::Closed { link }),
        }
    }

    fn on_dial(&mut self, from: usize, to: usize, link: LinkId, port: Port) {
        let (id, peer) = (self.nodes[from].id, self.nodes[to].id);
        let alive = self.nodes[to].engine.is_some() && self.nodes[from].engine.is_some();
        if !alive || !self.network.open(from, to, link) {
            return self.input(from, ZabInput::Dialed { peer, port, link: None });
        }
        match port {
            Port::Election => {
                let opening = Opening { from: id, addresses: vec![format!("h{id}:3888")] };
                self.network.send(from, link, Message::Opening(opening));
            }
            Port::Quorum => self.input(to, ZabInput::Accepted { link }),
        }
        self.input(from, ZabInput::Dialed { peer, port, link: Some(link) });
    }

    // Outputs of the engines.

    fn perform(&mut self, at: usize) {
        let outputs = std::mem::take(&mut self.nodes[at].outputs);
        for output in outputs {
            let node = &mut self.nodes[at];
            match output {
                Output::Log(LogItem::Step(step)) => node.disk.queue.push_back(step),
                Output::Halt(reason) => panic!("server {} halted: {reason}", node.id),
                Output::Warn(warning) => node.warnings.push(warning),
                Output::Log(LogItem::Roll) | Output::Wake(_) | Output::SessionEnded(_) => {}
                Output::Snapshot(job) => {
                    node.snapshot = Some(job);
                    if !node.hold_snapshots {
                        self.finish_snapshot(at);
                    }
                }
                Output::Peers(ToPeers::Role { .. }) => {}
                Output::Peers(ToPeers::SendSnapshot { link, job }) => {
                    node.unsent.push((link, job));
                    if !node.hold_trees {
                        self.send_trees(at);
                    }
                }
                Output::Peers(ToPeers::ReadLog(LogQuery { link, after })) => {
                    let read = node.disk.read_log(after);
                    node.inputs.push(Input::Peer(ZabInput::LogRead { link, read }));
                }
                Output::Peers(ToPeers::Link(op)) => self.perform_link(at, op),
            }
        }
    }

    fn perform_link(&mut self, at: usize, op: LinkOp) {
        match op {
            LinkOp::Dial { peer, port, .. } => {
                match self.nodes.iter().position(|node| node.id == peer) {
                    Some(to) => self.network.dial(at, to, port),
                    None => self.nodes[at].inputs.push(Input::Peer(ZabInput::Dialed {
                        peer,
                        port,
                        link: None,
                    })),
                }
            }
            LinkOp::Hangup { link, .. } => self.network.close(at, link),
            LinkOp::Notify { link, notification } => {
                self.network.send(at, link, Message::Notification(*notification));
            }
            LinkOp::Send { link, packet } => {
                let mut bytes = Vec::new();
                packet.encode(&mut bytes);
                let read = packet_len(&bytes, self.nodes[at].config.field_bytes_max);
                assert_eq!(read, Ok(Some(bytes.len())), "nobody reads a packet so long");
                let held = self.nodes[at].unsent.iter().any(|(on, _)| *on == link);
                match held {
                    true => self.nodes[at].behind.push((link, packet)),
                    false => self.network.send(at, link, Message::Packet(packet)),
                }
            }
            LinkOp::ReceiveSnapshot { .. } => {}
        }
    }

    /// Writes the waiting snapshot; returns false if its tree was replaced meanwhile.
    pub fn finish_snapshot(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let job = node.snapshot.take().expect("a snapshot is being written");
        let (zxid, tree, walk) = encode(&node.db, *job);
        node.inputs.push(Input::SnapshotDone(walk));
        let is_whole = tree.is_some();
        if let Some(tree) = tree {
            node.disk.keep_snapshot(zxid, tree);
        }
        is_whole
    }

    /// Makes a server write a snapshot.
    pub fn snapshot(&mut self, at: usize) {
        self.nodes[at].inputs.push(Input::TakeSnapshot);
        self.settle();
    }

    /// Ends a session at a server, as the administrator does.
    pub fn expire(&mut self, at: usize, session: SessionId) {
        self.nodes[at].inputs.push(Input::ExpireSession(session));
        self.settle();
    }

    /// Puts the waiting snapshots on the wire, then the packets that follow them.
    pub fn send_trees(&mut self, at: usize) {
        for (link, job) in std::mem::take(&mut self.nodes[at].unsent) {
            let (_, tree, walk) = encode(&self.nodes[at].db, *job);
            match tree {
                Some(tree) => self.network.send(at, link, Message::Tree(tree)),
                None => self.network.close(at, link),
            }
            self.nodes[at].inputs.push(Input::SnapshotSent(walk));
        }
        for (link, packet) in std::mem::take(&mut self.nodes[at].behind) {
            self.network.send(at, link, Message::Packet(packet));
        }
    }

    // Inspection.

    /// Returns the number of servers that serve clients.
    pub fn serving(&self) -> usize {
        let running = self.nodes.iter().filter(|node| node.engine.is_some());
        running.filter(|node| node.db.serving() == Serving::Yes).count()
    }

    /// Returns the leader.
    pub fn leader(&self) -> usize {
        let leads = |node: &Node| {
            let status = node.engine.as_ref().map(|engine| engine.zab().status());
            matches!(status, Some(ironkeeper_zab::Status::Leading { .. }))
        };
        self.nodes.iter().position(leads).expect("somebody leads")
    }

    /// Returns the first server that does not lead: a follower or an observer.
    pub fn follower(&self) -> usize {
        (0..self.nodes.len()).find(|node| *node != self.leader()).expect("somebody follows")
    }

    pub fn at(&mut self, node: usize) -> Seat<'_> {
        Seat { cluster: self, node }
    }

    /// Returns the data of a node at each running server; `None` where the node does not exist.
    pub fn data(&self, path: &str) -> Vec<Option<String>> {
        let running = self.nodes.iter().filter(|node| node.engine.is_some());
        let data = |node: &Node| {
            let state = node.db.read();
            let bytes = state.tree.find(path)?.data().unwrap_or_default().to_vec();
            Some(String::from_utf8(bytes).unwrap())
        };
        running.map(data).collect()
    }

    /// Asserts that all running servers have the same tree and the same sessions, and that no
    /// server counted a digest mismatch or emitted a warning.
    pub fn assert_same(&self) {
        let mut seen = None;
        for node in self.nodes.iter().filter(|node| node.engine.is_some()) {
            let state = node.db.read();
            let here = (state.applied(), state.tree.digest(), state.sessions.sorted());
            let stats = &node.db.stats;
            let mismatches = stats.digest_mismatches.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!((mismatches, &node.warnings), (0, &Vec::new()), "server {}", node.id);
            assert_eq!(*seen.get_or_insert_with(|| here.clone()), here, "server {}", node.id);
        }
    }

    pub fn applied(&self, at: usize) -> Zxid {
        self.nodes[at].db.read().applied()
    }

    /// Lets time pass while these clients send pings.
    pub fn advance_with(&mut self, ms: u64, clients: &mut [(usize, &mut Client)]) {
        for _ in 0..ms / 500 {
            self.advance(500);
            for (node, client) in clients.iter_mut() {
                client.call(&mut self.at(*node), OpCode::Ping, &[]);
            }
        }
    }
}

fn encode(
    db: &Database,
    mut job: SnapshotJob,
) -> (Zxid, Option<Vec<u8>>, ironkeeper_tree::SnapshotWalk) {
    let mut tree = Vec::new();
    job.encode_learner_head(&mut tree);
    loop {
        match job.next_slice(db, &mut tree) {
            Slice::More => {}
            Slice::Done => break,
            Slice::Lost => return (job.zxid(), None, job.into_walk()),
        }
    }
    job.encode_learner_tail(&mut tree);
    (job.zxid(), Some(tree), job.into_walk())
}

impl Host for Seat<'_> {
    fn now(&self) -> Now {
        self.cluster.now
    }

    fn db(&self) -> &Database {
        &self.cluster.nodes[self.node].db
    }

    fn submit(&mut self, submits: Vec<Submit>) {
        let inputs = submits.into_iter().map(Input::Submit);
        self.cluster.nodes[self.node].inputs.extend(inputs);
        // Only this server runs: the messages it sends wait for `sync`.
        while self.cluster.work(self.node) {}
    }

    fn sync(&mut self) {
        self.cluster.settle();
    }

    fn next_conn(&mut self) -> u64 {
        self.cluster.next_conn += 1;
        self.cluster.next_conn
    }
}
