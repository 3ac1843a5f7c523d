//! A standalone server in one thread. Its disk syncs and its clock moves only when a test calls the
//! corresponding function.
//!
//! Replies and events are shown as short texts, so that a test reads as a transcript.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]

use std::sync::Arc;

use ironkeeper_engine::auth;
use ironkeeper_engine::conn::{Conn, Next, Submit};
use ironkeeper_engine::database::Hasher;
use ironkeeper_engine::io::{SessionEnd, Warning};
use ironkeeper_engine::recover::Recovered;
use ironkeeper_engine::{Database, Engine, EngineConfig, Input, LogItem, Now, Output};
use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse};
use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::reply::{MultiHeader, ReplyHeader};
use ironkeeper_proto::watch_event::WatcherEvent;
use ironkeeper_proto::{Acl, OpCode, SessionId, Stat, Zxid, acl};
use ironkeeper_zab::{Durable, DurableStep};

pub use ironkeeper_proto::CreateMode::{self, *};

/// A server as its clients see it.
pub trait Host {
    fn now(&self) -> Now;
    fn db(&self) -> &Database;
    fn submit(&mut self, submits: Vec<Submit>);
    /// Completes everything that is in flight.
    fn sync(&mut self);
    /// Returns the id of the next connection.
    fn next_conn(&mut self) -> u64;

    /// Opens a connection without a handshake.
    fn dial(&mut self) -> Client {
        let id = self.next_conn();
        let peer = "10.0.0.1:4000".parse().unwrap();
        let conn = Conn::new(id, id, peer, self.now(), Hasher::with_seed(7));
        Client {
            conn,
            session: SessionId::NONE,
            password: [0; 16],
            timeout_ms: 0,
            read_only: false,
            last_zxid_seen: Zxid(0),
            xid: 0,
            unread: Vec::new(),
        }
    }

    /// Connects a client and opens a session.
    fn connect(&mut self) -> Client
    where
        Self: Sized,
    {
        self.connect_with(10_000)
    }

    fn connect_with(&mut self, timeout_ms: i32) -> Client
    where
        Self: Sized,
    {
        let mut client = self.dial();
        assert_eq!(client.handshake(self, SessionId::NONE, [0; 16], timeout_ms), "open");
        client
    }
}

impl Host for World {
    fn now(&self) -> Now {
        self.now
    }

    fn db(&self) -> &Database {
        &self.db
    }

    fn submit(&mut self, submits: Vec<Submit>) {
        let mut inputs: Vec<Input> = submits.into_iter().map(Input::Submit).collect();
        self.engine.step(self.now, &mut inputs, &mut self.outputs);
        self.settle();
    }

    /// Reports all appended transactions as durable.
    fn sync(&mut self) {
        while let Some(last) = self.unsynced.last().copied() {
            self.unsynced.clear();
            let mut inputs = vec![Input::Durable(Durable::Flushed(last))];
            self.engine.step(self.now, &mut inputs, &mut self.outputs);
            self.settle();
        }
    }

    fn next_conn(&mut self) -> u64 {
        self.next_conn += 1;
        self.next_conn
    }
}

pub struct World {
    pub engine: Engine,
    pub db: Arc<Database>,
    pub now: Now,
    /// Transactions that are appended and not yet synced.
    pub unsynced: Vec<Zxid>,
    /// All records that were appended.
    pub log: Vec<(Zxid, bytes::Bytes)>,
    /// Warnings for the operator.
    pub warnings: Vec<Warning>,
    pub ended: Vec<SessionEnd>,
    outputs: Vec<Output>,
    next_conn: u64,
}

impl World {
    pub fn new() -> World {
        World::with(EngineConfig::default())
    }

    pub fn with(config: EngineConfig) -> World {
        let now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        let recovered = Recovered::new(config.tree);
        let (engine, db) = Engine::new(config, recovered, 7, now);
        World {
            engine,
            db,
            now,
            unsynced: Vec::new(),
            log: Vec::new(),
            warnings: Vec::new(),
            ended: Vec::new(),
            outputs: Vec::new(),
            next_conn: 0,
        }
    }

    /// Lets time pass, from one deadline to the next.
    pub fn advance(&mut self, ms: u64) {
        let until_ms = self.now.mono_ms + ms;
        loop {
            let next_ms = self.engine.deadline_ms().max(self.now.mono_ms + 1);
            let at_ms = next_ms.min(until_ms);
            self.stand_still(at_ms - self.now.mono_ms);
            if at_ms >= until_ms {
                return;
            }
        }
    }

    /// Lets time pass without a call of the timer until the end, as if the process were suspended.
    pub fn stand_still(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
        self.engine.on_timer(self.now, &mut self.outputs);
        self.settle();
    }

    /// Ends a session, as if it had expired.
    pub fn expire(&mut self, session: SessionId) {
        let mut inputs = vec![Input::ExpireSession(session)];
        self.engine.step(self.now, &mut inputs, &mut self.outputs);
        self.settle();
    }

    fn settle(&mut self) {
        self.engine.settle(self.now, &mut self.outputs);
        for output in self.outputs.drain(..) {
            match output {
                Output::Log(LogItem::Step(DurableStep::Append { zxid, txn })) => {
                    self.unsynced.push(zxid);
                    self.log.push((zxid, txn));
                }
                Output::Halt(reason) => panic!("halted: {reason}"),
                Output::Warn(warning) => self.warnings.push(warning),
                Output::Log(LogItem::Roll) | Output::Snapshot(_) | Output::Wake(_) => {}
                Output::SessionEnded(end) => self.ended.push(*end),
                Output::Log(LogItem::Step(step)) => panic!("not for a standalone server: {step:?}"),
                Output::Peers(asked) => panic!("a standalone server has no peers: {asked:?}"),
            }
        }
    }

    /// Reports the oldest unsynced transaction as durable.
    pub fn sync_one(&mut self) {
        let zxid = self.unsynced.remove(0);
        let mut inputs = vec![Input::Durable(Durable::Flushed(zxid))];
        self.engine.step(self.now, &mut inputs, &mut self.outputs);
        self.settle();
    }
}

pub struct Client {
    pub conn: Arc<Conn>,
    pub session: SessionId,
    pub password: [u8; 16],
    pub timeout_ms: i32,
    /// Whether the connect request accepts a read-only server.
    pub read_only: bool,
    /// The last zxid seen, as sent in the connect request.
    pub last_zxid_seen: Zxid,
    xid: i32,
    unread: Vec<u8>,
}

impl Client {
    pub fn handshake(
        &mut self,
        world: &mut impl Host,
        session: SessionId,
        password: [u8; 16],
        timeout_ms: i32,
    ) -> String {
        self.send_connect(world, session, &password, timeout_ms);
        world.sync();
        let bytes = self.output();
        if bytes.is_empty() {
            return "silence".to_owned();
        }
        let response = ConnectResponse::decode(&bytes[4..]).unwrap();
        if response.timeout_ms == 0 {
            return "refused".to_owned();
        }
        self.session = response.session;
        self.password = response.password;
        self.timeout_ms = response.timeout_ms;
        match response.read_only {
            Some(true) => "open for reads".to_owned(),
            _ => "open".to_owned(),
        }
    }

    /// Requests a new session and returns the result of [`Client::raw`].
    pub fn try_connect(&mut self, world: &mut impl Host) -> String {
        self.send_connect(world, SessionId::NONE, &[0; 16], 10_000)
    }

    /// Requests an old or a new session and returns the result of [`Client::raw`].
    pub fn send_connect(
        &mut self,
        world: &mut impl Host,
        session: SessionId,
        password: &[u8],
        timeout_ms: i32,
    ) -> String {
        let request = self.connect_request(session, password, timeout_ms);
        self.raw(world, &request)
    }

    fn connect_request(&self, session: SessionId, password: &[u8], timeout_ms: i32) -> Vec<u8> {
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid_seen,
            timeout_ms,
            session,
            password,
            read_only: Some(self.read_only),
        }
        .encode(&mut body);
        framed(&body)
    }

    /// Sends any bytes. Returns the connection's next action, or `closed: <reason>` if the
    /// connection was closed.
    pub fn raw(&mut self, world: &mut impl Host, bytes: &[u8]) -> String {
        let (shown, submits) = self.receive(world, bytes);
        world.submit(submits);
        shown
    }

    /// Passes bytes to the connection and returns its next action and its requests for the engine.
    fn receive(&mut self, world: &impl Host, bytes: &[u8]) -> (String, Vec<Submit>) {
        self.unread.extend_from_slice(bytes);
        let mut submits = Vec::new();
        let received = self.conn.receive(world.now(), world.db(), &self.unread, &mut submits);
        let shown = match received {
            Ok(received) => {
                self.unread.drain(..received.consumed);
                match received.next {
                    Next::Read => "read".to_owned(),
                    Next::Wait => "wait".to_owned(),
                    Next::Yield => "yield".to_owned(),
                    Next::FourLetter { word, argument } => format!("{} {argument}", word.name()),
                }
            }
            Err(reason) => format!("closed: {reason}"),
        };
        (shown, submits)
    }

    /// Sends a request that the connection receives and does not yet submit to the engine.
    pub fn receive_only(&mut self, world: &impl Host, op: OpCode, body: &[u8]) -> Vec<Submit> {
        let (_, frame) = self.request(op, body);
        self.receive(world, &frame).1
    }

    pub fn disconnect(&mut self, world: &mut impl Host) {
        let mut submits = Vec::new();
        self.conn.disconnect(world.now(), world.db(), &mut submits).remove_all(world.db());
        world.submit(submits);
    }

    /// Returns the bytes that were sent to the client since the last call.
    pub fn output(&mut self) -> Vec<u8> {
        let mut tail = Vec::new();
        let outgoing = self.conn.take_output(&mut tail);
        let mut bytes: Vec<u8> = outgoing.pieces.iter().flatten().copied().collect();
        bytes.append(&mut tail);
        bytes
    }

    /// Sends one request and returns its xid.
    pub fn send(&mut self, world: &mut impl Host, op: OpCode, body: &[u8]) -> i32 {
        let (xid, frame) = self.request(op, body);
        self.raw(world, &frame);
        xid
    }

    fn request(&mut self, op: OpCode, body: &[u8]) -> (i32, Vec<u8>) {
        self.xid += 1;
        let mut frame = Vec::new();
        frame.put_i32(self.xid);
        frame.put_i32(op.code());
        frame.extend_from_slice(body);
        (self.xid, framed(&frame))
    }

    /// Serves the reads in the lane and shows all messages since the last call: `#xid @zxid` and
    /// the body or the error for a reply; `kind path @zxid` for an event, with the oldest sibling
    /// if the event carries it.
    pub fn heard(&mut self, world: &impl Host) -> Vec<String> {
        let shown = |(header, body): (ReplyHeader, Vec<u8>)| {
            if header.xid.0 == -1 {
                let event = WatcherEvent::decode(&mut Reader::new(&body)).unwrap();
                let kind = ["?", "created", "deleted", "changed", "children"][event.kind as usize];
                let oldest =
                    event.oldest_sibling.map_or(String::new(), |it| format!(" oldest {it}"));
                return format!("{kind} {} @{}{oldest}", event.path, header.zxid.0);
            }
            let body = String::from_utf8_lossy(&body).replace('\0', "");
            let body: String = body.chars().filter(|c| c.is_ascii_graphic()).collect();
            match header.err {
                0 => format!("#{} @{} {body}", header.xid.0, header.zxid.0),
                err => format!("#{} @{} error {err}", header.xid.0, header.zxid.0),
            }
        };
        self.frames(world).into_iter().map(shown).collect()
    }

    /// Does the same as [`Client::heard`] and returns headers and bodies.
    pub fn frames(&mut self, world: &impl Host) -> Vec<(ReplyHeader, Vec<u8>)> {
        while self.conn.serve_lane(world.now(), world.db()) {}
        let bytes = self.output();
        let mut frames = Vec::new();
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() {
            let len = reader.i32().unwrap();
            let mut frame = Reader::new(reader.bytes(len as usize).unwrap());
            let header = ReplyHeader::decode(&mut frame).unwrap();
            frames.push((header, frame.rest().to_vec()));
        }
        frames
    }

    /// Sends a request, syncs, and returns the error (0 if none) and the body of its reply.
    pub fn call(&mut self, world: &mut impl Host, op: OpCode, body: &[u8]) -> (i32, Vec<u8>) {
        let xid = self.send(world, op, body);
        world.sync();
        for (header, body) in self.frames(world) {
            if header.xid.0 == xid || (op == OpCode::Ping && header.xid.0 == -2) {
                return (header.err, body);
            }
        }
        panic!("no reply to {op:?}");
    }

    pub fn create(
        &mut self,
        world: &mut impl Host,
        path: &str,
        mode: CreateMode,
    ) -> Result<String, i32> {
        let (err, body) = self.call(world, OpCode::Create, &create(path, b"", mode));
        reply(err, || Reader::new(&body).str().unwrap().into_owned())
    }

    pub fn set(&mut self, world: &mut impl Host, path: &str, data: &[u8]) -> Result<Stat, i32> {
        let (err, body) = self.call(world, OpCode::SetData, &set_data(path, data, -1));
        reply(err, || Stat::decode(&mut Reader::new(&body)).unwrap())
    }

    pub fn delete(&mut self, world: &mut impl Host, path: &str) -> Result<(), i32> {
        let (err, _) = self.call(world, OpCode::Delete, &delete(path, -1));
        reply(err, || ())
    }

    pub fn stat(&mut self, world: &mut impl Host, path: &str) -> Result<Stat, i32> {
        let (err, body) = self.call(world, OpCode::Exists, &read(path, false));
        reply(err, || Stat::decode(&mut Reader::new(&body)).unwrap())
    }

    pub fn children(&mut self, world: &mut impl Host, path: &str) -> Result<Vec<String>, i32> {
        let (err, body) = self.call(world, OpCode::GetChildren, &read(path, false));
        reply(err, || {
            let mut names: Vec<String> = Reader::new(&body)
                .str_vec()
                .unwrap()
                .unwrap()
                .iter()
                .map(std::borrow::Cow::into_owned)
                .collect();
            names.sort();
            names
        })
    }

    pub fn auth(&mut self, world: &mut impl Host, user_and_password: &str) -> i32 {
        let mut body = Vec::new();
        body.put_i32(0);
        body.put_str("digest");
        body.put_buf(Some(user_and_password.as_bytes()));
        self.call(world, OpCode::Auth, &body).0
    }
}

fn reply<T>(err: i32, body: impl FnOnce() -> T) -> Result<T, i32> {
    if err == 0 { Ok(body()) } else { Err(err) }
}

pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_len(body.len());
    frame.extend_from_slice(body);
    frame
}

pub fn create(path: &str, data: &[u8], mode: CreateMode) -> Vec<u8> {
    create_acl(path, data, &acl::open(), mode)
}

pub fn create_acl(path: &str, data: &[u8], list: &[Acl], mode: CreateMode) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_buf(Some(data));
    acl::encode_list(list, &mut body);
    body.put_i32(mode.flags());
    body
}

pub fn create_ttl(path: &str, mode: CreateMode, ttl_ms: i64) -> Vec<u8> {
    let mut body = create(path, b"", mode);
    body.put_i64(ttl_ms);
    body
}

pub fn set_data(path: &str, data: &[u8], version: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_buf(Some(data));
    body.put_i32(version);
    body
}

pub fn delete(path: &str, version: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_i32(version);
    body
}

pub fn read(path: &str, watch: bool) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_bool(watch);
    body
}

pub fn path_and_number(path: &str, number: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_i32(number);
    body
}

pub fn multi(parts: &[(OpCode, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (op, part) in parts {
        MultiHeader { kind: op.code(), done: false, err: -1 }.encode(&mut body);
        body.extend_from_slice(part);
    }
    MultiHeader::END.encode(&mut body);
    body
}

/// Returns the type and error of each result of a multi.
pub fn multi_results(body: &[u8]) -> Vec<(i32, i32)> {
    let mut reader = Reader::new(body);
    let mut results = Vec::new();
    loop {
        let header = MultiHeader::decode(&mut reader).unwrap();
        if header.done {
            assert!(reader.is_empty());
            return results;
        }
        results.push((header.kind, header.err));
        match header.kind {
            1 => drop(reader.str().unwrap()),
            15 => {
                reader.str().unwrap();
                Stat::decode(&mut reader).unwrap();
            }
            5 => drop(Stat::decode(&mut reader).unwrap()),
            -1 => assert_eq!(reader.i32().unwrap(), header.err),
            _ => {}
        }
    }
}

pub fn digest_acl(user_and_password: &str, perms: i32) -> Acl {
    Acl::new(ironkeeper_proto::Perms(perms), "digest", &auth::digest_id(user_and_password))
}
