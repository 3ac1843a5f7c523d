//! Properties of `Machine` for any interleaving of requests, replies, events, lost connections,
//! failed dials and time: every request ends exactly once; replies are delivered in the order of
//! the requests; a request reported as not sent never reached the server; events are delivered in
//! the order in which the server sent them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{OpCode, Reader, Request, SessionId, Xid, Zxid};
use proptest::prelude::*;

use super::machine::{Failure, Machine, Output, Received, WatchRequest};
use super::machine_transcripts::settings;
use super::watches::WatchKind;
use crate::hosts::Host;
use crate::random::Random;

#[derive(Clone, Debug)]
enum Step {
    Submit {
        watch: bool,
    },
    Watch,
    Authenticate,
    /// The driver writes up to this many bytes.
    Write(usize),
    /// The transport opens, or fails to open.
    Open(bool),
    /// The server answers up to this many requests.
    Serve(usize),
    /// A node changes on the server; a connected client receives an event.
    Change(EventType),
    Cut,
    Garbage(Vec<u8>),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<bool>().prop_map(|watch| Step::Submit { watch }),
        1 => Just(Step::Watch),
        1 => Just(Step::Authenticate),
        6 => (1usize..200).prop_map(Step::Write),
        4 => prop::bool::weighted(0.8).prop_map(Step::Open),
        8 => (1usize..6).prop_map(Step::Serve),
        2 => prop_oneof![
            Just(EventType::NodeDataChanged),
            Just(EventType::NodeDeleted),
            Just(EventType::NodeCreated),
        ].prop_map(Step::Change),
        1 => Just(Step::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Garbage),
        6 => (0u64..3000).prop_map(Step::Pass),
    ]
}

#[derive(Default)]
struct Server {
    /// The bytes of this connection that are not decoded yet.
    arrived: Vec<u8>,
    greeted: bool,
    /// The unanswered requests: xid, op code and an unused field that is always `None`.
    line: VecDeque<(i32, i32, Option<String>)>,
    /// Every path that arrived in a complete frame.
    seen: HashSet<String>,
    zxid: i64,
}

struct World {
    machine: Machine<u32, u64>,
    server: Server,
    now: Instant,
    open: bool,
    opening: bool,
    outgoing: Vec<u8>,
    submitted: u32,
    /// The outcome of each token.
    ended: HashMap<u32, Option<Failure>>,
    last_done: u32,
    /// The zxids of the events that each persistent watcher received.
    heard: HashMap<u64, Vec<i64>>,
}

impl World {
    fn new() -> World {
        let now = Instant::now();
        let servers = vec![Host::new("one", 1), Host::new("two", 2)];
        World {
            machine: Machine::new(settings(), servers, Random::from_seed(5), now),
            server: Server { zxid: 1, ..Server::default() },
            now,
            open: false,
            opening: false,
            outgoing: Vec::new(),
            submitted: 0,
            ended: HashMap::new(),
            last_done: 0,
            heard: HashMap::new(),
        }
    }

    fn end(&mut self, token: u32, failure: Option<Failure>) {
        assert!(self.ended.insert(token, failure).is_none(), "{token} ended twice");
        let arrived = self.server.seen.contains(&format!("/{token}"));
        if let Some(
            Failure::ConnectionLoss { sent }
            | Failure::SessionExpired { sent }
            | Failure::AuthFailed { sent }
            | Failure::Closed { sent },
        ) = failure
        {
            assert!(sent || !arrived, "{token} is said not to have been sent, but it was");
        }
    }

    fn look(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect(_) => {
                    assert!(!self.open && !self.opening);
                    self.opening = true;
                }
                Output::Disconnect => self.unplug(),
                Output::Failed(token, failure) => self.end(token, Some(failure)),
                Output::Authenticated(token) => self.end(token, None),
                Output::Event(event, to) => {
                    for watcher in to {
                        self.heard.entry(watcher).or_default().push(event.zxid.0);
                    }
                }
                _ => {}
            }
        }
        if self.open && self.outgoing.is_empty() {
            self.machine.take_outgoing(&mut self.outgoing);
        }
    }

    fn unplug(&mut self) {
        (self.open, self.opening) = (false, false);
        self.outgoing.clear();
        self.server.arrived.clear();
        self.server.line.clear();
        self.server.greeted = false;
    }

    fn receive(&mut self, frame: &[u8]) {
        if let Received::Reply { token, .. } = self.machine.handle_frame(self.now, frame) {
            assert!(token > self.last_done, "{token} was answered behind {}", self.last_done);
            self.last_done = token;
            self.end(token, None);
        }
        self.look();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Submit { watch } => {
                self.submitted += 1;
                let (token, path) = (self.submitted, format!("/{}", self.submitted));
                let watch = watch.then(|| WatchRequest {
                    kind: WatchKind::Data,
                    path: path.as_str().into(),
                    watcher: u64::from(token) + 1000,
                });
                let submitted = self.machine.submit(OpCode::GetData, token, watch, |body| {
                    body.put_str(&path);
                    body.put_bool(false);
                });
                if let Err((token, failure)) = submitted {
                    self.end(token, Some(failure));
                }
            }
            Step::Watch => {
                self.submitted += 1;
                let token = self.submitted;
                let watch = WatchRequest {
                    kind: WatchKind::Persistent,
                    path: "/watched".into(),
                    watcher: u64::from(token),
                };
                let submitted = self.machine.submit(OpCode::AddWatch, token, Some(watch), |body| {
                    body.put_str("/watched");
                    body.put_i32(0);
                });
                if let Err((token, failure)) = submitted {
                    self.end(token, Some(failure));
                }
            }
            Step::Authenticate => {
                self.submitted += 1;
                let token = self.submitted;
                let added = self.machine.authenticate("digest", b"a:b", Some(token));
                if let Err((Some(token), failure)) = added {
                    self.end(token, Some(failure));
                }
            }
            Step::Write(count) => {
                let count = count.min(self.outgoing.len());
                self.server.arrived.extend(self.outgoing.drain(..count));
                if self.open && count > 0 {
                    // The server reads the bytes before the driver reports them as written.
                    self.read_arrived();
                    self.machine.handle_written(self.now, count);
                }
            }
            Step::Open(works) if self.opening => {
                (self.opening, self.open) = (false, works);
                if works {
                    self.machine.handle_opened(self.now);
                } else {
                    self.machine.handle_closed(self.now);
                }
            }
            Step::Open(_) => {}
            Step::Serve(count) => self.serve(count),
            Step::Change(kind) if self.open && self.server.greeted => {
                self.server.zxid += 1;
                let mut frame = Vec::new();
                watch_event::encode_frame(kind, "/watched", Zxid(self.server.zxid), &mut frame);
                self.receive(&frame[4..]);
            }
            Step::Change(_) => self.server.zxid += 1,
            Step::Cut => {
                if self.open || self.opening {
                    self.unplug();
                    self.machine.handle_closed(self.now);
                }
            }
            Step::Garbage(bytes) if self.open => {
                // The prefix prevents that random bytes form a valid xid.
                let mut frame = vec![0x7f, 0xff, 0xff, 0xff];
                frame.extend(bytes);
                self.receive(&frame);
            }
            Step::Garbage(_) => {}
            Step::Pass(ms) => {
                self.now += Duration::from_millis(ms);
                self.machine.handle_timeout(self.now);
            }
        }
        self.look();
    }

    fn read_arrived(&mut self) {
        let server = &mut self.server;
        while let Some((len, behind)) = server.arrived.split_first_chunk::<4>() {
            let len = u32::from_be_bytes(*len) as usize;
            if behind.len() < len {
                break;
            }
            let frame: Vec<u8> = behind[..len].to_vec();
            server.arrived.drain(..4 + len);
            if !server.greeted {
                server.greeted = true;
                server.line.push_back((0, 0, None));
                continue;
            }
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader).unwrap();
            let op = OpCode::from_code(header.op).unwrap();
            if let Ok(Request::GetData { path, .. }) = Request::decode(op, reader) {
                server.seen.insert(path.into_owned());
            }
            server.line.push_back((header.xid.0, header.op, None));
        }
    }

    fn serve(&mut self, count: usize) {
        for _ in 0..count {
            if !self.open {
                return;
            }
            let Some((xid, op, _)) = self.server.line.pop_front() else { return };
            let mut frame = Vec::new();
            if (xid, op) == (0, 0) {
                ConnectResponse {
                    timeout_ms: 9000,
                    session: SessionId(5),
                    password: [1; 16],
                    read_only: Some(false),
                }
                .encode(&mut frame);
            } else {
                self.server.zxid += 1;
                let zxid = if xid == Xid::AUTH.0 { 0 } else { self.server.zxid };
                ReplyHeader { xid: Xid(xid), zxid: Zxid(zxid), err: 0 }.encode(&mut frame);
            }
            self.receive(&frame);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        world.take(Step::Pass(0));
        for step in steps {
            world.take(step);
        }
        // In any state, `close` followed by a lost connection ends the session.
        assert_eq!(world.machine.close(None), None);
        world.look();
        world.take(Step::Cut);
        prop_assert!(world.machine.is_over());
        for token in 1..=world.submitted {
            prop_assert!(world.ended.contains_key(&token), "{} never ended", token);
        }
        for (watcher, heard) in &world.heard {
            prop_assert!(heard.is_sorted_by(|one, two| one < two), "{watcher}: {heard:?}");
        }
    }

    #[test]
    fn a_session_that_is_served_comes_to_rest(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        world.take(Step::Pass(0));
        for step in steps {
            world.take(step);
        }
        // There are no faults from here on, so a new request must receive its reply.
        world.take(Step::Submit { watch: false });
        let last = world.submitted;
        for _ in 0..400 {
            if world.ended.contains_key(&last) {
                break;
            }
            world.take(Step::Pass(100));
            world.take(Step::Open(true));
            world.take(Step::Write(1 << 20));
            world.take(Step::Serve(1000));
        }
        prop_assert!(world.ended.contains_key(&last));
    }
}
