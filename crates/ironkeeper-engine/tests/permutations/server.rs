//! A server whose threads run under shuttle: an I/O thread for each connection and a log thread,
//! connected as in the real server, with sockets and disk replaced by lists.

use std::sync::Arc;

use ironkeeper_engine::baton::Baton;
use ironkeeper_engine::conn::{CloseReason, Conn, Next, Submit};
use ironkeeper_engine::database::Hasher;
use ironkeeper_engine::recover::Recovery;
use ironkeeper_engine::{Database, Engine, EngineConfig, Input, LogItem, Now, Output};
use ironkeeper_proto::connect::ConnectRequest;
use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::watch_event::WatcherEvent;
use ironkeeper_proto::{CreateMode, OpCode, SessionId, Stat, Zxid};
use ironkeeper_zab::{Durable, DurableStep};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

use crate::world::{create, framed, multi, read, set_data};

const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
const TIMEOUT_MS: i32 = 10_000;
/// The xid of requests that are sent before a test begins.
const SETUP_XID: i32 = 0;

/// The server under test; see the module documentation.
pub struct Server {
    pub db: Arc<Database>,
    baton: Baton<Owner, Input>,
    log: Mutex<Log>,
    log_bell: Condvar,
    /// One for each connection, indexed by its tag.
    bells: Vec<Bell>,
}

struct Owner {
    engine: Engine,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

#[derive(Default)]
struct Log {
    appended: Vec<Zxid>,
    closed: bool,
}

/// The signal that wakes a connection's thread.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }

    /// Returns whether the bell was rung, and resets it.
    fn was_rung(&self) -> bool {
        std::mem::take(&mut *self.rung.lock().unwrap())
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Server {
    /// Starts a server with `connections` connections, each with a session, and with the nodes `/a`
    /// and `/b`, whose data is `0`.
    pub fn start(config: EngineConfig, connections: usize) -> (Arc<Server>, Vec<Client>) {
        let recovered = Recovery::new(config.tree).finish().unwrap();
        let (engine, db) = Engine::new(config, recovered, 7, NOW);
        let owner = Owner { engine, inputs: Vec::new(), outputs: Vec::new() };
        let server = Arc::new(Server {
            db,
            baton: Baton::new(owner),
            log: Mutex::default(),
            log_bell: Condvar::new(),
            bells: (0..connections).map(|_| Bell::default()).collect(),
        });
        let mut clients: Vec<Client> =
            (0..connections).map(|tag| Client::connect(&server, tag as u64)).collect();
        for path in ["/a", "/b"] {
            let body = create(path, b"0", CreateMode::Persistent);
            let pauses = clients[0].feed(&server, &request(SETUP_XID, OpCode::Create, &body));
            assert!(!pauses, "a single request");
            server.sync();
        }
        for client in &mut clients {
            client.flush(&server);
            client.heard.clear();
            server.bells[client.conn.tag as usize].was_rung();
        }
        (server, clients)
    }

    fn submit(&self, submits: &mut Vec<Submit>) {
        if !submits.is_empty() {
            self.leave(submits.drain(..).map(Input::Submit));
            self.run();
        }
    }

    pub fn expire(&self, session: SessionId) {
        self.leave([Input::ExpireSession(session)]);
        self.run();
    }

    fn leave(&self, inputs: impl IntoIterator<Item = Input>) {
        self.baton.enqueue(inputs);
    }

    fn run(&self) {
        self.baton.run(|owner| self.work(owner, false));
    }

    /// Runs the engine's timer.
    pub fn tick(&self) {
        self.baton.hold(|owner| self.work(owner, true));
        self.run();
    }

    fn work(&self, owner: &mut Owner, mut timer: bool) {
        loop {
            self.baton.fetch(&mut owner.inputs);
            if owner.inputs.is_empty() && !timer {
                return;
            }
            owner.engine.step(NOW, &mut owner.inputs, &mut owner.outputs);
            if std::mem::take(&mut timer) {
                owner.engine.on_timer(NOW, &mut owner.outputs);
            }
            owner.engine.settle(NOW, &mut owner.outputs);
            for output in owner.outputs.drain(..) {
                match output {
                    Output::Log(LogItem::Step(DurableStep::Append { zxid, .. })) => {
                        self.log.lock().unwrap().appended.push(zxid);
                        self.log_bell.notify_one();
                    }
                    Output::Wake(conn) => self.bells[conn.tag as usize].ring(),
                    Output::Halt(reason) => panic!("halted: {reason}"),
                    Output::Warn(_)
                    | Output::Log(LogItem::Roll)
                    | Output::Snapshot(_)
                    | Output::SessionEnded(_) => {}
                    Output::Log(LogItem::Step(step)) => {
                        panic!("not for a standalone server: {step:?}")
                    }
                    Output::Peers(asked) => panic!("a standalone server has no peers: {asked:?}"),
                }
            }
        }
    }

    /// Reports all appended transactions as durable.
    fn sync(&self) {
        loop {
            let appended = std::mem::take(&mut self.log.lock().unwrap().appended);
            let Some(last) = appended.last() else { return };
            self.leave([Input::Durable(Durable::Flushed(*last))]);
            self.run();
        }
    }

    fn run_log(&self) {
        loop {
            let mut log = self.log.lock().unwrap();
            while log.appended.is_empty() {
                if log.closed {
                    return;
                }
                log = self.log_bell.wait(log).unwrap();
            }
            drop(log);
            self.sync();
        }
    }

    /// Starts the log thread.
    fn start_log(self: &Arc<Server>) -> JoinHandle<()> {
        let server = Arc::clone(self);
        thread::spawn(move || server.run_log())
    }

    /// Ends the log thread after all appends are reported, and checks the invariants of an idle
    /// server.
    fn stop(&self, log: JoinHandle<()>) {
        self.log.lock().unwrap().closed = true;
        self.log_bell.notify_one();
        log.join().unwrap();
        self.baton.hold(|owner| {
            assert_eq!(owner.engine.outstanding(), 0, "requests without an answer");
        });
        let outstanding = self.db.outstanding.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(outstanding, 0, "requests that count as in work");
        if let Some(throttle) = &self.db.request_throttle {
            assert_eq!((throttle.taken(), throttle.waiting()), (0, 0), "slots of the throttle");
        }
    }
}

/// Runs each client's script on its own thread, beside the log thread, until every request has its
/// reply or the connection is closed. Returns what each client received.
pub fn converse(server: &Arc<Server>, talks: Vec<(Client, Script)>) -> Vec<Vec<Heard>> {
    converse_while(server, talks, |_| {})
}

/// Does the same as [`converse`] while one more thread runs `something`.
pub fn converse_while(
    server: &Arc<Server>,
    talks: Vec<(Client, Script)>,
    something: impl FnOnce(&Server) + Send + 'static,
) -> Vec<Vec<Heard>> {
    let other = Arc::clone(server);
    let other = thread::spawn(move || something(&other));
    let log = server.start_log();
    let threads: Vec<JoinHandle<Client>> = talks
        .into_iter()
        .map(|(mut client, script)| {
            let server = Arc::clone(server);
            thread::spawn(move || {
                client.talk(&server, &script);
                client
            })
        })
        .collect();
    let clients: Vec<Client> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    // The other thread may still hold the combining lock.
    other.join().unwrap();
    server.stop(log);
    clients.into_iter().map(|client| client.finish(server)).collect()
}

/// The bytes that a client sends, in pieces that arrive separately.
#[derive(Clone, Default)]
pub struct Script {
    pieces: Vec<Vec<u8>>,
    requests: i32,
}

impl Script {
    pub fn new() -> Script {
        Script { pieces: vec![Vec::new()], requests: 0 }
    }

    /// Starts a new piece: the requests that follow arrive later.
    pub fn then(mut self) -> Script {
        self.pieces.push(Vec::new());
        self
    }

    fn request(mut self, op: OpCode, body: &[u8]) -> Script {
        self.requests += 1;
        let request = request(self.requests, op, body);
        self.pieces.last_mut().unwrap().extend(request);
        self
    }

    pub fn set(self, path: &str, data: impl AsRef<[u8]>) -> Script {
        self.request(OpCode::SetData, &set_data(path, data.as_ref(), -1))
    }

    pub fn create(self, path: &str, mode: CreateMode) -> Script {
        self.request(OpCode::Create, &create(path, b"0", mode))
    }

    pub fn get(self, path: &str) -> Script {
        self.request(OpCode::GetData, &read(path, false))
    }

    pub fn get_and_watch(self, path: &str) -> Script {
        self.request(OpCode::GetData, &read(path, true))
    }

    pub fn exists_and_watch(self, path: &str) -> Script {
        self.request(OpCode::Exists, &read(path, true))
    }

    /// Adds a persistent recursive watch on `path`.
    pub fn watch(self, path: &str) -> Script {
        let mut body = Vec::new();
        body.put_str(path);
        body.put_i32(1);
        self.request(OpCode::AddWatch, &body)
    }

    pub fn sync(self) -> Script {
        let mut body = Vec::new();
        body.put_str("/");
        self.request(OpCode::Sync, &body)
    }

    /// Sets both nodes in one multi.
    pub fn set_both(self, data: &[u8]) -> Script {
        let part = |path| (OpCode::SetData, set_data(path, data, -1));
        self.request(OpCode::Multi, &multi(&[part("/a"), part("/b")]))
    }

    /// Reads both nodes in one multiRead.
    pub fn get_both(self) -> Script {
        let part = |path| (OpCode::GetData, read(path, false));
        self.request(OpCode::MultiRead, &multi(&[part("/a"), part("/b")]))
    }
}

fn request(xid: i32, op: OpCode, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(xid);
    frame.put_i32(op.code());
    frame.extend_from_slice(body);
    framed(&frame)
}

/// A message that a client received.
#[derive(Clone, Debug)]
pub enum Heard {
    Reply { xid: i32, zxid: i64, err: i32, body: Vec<u8> },
    Event { kind: i32, path: String, zxid: i64 },
}

impl Heard {
    pub fn is_event(&self) -> bool {
        matches!(self, Heard::Event { .. })
    }

    /// Returns the data and stat of a successful `getData`.
    pub fn data(&self) -> Option<(Vec<u8>, Stat)> {
        let Heard::Reply { err: 0, body, .. } = self else { return None };
        let mut reader = Reader::new(body);
        let data = reader.buf().ok()??.to_vec();
        let stat = Stat::decode(&mut reader).ok()?;
        reader.is_empty().then_some((data, stat))
    }
}

/// A connection with its socket.
pub struct Client {
    pub conn: Arc<Conn>,
    unread: Vec<u8>,
    /// The bytes that were sent to the client.
    heard: Vec<u8>,
    closed: Option<CloseReason>,
}

impl Client {
    fn connect(server: &Server, tag: u64) -> Client {
        let peer = "10.0.0.1:4000".parse().unwrap();
        let conn = Conn::new(tag + 1, tag, peer, NOW, Hasher::with_seed(7));
        let mut client = Client { conn, unread: Vec::new(), heard: Vec::new(), closed: None };
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms: TIMEOUT_MS,
            session: SessionId::NONE,
            password: &[0; 16],
            read_only: Some(false),
        }
        .encode(&mut body);
        client.feed(server, &framed(&body));
        server.sync();
        assert!(client.conn.has_session());
        client
    }

    /// Receives bytes as the I/O thread does; returns true if the connection must be woken before
    /// it can continue.
    fn feed(&mut self, server: &Server, bytes: &[u8]) -> bool {
        self.unread.extend_from_slice(bytes);
        let mut submits = Vec::new();
        let received = self.conn.receive(NOW, &server.db, &self.unread, &mut submits);
        let received = received.expect("nothing wrong was sent");
        self.unread.drain(..received.consumed);
        server.submit(&mut submits);
        received.next == Next::Wait
    }

    /// Serves the reads that are ready and sends all output. Returns true if bytes were sent.
    fn flush(&mut self, server: &Server) -> bool {
        let before = self.heard.len();
        loop {
            while self.conn.has_ready_reads() {
                self.conn.serve_lane(NOW, &server.db);
            }
            let mut tail = Vec::new();
            let outgoing = self.conn.take_output(&mut tail);
            let nothing = outgoing.pieces.is_empty() && tail.is_empty();
            self.heard.extend(outgoing.pieces.iter().flatten());
            self.heard.extend(tail);
            if outgoing.close.is_some() {
                self.closed = outgoing.close;
                break;
            }
            if nothing {
                break;
            }
        }
        self.heard.len() > before
    }

    fn is_done(&self, requests: i32) -> bool {
        let replies = parse(&self.heard).iter().filter(|heard| !heard.is_event()).count();
        replies >= requests as usize
    }

    /// Runs a connection as its I/O thread does, with the steps in the same order.
    fn talk(&mut self, server: &Server, script: &Script) {
        let bell = &server.bells[self.conn.tag as usize];
        let mut pieces = script.pieces.iter();
        let mut waiting = false;
        loop {
            // Sending may free space for requests that had to wait.
            while self.flush(server) && waiting && self.closed.is_none() {
                waiting = self.feed(server, &[]);
            }
            if self.closed.is_some() {
                return self.disconnect(server);
            }
            if bell.was_rung() {
                waiting = waiting && self.feed(server, &[]);
            } else if !waiting && let Some(piece) = pieces.next() {
                waiting = self.feed(server, piece);
            } else if !waiting && self.is_done(script.requests) {
                return;
            } else {
                bell.wait();
                waiting = waiting && self.feed(server, &[]);
            }
        }
    }

    /// Sends the script and receives nothing, so that the I/O thread cannot send, until the server
    /// closes the connection.
    pub fn talk_and_take_nothing(&mut self, server: &Server, script: &Script) {
        for piece in &script.pieces {
            assert!(!self.feed(server, piece), "more than may be in work");
        }
        while self.conn.close_reason().is_none() {
            server.bells[self.conn.tag as usize].wait();
        }
        self.disconnect(server);
    }

    /// Sends the script and disconnects without receiving replies.
    pub fn talk_and_leave(&mut self, server: &Server, script: &Script) {
        for piece in &script.pieces {
            if self.feed(server, piece) {
                break;
            }
        }
        self.disconnect(server);
    }

    fn disconnect(&mut self, server: &Server) {
        let mut submits = Vec::new();
        let watches = self.conn.disconnect(NOW, &server.db, &mut submits);
        server.submit(&mut submits);
        watches.remove_all(&server.db);
    }

    /// Returns everything that was received, including output after the last reply. If there is
    /// such output, the connection must have been woken for it.
    fn finish(mut self, server: &Server) -> Vec<Heard> {
        let before = self.heard.len();
        if self.closed.is_none() {
            self.flush(server);
        }
        if self.heard.len() > before {
            let rung = *server.bells[self.conn.tag as usize].rung.lock().unwrap();
            assert!(rung, "something is unsent and nobody was told to send it");
        }
        parse(&self.heard)
    }
}

fn parse(bytes: &[u8]) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let len = reader.i32().unwrap();
        let mut frame = Reader::new(reader.bytes(len as usize).unwrap());
        let header = ReplyHeader::decode(&mut frame).unwrap();
        let (xid, zxid, err) = (header.xid.0, header.zxid.0, header.err);
        heard.push(if xid == -1 {
            let event = WatcherEvent::decode(&mut frame).unwrap();
            Heard::Event { kind: event.kind, path: event.path, zxid }
        } else {
            Heard::Reply { xid, zxid, err, body: frame.rest().to_vec() }
        });
    }
    heard
}

/// Checks the invariants of every client: each request has one reply without an error, in the order
/// of requests, and the zxid in the header never decreases and is never older than the data.
#[track_caller]
pub fn check_order(heard: &[Heard], requests: i32) {
    let mut zxid_before = 0;
    let mut xids = Vec::new();
    for heard in heard {
        if let Some((_, stat)) = heard.data()
            && let Heard::Reply { zxid, .. } = heard
        {
            assert!(*zxid >= stat.mzxid.0, "data newer than the zxid of its reply: {heard:?}");
        }
        let zxid = match heard {
            Heard::Reply { xid, zxid, err, .. } => {
                assert_eq!(*err, 0, "{heard:?}");
                xids.push(*xid);
                *zxid
            }
            Heard::Event { zxid, .. } => *zxid,
        };
        assert!(zxid >= zxid_before, "{heard:?} after {zxid_before}");
        zxid_before = zxid;
    }
    assert_eq!(xids, (1..=requests).collect::<Vec<i32>>());
}
