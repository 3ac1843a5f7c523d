//! SIGKILL at random times, repeatedly: all acknowledged writes survive, and of the unacknowledged
//! writes a prefix.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ironkeeper_proto::CreateMode;

use crate::client::{Client, Op, Random, Session, TIMEOUT_MS};
use crate::server_process::Setup;

const ROUNDS: usize = 10;
const WRITERS: usize = 4;
const IN_FLIGHT: usize = 32;
/// A round is killed after at most this many acknowledged writes of all writers.
const ACKS_MAX: usize = 1500;
/// Frequent snapshots and new log files; small files; values of several pages, so that a write to
/// the log can be torn.
const SETTINGS: &str = "snapCount=60\npreAllocSize=64";
const VALUE_BYTES_MAX: usize = 3000;
/// The oldest nodes are deleted when there are more.
const NODES_MAX: usize = 40;

#[test]
fn nothing_acknowledged_is_lost_by_killing_the_server_again_and_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), SETTINGS);
    let mut random = Random::new(2181);
    let mut server = setup.start();
    let mut logs = String::new();
    let mut closed = Vec::new();
    Client::connect(server.address).create("/k", b"");
    let mut writers: Vec<Writer> =
        (0..WRITERS).map(|number| Writer::new(number, server.address)).collect();
    for round in 0..ROUNDS {
        closed.push(open_and_close(server.address, round));
        let kill_after = 1 + random.below(ACKS_MAX);
        let acks = AtomicUsize::new(0);
        let (enough, is_enough) = mpsc::channel();
        thread::scope(|scope| {
            for writer in &mut writers {
                let (acks, enough) = (&acks, enough.clone());
                scope.spawn(move || {
                    writer.run(|| {
                        if acks.fetch_add(1, Ordering::AcqRel) + 1 == kill_after {
                            enough.send(()).expect("the test waits for it");
                        }
                    });
                });
            }
            is_enough.recv().expect("a writer that counts");
            // A random delay, so that the kill does not always follow an acknowledgement.
            thread::sleep(Duration::from_micros(random.below(3000) as u64));
            logs += &server.kill();
        });
        for _ in 0..random.below(3) {
            // Recovery may also be killed.
            let starting = setup.spawn(0);
            thread::sleep(Duration::from_micros(random.below(20_000) as u64));
            logs += &starting.kill();
        }
        server = setup.start();
        let mut reader = Client::connect(server.address);
        for session in &closed {
            assert!(Client::open(server.address, *session).is_err(), "{session:?} was closed");
        }
        assert!(!reader.children("/k").iter().any(|name| name.starts_with("closed")));
        for writer in &mut writers {
            writer.reattach(server.address);
            writer.check(&mut reader, round);
        }
    }
    let (status, log) = server.terminate();
    logs += &log;
    assert!(status.success(), "{status}");
    let mut server = setup.start();
    let mut reader = Client::connect(server.address);
    for writer in &mut writers {
        writer.reattach(server.address);
        writer.check(&mut reader, ROUNDS);
    }
    server = {
        logs += &server.kill();
        setup.start()
    };
    logs += &server.kill();
    for bad in ["digest", "panicked", "was not used", "ERROR"] {
        assert!(!logs.contains(bad), "{bad} in the log:\n{logs}");
    }
    let torn = logs.matches("never finished").count();
    let (snapshots, log_files) = (count(dir.path(), "snapshot."), count(dir.path(), "log."));
    println!("{snapshots} snapshots, {log_files} log files, {torn} torn tails in {ROUNDS} rounds");
    assert!(snapshots > ROUNDS && log_files > ROUNDS, "{snapshots} and {log_files}");
}

fn count(dir: &Path, prefix: &str) -> usize {
    let files = std::fs::read_dir(dir.join("data/version-2")).expect("the data directory");
    files
        .filter(|file| {
            file.as_ref().is_ok_and(|file| file.file_name().to_string_lossy().starts_with(prefix))
        })
        .count()
}

/// Opens a session and closes it with an acknowledgement.
fn open_and_close(address: SocketAddr, round: usize) -> Session {
    let mut client = Client::connect(address);
    client.call(&Op::create(&format!("/k/closed-{round}"), b"", CreateMode::Ephemeral)).ok();
    client.call(&Op::close_session()).ok();
    client.session
}

/// All nodes below a writer's own node.
type Nodes = BTreeMap<String, Vec<u8>>;

/// The effect of one write on the writer's nodes.
#[derive(Clone, Debug)]
enum Change {
    Put(String, Vec<u8>),
    /// Two nodes in one transaction.
    PutBoth([(String, Vec<u8>); 2]),
    Delete(String),
}

impl Change {
    fn apply(&self, nodes: &mut Nodes) {
        match self {
            Change::Put(path, data) => drop(nodes.insert(path.clone(), data.clone())),
            Change::PutBoth(both) => nodes.extend(both.iter().cloned()),
            Change::Delete(path) => drop(nodes.remove(path)),
        }
    }
}

/// A session that lasts through all rounds, the only writer below its node.
struct Writer {
    home: String,
    client: Client,
    random: Random,
    /// The nodes after all acknowledged writes.
    nodes: Nodes,
    /// The nodes after all writes that were sent.
    ahead: Nodes,
    in_flight: VecDeque<Change>,
    written: u64,
    sequential: u64,
}

impl Writer {
    fn new(number: usize, address: SocketAddr) -> Writer {
        let home = format!("/k/{number}");
        let mut client = Client::connect(address);
        client.create(&home, b"");
        client.create(&format!("{home}/seq"), b"");
        client.call(&Op::create(&format!("{home}/alive"), b"", CreateMode::Ephemeral)).ok();
        let mut nodes = Nodes::new();
        for name in ["alive", "register", "seq"] {
            nodes.insert(format!("{home}/{name}"), Vec::new());
        }
        client.create(&format!("{home}/register"), b"");
        let random = Random::new(number as u64);
        let (ahead, in_flight) = (nodes.clone(), VecDeque::new());
        Writer { home, client, random, nodes, ahead, in_flight, written: 0, sequential: 0 }
    }

    /// Writes until the connection is lost.
    fn run(&mut self, mut acknowledged: impl FnMut()) {
        loop {
            while self.in_flight.len() < IN_FLIGHT {
                let (op, change) = self.next_write();
                self.client.queue(&op);
                change.apply(&mut self.ahead);
                self.in_flight.push_back(change);
            }
            if self.client.flush().is_err() {
                return;
            }
            for _ in 0..1 + self.random.below(IN_FLIGHT) {
                let Ok(reply) = self.client.hear_reply() else { return };
                reply.ok();
                let change = self.in_flight.pop_front().expect("a reply to something in flight");
                change.apply(&mut self.nodes);
                acknowledged();
            }
        }
    }

    fn next_write(&mut self) -> (Op, Change) {
        self.written += 1;
        let register = format!("{}/register", self.home);
        let number = self.written.to_be_bytes().to_vec();
        let len = self.random.below(VALUE_BYTES_MAX);
        let value = self.random.bytes(len);
        let fresh = format!("{}/node-{:08}", self.home, self.written);
        let persistent = CreateMode::Persistent;
        if self.ahead.len() > NODES_MAX {
            let is_oldest = |path: &&String| path.contains("/node-") || path.contains("/seq/");
            let oldest = self.ahead.keys().find(is_oldest).expect("a node to delete").clone();
            return (Op::delete(&oldest), Change::Delete(oldest));
        }
        match self.random.below(4) {
            0 => (Op::set_data(&register, &number), Change::Put(register, number)),
            1 => (Op::create(&fresh, &value, persistent), Change::Put(fresh, value)),
            2 => {
                let op = Op::multi(&[
                    Op::set_data(&register, &number),
                    Op::create(&fresh, &value, persistent),
                ]);
                (op, Change::PutBoth([(register, number), (fresh, value)]))
            }
            _ => {
                let prefix = format!("{}/seq/n-", self.home);
                let path = format!("{prefix}{:010}", self.sequential);
                self.sequential += 1;
                let op = Op::create(&prefix, &value, CreateMode::PersistentSequential);
                (op, Change::Put(path, value))
            }
        }
    }

    /// Reconnects the session, which must still exist.
    fn reattach(&mut self, address: SocketAddr) {
        let session = self.client.session;
        self.client = Client::open(address, session).expect("the session after the restart");
        assert_eq!(self.client.session, Session { timeout_ms: TIMEOUT_MS, ..session });
    }

    /// Checks that the nodes are those after all acknowledged writes and possibly a prefix of the
    /// others, in the order in which they were sent. Continues from that state.
    #[track_caller]
    fn check(&mut self, reader: &mut Client, round: usize) {
        let found = self.fetch(reader);
        let mut unanswered = std::mem::take(&mut self.in_flight).into_iter();
        while self.nodes != found {
            let Some(change) = unanswered.next() else {
                let missing: Vec<_> = self
                    .nodes
                    .iter()
                    .filter(|(path, data)| found.get(*path) != Some(*data))
                    .collect();
                let more: Vec<_> =
                    found.keys().filter(|path| !self.nodes.contains_key(*path)).collect();
                panic!(
                    "round {round}: {} is not what was written: missing or other {missing:?}, more {more:?}",
                    self.home
                );
            };
            change.apply(&mut self.nodes);
        }
        self.ahead = self.nodes.clone();
        let (_, stat) = reader.get(&format!("{}/alive", self.home));
        assert_eq!(stat.ephemeral_owner, self.client.session.id.0);
        // Deleted nodes count as well, because the server numbers all creations.
        let (_, stat) = reader.get(&format!("{}/seq", self.home));
        self.sequential = u64::try_from((stat.cversion + stat.num_children) / 2).expect("a count");
    }

    fn fetch(&self, reader: &mut Client) -> Nodes {
        let mut nodes = Nodes::new();
        for parent in [self.home.clone(), format!("{}/seq", self.home)] {
            for name in reader.children(&parent) {
                let path = format!("{parent}/{name}");
                let (data, _) = reader.get(&path);
                nodes.insert(path, data);
            }
        }
        nodes
    }
}
