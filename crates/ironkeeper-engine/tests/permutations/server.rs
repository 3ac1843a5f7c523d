//! A server whose threads run under shuttle: an I/O thread for each connection and a log thread,
//! connected as in the real server, with streams and disk replaced by lists.

use std::sync::Arc;
use std::task::{Context, Waker};

use ironkeeper_engine::baton::Baton;
use ironkeeper_engine::conn::{CloseReason, Conn, Next, Submit};
use ironkeeper_engine::database::Hasher;
use ironkeeper_engine::outbox_sender::{Flushed, OutboxSender};
use ironkeeper_engine::recover::Recovered;
use ironkeeper_engine::{Database, Engine, EngineConfig, Input, LogItem, Now, Output};
use ironkeeper_proto::connect::ConnectRequest;
use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::watch_event::WatcherEvent;
use ironkeeper_proto::{CreateMode, OpCode, SessionId, Stat, Zxid};
use ironkeeper_zab::{Durable, DurableStep};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

use crate::stream::{Sink, Stream};
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
    senders: Vec<Arc<OutboxSender<Sink>>>,
}

struct Owner {
    engine: Engine,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    ready: Vec<Arc<Conn>>,
}

/// Which thread sends watch events, as in the server's engine driver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventSender {
    IoThread,
    EngineThread,
}

#[derive(Default)]
struct Log {
    appended: Vec<Zxid>,
    closed: bool,
}

impl Server {
    /// Starts a server with `connections` connections, each with a session, and with the nodes `/a`
    /// and `/b`, whose data is `0`.
    pub fn start(config: EngineConfig, connections: usize) -> (Arc<Server>, Vec<Client>) {
        let recovered = Recovered::new(config.tree);
        let (engine, db) = Engine::new(config, recovered, 7, NOW);
        let (inputs, outputs, ready) = (Vec::new(), Vec::new(), Vec::new());
        let owner = Owner { engine, inputs, outputs, ready };
        let streams: Vec<Arc<Stream>> = (0..connections).map(|_| Arc::default()).collect();
        let sender = |stream| Arc::new(OutboxSender::new(Sink(Arc::clone(stream))));
        let server = Arc::new(Server {
            db,
            baton: Baton::new(owner),
            log: Mutex::default(),
            log_bell: Condvar::new(),
            senders: streams.iter().map(sender).collect(),
        });
        let mut clients: Vec<Client> = streams
            .into_iter()
            .enumerate()
            .map(|(tag, stream)| Client::connect(&server, tag as u64, stream))
            .collect();
        for path in ["/a", "/b"] {
            let body = create(path, b"0", CreateMode::Persistent);
            clients[0].feed(&server, &request(SETUP_XID, OpCode::Create, &body));
            assert!(!clients[0].is_paused, "a single request");
            server.sync();
        }
        for client in &mut clients {
            client.flush(&server);
            client.stream.forget_received();
            client.is_notified();
        }
        (server, clients)
    }

    fn submit(&self, submits: &mut Vec<Submit>) {
        if !submits.is_empty() {
            self.enqueue(submits.drain(..).map(Input::Submit));
            self.run(EventSender::IoThread);
        }
    }

    pub fn expire(&self, session: SessionId) {
        self.enqueue([Input::ExpireSession(session)]);
        self.run(EventSender::IoThread);
    }

    fn enqueue(&self, inputs: impl IntoIterator<Item = Input>) {
        self.baton.enqueue(inputs);
    }

    fn run(&self, events: EventSender) {
        self.baton.run(|owner| self.work(owner, false, events));
    }

    /// Runs the engine's timer.
    pub fn tick(&self) {
        self.baton.hold(|owner| self.work(owner, true, EventSender::IoThread));
        self.run(EventSender::IoThread);
    }

    fn work(&self, owner: &mut Owner, mut timer: bool, events: EventSender) {
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
                    Output::Wake(conn) => owner.ready.push(conn),
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
            for conn in owner.ready.drain(..) {
                let sender = &self.senders[conn.tag as usize];
                if !(events == EventSender::EngineThread && sender.send_events(&conn)) {
                    sender.notify();
                }
            }
        }
    }

    /// Reports all appended transactions as durable.
    fn sync(&self) {
        loop {
            let appended = std::mem::take(&mut self.log.lock().unwrap().appended);
            let Some(last) = appended.last() else { return };
            self.enqueue([Input::Durable(Durable::Flushed(*last))]);
            self.run(EventSender::EngineThread);
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
    let peers: Vec<JoinHandle<()>> = talks
        .iter()
        .filter(|(client, _)| client.stream.is_bounded())
        .map(|(client, _)| {
            let stream = Arc::clone(&client.stream);
            thread::spawn(move || stream.read_until_end())
        })
        .collect();
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
    clients.iter().for_each(|client| client.stream.end_reading());
    peers.into_iter().for_each(|peer| peer.join().unwrap());
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

    pub fn close_session(self) -> Script {
        self.request(OpCode::CloseSession, &[])
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

/// A connection, the state of its task, and what its client receives.
pub struct Client {
    pub conn: Arc<Conn>,
    pub stream: Arc<Stream>,
    sender: Arc<OutboxSender<Sink>>,
    unread: Vec<u8>,
    is_paused: bool,
    /// The value of `OutboxSender::writes` before bytes were last passed to the connection.
    writes: u64,
    closed: Option<CloseReason>,
}

impl Client {
    fn connect(server: &Server, tag: u64, stream: Arc<Stream>) -> Client {
        let peer = "10.0.0.1:4000".parse().unwrap();
        let conn = Conn::new(tag + 1, tag, peer, NOW, Hasher::with_seed(7));
        let sender = Arc::clone(&server.senders[tag as usize]);
        let (unread, is_paused, writes, closed) = (Vec::new(), false, 0, None);
        let mut client = Client { conn, stream, sender, unread, is_paused, writes, closed };
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

    /// Receives bytes as the I/O thread does.
    fn feed(&mut self, server: &Server, bytes: &[u8]) {
        self.writes = self.sender.writes();
        self.unread.extend_from_slice(bytes);
        let mut submits = Vec::new();
        let received = self.conn.receive(NOW, &server.db, &self.unread, &mut submits);
        let received = received.expect("nothing wrong was sent");
        self.unread.drain(..received.consumed);
        self.set_paused(received.next == Next::Wait);
        server.submit(&mut submits);
    }

    fn set_paused(&mut self, is_paused: bool) {
        if self.is_paused != is_paused {
            self.is_paused = is_paused;
            self.sender.set_paused(is_paused);
        }
    }

    fn flush(&mut self, server: &Server) -> Flushed {
        let flushed = self.sender.flush(&self.conn, &server.db, || NOW).expect("it is open");
        if !flushed.is_blocked {
            self.closed = self.closed.or(flushed.close);
        }
        flushed
    }

    /// Sends the output. The room made by this may let waiting requests pass.
    fn advance(&mut self, server: &Server) -> Flushed {
        loop {
            let flushed = self.flush(server);
            let made_room = self.writes != self.sender.writes();
            if flushed.close.is_some() || !self.is_paused || !made_room {
                return flushed;
            }
            self.feed(server, &[]);
        }
    }

    /// Returns whether the task was notified since the last call.
    fn is_notified(&self) -> bool {
        self.sender.poll_notified(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn is_done(&self, requests: i32) -> bool {
        let heard = parse(&self.stream.received());
        heard.iter().filter(|heard| !heard.is_event()).count() >= requests as usize
    }

    /// Runs a connection as its I/O thread does, with the steps in the same order.
    fn talk(&mut self, server: &Server, script: &Script) {
        let waker = Waker::from(Arc::clone(&self.stream));
        let mut context = Context::from_waker(&waker);
        let mut pieces = script.pieces.iter();
        loop {
            let flushed = self.advance(server);
            if self.closed.is_some() {
                return self.disconnect(server);
            }
            if flushed.close.is_some() {
                self.set_paused(true);
            }
            if flushed.has_more {
                thread::yield_now();
                continue;
            }
            let reads = !self.is_paused && !flushed.is_blocked;
            if self.sender.poll_notified(&mut context).is_ready() {
                if self.is_paused && flushed.close.is_none() {
                    self.feed(server, &[]);
                }
            } else if flushed.is_blocked && self.stream.has_room() {
            } else if reads && let Some(piece) = pieces.next() {
                self.feed(server, piece);
            } else if reads && self.is_done(script.requests) {
                return;
            } else {
                self.stream.wait(flushed.is_blocked);
            }
        }
    }

    /// Sends the script to a server whose stream to this client has no room, until the server
    /// closes the connection.
    pub fn talk_and_take_nothing(&mut self, server: &Server, script: &Script) {
        self.stream.set_capacity(0);
        for piece in &script.pieces {
            self.feed(server, piece);
            assert!(!self.is_paused, "more than may be in work");
        }
        let waker = Waker::from(Arc::clone(&self.stream));
        while self.conn.close_reason().is_none() {
            if self.sender.poll_notified(&mut Context::from_waker(&waker)).is_pending() {
                self.stream.wait(false);
            }
        }
        self.disconnect(server);
    }

    /// Sends the script and disconnects without receiving replies.
    pub fn talk_and_leave(&mut self, server: &Server, script: &Script) {
        for piece in &script.pieces {
            self.feed(server, piece);
            if self.is_paused {
                break;
            }
        }
        self.disconnect(server);
    }

    fn disconnect(&mut self, server: &Server) {
        let mut submits = Vec::new();
        let watches = self.conn.disconnect(NOW, &server.db, &mut submits);
        server.submit(&mut submits);
        drop(self.sender.close());
        self.stream.close();
        watches.remove_all(&server.db);
    }

    /// Returns everything that was received, including output after the last reply. If there is
    /// such output, the task must have been notified of it.
    fn finish(mut self, server: &Server) -> Vec<Heard> {
        if self.closed.is_none() {
            let was_notified = self.is_notified();
            let before = self.stream.received().len();
            self.stream.set_capacity(usize::MAX);
            while self.flush(server).has_more {}
            if self.stream.received().len() > before {
                assert!(was_notified, "unsent output, and the task was not notified");
            }
        }
        parse(&self.stream.received())
    }
}

fn parse(bytes: &[u8]) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut reader = Reader::new(bytes);
    // The last frame may be incomplete.
    while let Some(frame) = reader.i32().ok().and_then(|len| reader.bytes(len as usize).ok()) {
        let mut frame = Reader::new(frame);
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
