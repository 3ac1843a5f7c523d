//! A small blocking client that returns everything it receives, in order.
//!
//! It never pings, retries, reconnects or restores watches by itself: a test decides what is sent,
//! and sees what is received. Every wait ends with an error after [`PATIENCE`], so a server that
//! does not respond fails a test instead of blocking it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::reply::{MultiHeader, ReplyHeader};
use ironkeeper_proto::watch_event::{EventType, WatcherEvent};
use ironkeeper_proto::{CreateMode, ErrorCode, OpCode, Put, Reader, SessionId, Stat, Zxid, acl};

/// Longer than any reply takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The default session timeout: no test is idle for so long.
pub const TIMEOUT_MS: i32 = 600_000;

const READ_BYTES: usize = 64 << 10;

/// A request: the operation and its encoded body.
#[derive(Clone, Debug)]
pub struct Op {
    pub code: OpCode,
    pub body: Vec<u8>,
}

impl Op {
    fn new(code: OpCode, fill: impl FnOnce(&mut Vec<u8>)) -> Op {
        let mut body = Vec::new();
        fill(&mut body);
        Op { code, body }
    }

    pub fn create(path: &str, data: &[u8], mode: CreateMode) -> Op {
        Op::new(OpCode::Create2, |body| {
            body.put_str(path);
            body.put_buf(Some(data));
            acl::encode_list(&acl::open(), body);
            body.put_i32(mode.flags());
        })
    }

    pub fn set_data(path: &str, data: &[u8]) -> Op {
        Op::new(OpCode::SetData, |body| {
            body.put_str(path);
            body.put_buf(Some(data));
            body.put_i32(-1);
        })
    }

    pub fn delete(path: &str) -> Op {
        Op::new(OpCode::Delete, |body| {
            body.put_str(path);
            body.put_i32(-1);
        })
    }

    fn read(code: OpCode, path: &str, watch: bool) -> Op {
        Op::new(code, |body| {
            body.put_str(path);
            body.put_bool(watch);
        })
    }

    pub fn exists(path: &str, watch: bool) -> Op {
        Op::read(OpCode::Exists, path, watch)
    }

    pub fn get_data(path: &str, watch: bool) -> Op {
        Op::read(OpCode::GetData, path, watch)
    }

    pub fn get_children(path: &str, watch: bool) -> Op {
        Op::read(OpCode::GetChildren2, path, watch)
    }

    /// Returns a multi of `parts`.
    pub fn multi(parts: &[Op]) -> Op {
        Op::many(OpCode::Multi, parts)
    }

    /// Returns a multiRead of `parts`; only `getData` and `getChildren` are allowed.
    pub fn multi_read(parts: &[Op]) -> Op {
        Op::many(OpCode::MultiRead, parts)
    }

    fn many(code: OpCode, parts: &[Op]) -> Op {
        Op::new(code, |body| {
            for part in parts {
                MultiHeader { kind: part.code.code(), done: false, err: -1 }.encode(body);
                body.extend_from_slice(&part.body);
            }
            MultiHeader::END.encode(body);
        })
    }

    pub fn sync(path: &str) -> Op {
        Op::new(OpCode::Sync, |body| body.put_str(path))
    }

    pub fn ping() -> Op {
        Op::new(OpCode::Ping, |_| {})
    }

    pub fn close_session() -> Op {
        Op::new(OpCode::CloseSession, |_| {})
    }

    /// Returns a persistent watch on `path` and its children.
    pub fn watch(path: &str) -> Op {
        Op::add_watch(path, 0)
    }

    /// Returns a persistent recursive watch on `path`.
    pub fn watch_below(path: &str) -> Op {
        Op::add_watch(path, 1)
    }

    fn add_watch(path: &str, mode: i32) -> Op {
        Op::new(OpCode::AddWatch, |body| {
            body.put_str(path);
            body.put_i32(mode);
        })
    }

    /// Returns a request that sets an `exists` watch for each path.
    pub fn watch_for_creation(paths: &[String]) -> Op {
        Op::new(OpCode::SetWatches, |body| {
            body.put_i64(0);
            body.put_len(0);
            body.put_len(paths.len());
            paths.iter().for_each(|path| body.put_str(path));
            body.put_len(0);
        })
    }
}

/// A session with its password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub password: [u8; PASSWORD_LEN],
    pub timeout_ms: i32,
}

impl Session {
    /// Returns the placeholder with which a client requests a new session.
    pub fn none(timeout_ms: i32) -> Session {
        Session { id: SessionId::NONE, password: [0; PASSWORD_LEN], timeout_ms }
    }
}

/// A reply to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    pub xid: i32,
    pub zxid: Zxid,
    pub err: i32,
    pub body: Vec<u8>,
}

/// A received frame.
#[derive(Clone, Debug)]
pub enum Heard {
    Reply(Reply),
    Event { kind: EventType, path: String, zxid: Zxid },
}

impl Reply {
    pub fn is(&self, error: ErrorCode) -> bool {
        self.err == error.code()
    }

    /// Returns the reply, which must be a success.
    #[track_caller]
    pub fn ok(self) -> Reply {
        assert_eq!(self.err, 0, "error {:?} in {self:?}", ErrorCode::from_code(self.err));
        self
    }

    /// Returns the body of a `getData`.
    #[track_caller]
    pub fn data(&self) -> (Vec<u8>, Stat) {
        let mut reader = Reader::new(&self.body);
        let data = reader.buf().expect("data").unwrap_or_default().to_vec();
        (data, Stat::decode(&mut reader).expect("a stat"))
    }

    /// Returns the body of an `exists` or a `setData`.
    #[track_caller]
    pub fn stat(&self) -> Stat {
        Stat::decode(&mut Reader::new(&self.body)).expect("a stat")
    }

    /// Returns the body of a `create2`.
    #[track_caller]
    pub fn created(&self) -> (String, Stat) {
        let mut reader = Reader::new(&self.body);
        let path = reader.str().expect("a path").into_owned();
        (path, Stat::decode(&mut reader).expect("a stat"))
    }

    /// Returns the body of a `getChildren2`, with the names in order.
    #[track_caller]
    pub fn children(&self) -> (Vec<String>, Stat) {
        let mut reader = Reader::new(&self.body);
        let names = reader.str_vec().expect("names").expect("a vector");
        let mut names: Vec<String> = names.iter().map(std::borrow::Cow::into_owned).collect();
        names.sort();
        (names, Stat::decode(&mut reader).expect("a stat"))
    }

    /// Returns the stats in the results of a `multi` of `setData`, or the data and stats of a
    /// `multiRead` of `getData`.
    #[track_caller]
    pub fn parts(&self) -> Vec<(Vec<u8>, Stat)> {
        let mut reader = Reader::new(&self.body);
        let mut parts = Vec::new();
        loop {
            let header = MultiHeader::decode(&mut reader).expect("a header");
            if header.done {
                return parts;
            }
            let data = match OpCode::from_code(header.kind) {
                Some(OpCode::GetData) => reader.buf().expect("data").unwrap_or_default().to_vec(),
                Some(OpCode::SetData) => Vec::new(),
                other => panic!("a part {other:?} with error {}", header.err),
            };
            parts.push((data, Stat::decode(&mut reader).expect("a stat")));
        }
    }
}

/// One connection; see the module documentation.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    pub session: Session,
    /// The largest zxid received.
    pub last_zxid: Zxid,
    xid: i32,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// The index in `incoming` at which the next frame begins.
    at: usize,
    /// Events that arrived while [`Client::call`] waited for a reply.
    pub events: VecDeque<(EventType, String, Zxid)>,
}

impl Client {
    /// Opens a socket without a handshake.
    pub fn dial(address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Connects with a new session.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Client {
        Client::open(address, Session::none(TIMEOUT_MS)).expect("a session")
    }

    /// Connects with a new session, or resumes `session`. Returns `PermissionDenied` if the server
    /// has no such session.
    pub fn open(address: SocketAddr, session: Session) -> io::Result<Client> {
        let mut client = Client::greet(address, session)?;
        client.hear_greeting()?;
        Ok(client)
    }

    /// Sends the connect request.
    pub fn greet(address: SocketAddr, session: Session) -> io::Result<Client> {
        let stream = Client::dial(address)?;
        let mut client = Client {
            stream,
            session,
            last_zxid: Zxid::ZERO,
            xid: 0,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            at: 0,
            events: VecDeque::new(),
        };
        client.stream.write_all(&greeting(session))?;
        Ok(client)
    }

    /// Waits for the connect response.
    pub fn hear_greeting(&mut self) -> io::Result<()> {
        let frame = self.frame()?;
        let response = ConnectResponse::decode(&frame).map_err(io::Error::other)?;
        if response.timeout_ms == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let ConnectResponse { session: id, password, timeout_ms, .. } = response;
        self.session = Session { id, password, timeout_ms };
        Ok(())
    }

    /// Queues a request and returns its xid. [`Client::flush`] sends it.
    pub fn queue(&mut self, op: &Op) -> i32 {
        let xid = match op.code {
            OpCode::Ping => -2,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        put_request(&mut self.outgoing, xid, op.code.code(), &op.body);
        xid
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.outgoing)?;
        self.outgoing.clear();
        Ok(())
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives the next frame.
    pub fn hear(&mut self) -> io::Result<Heard> {
        let frame = self.frame()?;
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader).map_err(io::Error::other)?;
        self.last_zxid = self.last_zxid.max(header.zxid);
        if header.xid.0 == -1 {
            let event = WatcherEvent::decode(&mut reader).map_err(io::Error::other)?;
            let kind = EventType::from_code(event.kind)
                .ok_or_else(|| io::Error::other(format!("an event of kind {}", event.kind)))?;
            return Ok(Heard::Event { kind, path: event.path, zxid: header.zxid });
        }
        let body = reader.rest().to_vec();
        Ok(Heard::Reply(Reply { xid: header.xid.0, zxid: header.zxid, err: header.err, body }))
    }

    /// Receives the next reply; puts events before it into `events`.
    pub fn hear_reply(&mut self) -> io::Result<Reply> {
        loop {
            match self.hear()? {
                Heard::Reply(reply) => return Ok(reply),
                Heard::Event { kind, path, zxid } => self.events.push_back((kind, path, zxid)),
            }
        }
    }

    /// Returns the next event, including events that arrived during a call.
    pub fn hear_event(&mut self) -> io::Result<(EventType, String)> {
        if let Some((kind, path, _)) = self.events.pop_front() {
            return Ok((kind, path));
        }
        match self.hear()? {
            Heard::Event { kind, path, .. } => Ok((kind, path)),
            Heard::Reply(reply) => Err(io::Error::other(format!("{reply:?} instead of an event"))),
        }
    }

    /// Sends one request and waits for its reply.
    pub fn try_call(&mut self, op: &Op) -> io::Result<Reply> {
        let xid = self.queue(op);
        self.flush()?;
        let reply = self.hear_reply()?;
        assert_eq!(reply.xid, xid, "the answer to another request");
        Ok(reply)
    }

    #[track_caller]
    pub fn call(&mut self, op: &Op) -> Reply {
        self.try_call(op).expect("an answer")
    }

    #[track_caller]
    pub fn create(&mut self, path: &str, data: &[u8]) -> Reply {
        self.call(&Op::create(path, data, CreateMode::Persistent)).ok()
    }

    #[track_caller]
    pub fn set(&mut self, path: &str, data: &[u8]) -> Stat {
        self.call(&Op::set_data(path, data)).ok().stat()
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> (Vec<u8>, Stat) {
        self.call(&Op::get_data(path, false)).ok().data()
    }

    /// Returns whether the node exists.
    #[track_caller]
    pub fn has(&mut self, path: &str) -> bool {
        let reply = self.call(&Op::exists(path, false));
        if reply.is(ErrorCode::NoNode) {
            return false;
        }
        reply.ok();
        true
    }

    #[track_caller]
    pub fn children(&mut self, path: &str) -> Vec<String> {
        self.call(&Op::get_children(path, false)).ok().children().0
    }

    /// Reads until the server closes the connection, and returns the number of bytes. A reset
    /// counts as closing.
    pub fn drain_to_end(&mut self) -> io::Result<u64> {
        drain_to_end(&mut self.stream)
    }

    /// Shuts down the writing side.
    pub fn close_writing(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.incoming[self.at..];
            if let Some(head) = rest.first_chunk::<4>() {
                let len = usize::try_from(i32::from_be_bytes(*head)).map_err(io::Error::other)?;
                if let Some(frame) = rest.get(4..4 + len) {
                    let frame = frame.to_vec();
                    self.at += 4 + len;
                    return Ok(frame);
                }
            }
            self.incoming.drain(..self.at);
            self.at = 0;
            let len = self.incoming.len();
            self.incoming.resize(len + READ_BYTES, 0);
            let received = self.stream.read(&mut self.incoming[len..]);
            self.incoming.truncate(len + *received.as_ref().unwrap_or(&0));
            if received? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Reads until the other side closes the connection; see [`Client::drain_to_end`].
pub fn drain_to_end(stream: &mut TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => total += count as u64,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(total),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the frame of a connect request.
pub fn greeting(session: Session) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid::ZERO,
        timeout_ms: session.timeout_ms,
        session: session.id,
        password: &session.password,
        read_only: Some(false),
    };
    let mut body = Vec::new();
    request.encode(&mut body);
    framed(&body)
}

/// Returns a frame around `body`.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.put_len(body.len());
    frame.extend_from_slice(body);
    frame
}

/// Appends a request frame; `op` may be any number.
pub fn put_request(out: &mut Vec<u8>, xid: i32, op: i32, body: &[u8]) {
    out.put_len(8 + body.len());
    out.put_i32(xid);
    out.put_i32(op);
    out.extend_from_slice(body);
}

/// A seeded sequence of numbers (splitmix64), so that a run can be repeated.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
