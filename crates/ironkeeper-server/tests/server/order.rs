//! Order under real threads: many concurrent connections, and everything they received is checked
//! against the rules of the transcript checker.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{CreateMode, ErrorCode};

use crate::client::{Client, Heard, Op, Random, Reply};
use crate::in_process::{config, start};
use crate::transcript::{Asked, Line, Shown, Sight, Transcript, violations};

const WRITERS: usize = 3;
const READERS: usize = 3;
/// Requests of each writer; readers continue until the writers have finished, up to this maximum.
const WRITER_REQUESTS: usize = 4000;
const READER_REQUESTS_MAX: usize = 40_000;
const IN_FLIGHT_MAX: usize = 32;
/// Snapshots are taken all the time, concurrently.
const SNAP_COUNT: u32 = 500;

/// Long values take another code path than short ones: they are sent from the tree's memory.
const LONG: &str = "/r/long";
const LONG_BYTES: usize = 6000;
const REGISTERS: [&str; 3] = ["/r/x", "/r/y", LONG];
/// Always written by one multi.
const PAIR: [&str; 2] = ["/pair/a", "/pair/b"];
/// Is created and deleted repeatedly.
const BLINK: &str = "/blink";
/// Its children are created and deleted repeatedly.
const KIDS: &str = "/kids";
const KID_NAMES: [&str; 4] = ["/kids/0", "/kids/1", "/kids/2", "/kids/3"];

#[test]
fn what_every_connection_hears_is_in_order() {
    let mut config = config();
    config.snap_count = SNAP_COUNT;
    let (server, _dir) = start(config);
    let address = server.address();
    let mut transcripts = vec![set_up(address)];
    let writers_left = AtomicUsize::new(WRITERS);
    let recorder_ready = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut actors = Vec::new();
        let (left, ready) = (&writers_left, &recorder_ready);
        actors.push(scope.spawn(move || record(address, left, ready)));
        for number in 0..READERS {
            actors.push(scope.spawn(move || read(address, number, left)));
        }
        while !recorder_ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for number in 0..WRITERS {
            actors.push(scope.spawn(move || write(address, number, left)));
        }
        for actor in actors {
            transcripts.push(actor.join().expect("an actor that got all its answers"));
        }
    });
    let found = violations(&transcripts);
    let events: usize = transcripts.iter().map(Transcript::event_count).sum();
    let lines: usize = transcripts.iter().map(|transcript| transcript.lines.len()).sum();
    println!("{lines} answers and events on {} connections, {events} events", transcripts.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(events > WRITERS * WRITER_REQUESTS / 2, "the watches were hardly used: {events}");
    server.stop().expect("a server without failures");
}

/// The thread that applied the writes sends the first events. When the socket accepts no more, the
/// connection's task continues, and no event may be lost or reordered.
#[test]
fn events_of_a_client_that_reads_late_all_arrive_and_in_order() {
    const ROUNDS: usize = 4000;
    let (server, _dir) = start(config());
    let mut writer = Client::connect(server.address());
    let mut watcher = Client::connect(server.address());
    // Long names, so that the socket is full before the end.
    let paths = ["a", "b"].map(|name| format!("/{}", name.repeat(2000)));
    for path in &paths {
        writer.create(path, b"");
        watcher.call(&Op::watch(path)).ok();
    }
    for round in 0..ROUNDS {
        writer.set(&paths[round % 2], b"");
    }
    for round in 0..ROUNDS {
        let (kind, path) = watcher.hear_event().expect("an event for every write");
        assert_eq!((kind, &path), (EventType::NodeDataChanged, &paths[round % 2]), "{round}");
    }
    assert!(watcher.has("/zookeeper"), "it is served as ever");
    server.stop().expect("a server without failures");
}

#[test]
fn pipelined_reads_and_writes_of_one_session_see_each_other_exactly() {
    const ROUNDS: u64 = 3000;
    const WINDOW: u64 = 100;
    let (server, _dir) = start(config());
    let mut client = Client::connect(server.address());
    client.create("/own", &0u64.to_be_bytes());
    let mut sent = 0;
    for round in 1..=ROUNDS {
        while sent < ROUNDS && sent < round + WINDOW {
            sent += 1;
            client.queue(&Op::set_data("/own", &sent.to_be_bytes()));
            client.queue(&Op::get_data("/own", false));
        }
        client.flush().expect("a socket that takes requests");
        let written = client.hear_reply().expect("the write's answer").ok().stat();
        let (data, stat) = client.hear_reply().expect("the read's answer").ok().data();
        assert_eq!(data, round.to_be_bytes());
        assert_eq!(stat, written);
    }
}

fn set_up(address: SocketAddr) -> Transcript {
    let mut actor = Actor::new(address, "set-up".to_owned());
    for parent in ["/r", "/pair", KIDS] {
        actor.ask(Asked::Create { path: parent.to_owned(), value: 0 });
    }
    for path in REGISTERS.iter().chain(&PAIR) {
        actor.ask(Asked::Create { path: (*path).to_owned(), value: 0 });
    }
    actor.finish()
}

fn write(address: SocketAddr, number: usize, writers_left: &AtomicUsize) -> Transcript {
    let mut random = Random::new(100 + number as u64);
    let mut actor = Actor::new(address, format!("writer {number}"));
    for request in 0..WRITER_REQUESTS {
        let value = ((number as u64) << 32) | request as u64;
        let asked = match random.below(10) {
            0..=3 => Asked::Set { path: REGISTERS[random.below(REGISTERS.len())], value },
            4 => Asked::SetTogether { paths: PAIR.to_vec(), value },
            5 => match random.below(2) {
                0 => Asked::Create { path: BLINK.to_owned(), value },
                _ => Asked::Delete { path: BLINK.to_owned() },
            },
            6 => {
                let path = KID_NAMES[random.below(KID_NAMES.len())].to_owned();
                match random.below(2) {
                    0 => Asked::Create { path, value },
                    _ => Asked::Delete { path },
                }
            }
            _ => any_read(&mut random),
        };
        actor.ask(asked);
        actor.pause_at_random(&mut random);
    }
    actor.settle();
    writers_left.fetch_sub(1, Ordering::AcqRel);
    actor.finish()
}

fn read(address: SocketAddr, number: usize, writers_left: &AtomicUsize) -> Transcript {
    let mut random = Random::new(200 + number as u64);
    let mut actor = Actor::new(address, format!("reader {number}"));
    for _ in 0..READER_REQUESTS_MAX {
        if writers_left.load(Ordering::Acquire) == 0 {
            break;
        }
        actor.ask(any_read(&mut random));
        actor.pause_at_random(&mut random);
    }
    actor.finish()
}

/// Receives all changes through one recursive watch on the root.
fn record(address: SocketAddr, writers_left: &AtomicUsize, ready: &AtomicBool) -> Transcript {
    let mut random = Random::new(300);
    let mut actor = Actor::new(address, "recorder".to_owned());
    actor.ask(Asked::WatchBelow { path: "/" });
    actor.settle();
    ready.store(true, Ordering::Release);
    for _ in 0..READER_REQUESTS_MAX {
        if writers_left.load(Ordering::Acquire) == 0 {
            break;
        }
        let asked = match random.below(3) {
            0 => Asked::Nothing,
            1 => Asked::GetTogether(PAIR.to_vec()),
            _ => Asked::Get { path: REGISTERS[random.below(REGISTERS.len())], watch: false },
        };
        actor.ask(asked);
        actor.pause_at_random(&mut random);
    }
    actor.finish()
}

fn any_read(random: &mut Random) -> Asked {
    let watch = random.below(2) == 0;
    match random.below(8) {
        0..=2 => Asked::Get { path: REGISTERS[random.below(REGISTERS.len())], watch },
        3 => Asked::Get { path: PAIR[random.below(2)], watch },
        4 => Asked::GetTogether(PAIR.to_vec()),
        5 => Asked::Exists { path: BLINK, watch },
        6 => Asked::Children { path: KIDS, watch },
        _ => Asked::Nothing,
    }
}

/// A connection that keeps many requests in flight and records everything.
struct Actor {
    client: Client,
    in_flight: VecDeque<(i32, usize, Asked)>,
    asked: usize,
    transcript: Transcript,
}

impl Actor {
    fn new(address: SocketAddr, name: String) -> Actor {
        Actor {
            client: Client::connect(address),
            in_flight: VecDeque::new(),
            asked: 0,
            transcript: Transcript { name, lines: Vec::new() },
        }
    }

    fn ask(&mut self, asked: Asked) {
        let op = encode(&asked);
        let xid = self.client.queue(&op);
        self.in_flight.push_back((xid, self.asked, asked));
        self.asked += 1;
        if self.in_flight.len() == IN_FLIGHT_MAX {
            self.hear_down_to(IN_FLIGHT_MAX / 2);
        }
    }

    /// Waits at random, so that requests are sent in bursts of all sizes and every path through the
    /// server is covered.
    fn pause_at_random(&mut self, random: &mut Random) {
        if random.below(8) == 0 {
            let left = random.below(IN_FLIGHT_MAX / 2);
            self.hear_down_to(left);
        }
    }

    fn hear_down_to(&mut self, left: usize) {
        self.client.flush().expect("a socket that takes requests");
        while self.in_flight.len() > left {
            match self.client.hear().expect("an answer or an event") {
                Heard::Event { kind, path, zxid } => {
                    self.transcript.lines.push(Line::Event { kind, path, zxid });
                }
                Heard::Reply(reply) => {
                    let at = self.in_flight.iter().position(|(xid, ..)| *xid == reply.xid);
                    let at = at.expect("an answer to something asked");
                    let (_, place, asked) = self.in_flight.remove(at).expect("a position inside");
                    let shown = decode(&asked, &reply);
                    let zxid = reply.zxid;
                    self.transcript.lines.push(Line::Answer { place, asked, zxid, shown });
                }
            }
        }
    }

    fn settle(&mut self) {
        self.hear_down_to(0);
    }

    /// Reads everything once more, so that a lost event is detected.
    fn finish(mut self) -> Transcript {
        self.ask(Asked::Nothing);
        for path in REGISTERS.into_iter().chain(PAIR) {
            self.ask(Asked::Get { path, watch: false });
        }
        self.ask(Asked::Exists { path: BLINK, watch: false });
        self.ask(Asked::Children { path: KIDS, watch: false });
        self.settle();
        self.transcript
    }
}

impl Transcript {
    fn event_count(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line, Line::Event { .. })).count()
    }
}

fn encode(asked: &Asked) -> Op {
    match asked {
        Asked::Get { path, watch } => Op::get_data(path, *watch),
        Asked::Exists { path, watch } => Op::exists(path, *watch),
        Asked::Children { path, watch } => Op::get_children(path, *watch),
        Asked::GetTogether(paths) => {
            let parts: Vec<Op> = paths.iter().map(|path| Op::get_data(path, false)).collect();
            Op::multi_read(&parts)
        }
        Asked::Set { path, value } => Op::set_data(path, &data(path, *value)),
        Asked::SetTogether { paths, value } => {
            let set = |path: &&str| Op::set_data(path, &data(path, *value));
            let parts: Vec<Op> = paths.iter().map(set).collect();
            Op::multi(&parts)
        }
        Asked::Create { path, value } => {
            Op::create(path, &data(path, *value), CreateMode::Persistent)
        }
        Asked::Delete { path } => Op::delete(path),
        Asked::Nothing => Op::sync("/"),
        Asked::WatchBelow { path } => Op::watch_below(path),
    }
}

fn data(path: &str, value: u64) -> Vec<u8> {
    let mut data = value.to_be_bytes().to_vec();
    if path == LONG {
        data.resize(LONG_BYTES, value as u8);
    }
    data
}

fn value(data: &[u8]) -> u64 {
    let (head, rest) = data.split_first_chunk::<8>().expect("a value");
    let value = u64::from_be_bytes(*head);
    assert!(rest.iter().all(|byte| *byte == value as u8), "a value made of two");
    value
}

fn decode(asked: &Asked, reply: &Reply) -> Shown {
    if reply.is(ErrorCode::NoNode) {
        return Shown::NoNode;
    }
    if reply.is(ErrorCode::NodeExists) {
        return Shown::NodeExists;
    }
    assert_eq!(reply.err, 0, "{reply:?} to {asked:?}");
    let node = |value, stat: ironkeeper_proto::Stat| {
        for zxid in [stat.czxid, stat.mzxid, stat.pzxid] {
            assert!(zxid <= reply.zxid, "{stat:?} is newer than the header {}", reply.zxid);
        }
        Sight { value, stat }
    };
    match asked {
        Asked::Get { .. } => {
            let (data, stat) = reply.data();
            Shown::Nodes(vec![node(Some(value(&data)), stat)])
        }
        Asked::Exists { .. } | Asked::Set { .. } => Shown::Nodes(vec![node(None, reply.stat())]),
        Asked::Create { .. } => Shown::Nodes(vec![node(None, reply.created().1)]),
        Asked::GetTogether(_) => {
            let parts = reply.parts();
            Shown::Nodes(parts.iter().map(|(data, stat)| node(Some(value(data)), *stat)).collect())
        }
        Asked::SetTogether { .. } => {
            Shown::Nodes(reply.parts().iter().map(|(_, stat)| node(None, *stat)).collect())
        }
        Asked::Children { .. } => Shown::Names(reply.children().0),
        Asked::Delete { .. } | Asked::Nothing | Asked::WatchBelow { .. } => Shown::Nothing,
    }
}
