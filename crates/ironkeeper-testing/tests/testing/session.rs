//! A minimal client that tests sessions.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{CreateMode, ErrorCode, OpCode, Put, Reader, SessionId, Zxid, acl};

/// Longer than any reply takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a live socket");
    stream
}

/// A connection with a session.
#[derive(Debug)]
pub struct Session {
    pub stream: TcpStream,
    pub id: SessionId,
    pub timeout_ms: i32,
}

impl Session {
    pub fn open(address: SocketAddr, timeout_ms: i32) -> Session {
        Session::attach(address, SessionId::NONE, timeout_ms).expect("a new session")
    }

    /// Attaches to a session; `None` if the server replies that the session has expired.
    pub fn attach(address: SocketAddr, id: SessionId, timeout_ms: i32) -> Option<Session> {
        let mut stream = dial(address);
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid::ZERO,
            timeout_ms,
            session: id,
            password: &id.password(),
            read_only: Some(false),
        }
        .encode(&mut body);
        send(&mut stream, &body).expect("a live connection");
        let answer = receive(&mut stream).expect("an answer");
        let answer = ConnectResponse::decode(&answer).expect("a connect response");
        let ConnectResponse { session: id, timeout_ms, .. } = answer;
        (timeout_ms > 0).then_some(Session { stream, id, timeout_ms })
    }

    fn call(&mut self, op: OpCode, body: &[u8]) -> i32 {
        self.ask(op, body);
        let answer = receive(&mut self.stream).expect("an answer");
        ReplyHeader::decode(&mut Reader::new(&answer)).expect("a reply").err
    }

    fn ask(&mut self, op: OpCode, body: &[u8]) {
        let mut request = Vec::new();
        // Unique across connections, as the xids of a client that reconnects.
        static XIDS: AtomicI32 = AtomicI32::new(1);
        request.put_i32(XIDS.fetch_add(1, Ordering::Relaxed));
        request.put_i32(op.code());
        request.extend_from_slice(body);
        send(&mut self.stream, &request).expect("a live connection");
    }

    pub fn create(&mut self, path: &str, mode: CreateMode) {
        assert_eq!(self.call(OpCode::Create, &create(path, mode)), 0);
    }

    /// Sends a create and does not wait for the reply.
    pub fn begin_create(&mut self, path: &str, mode: CreateMode) {
        self.ask(OpCode::Create, &create(path, mode));
    }

    /// Waits until the server has applied all committed transactions.
    pub fn sync(&mut self) {
        let mut body = Vec::new();
        body.put_str("/");
        assert_eq!(self.call(OpCode::Sync, &body), 0);
    }

    pub fn has(&mut self, path: &str) -> bool {
        let mut body = Vec::new();
        body.put_str(path);
        body.put_bool(false);
        match self.call(OpCode::Exists, &body) {
            0 => true,
            err if err == ErrorCode::NoNode.code() => false,
            err => panic!("error {err}"),
        }
    }

    /// Sends a read of the root and does not wait for the reply.
    pub fn begin_read(&mut self) {
        let mut body = Vec::new();
        body.put_str("/");
        body.put_bool(false);
        self.ask(OpCode::GetData, &body);
    }

    /// Waits until the server closes the connection.
    pub fn hear_end(&mut self) {
        let end = receive(&mut self.stream).expect_err("the end of the connection");
        assert_ne!(end.kind(), io::ErrorKind::WouldBlock, "the connection is still there");
    }

    /// Waits until the server closes the connection, after any number of replies.
    pub fn hear_end_behind_replies(&mut self) {
        let end = loop {
            if let Err(end) = receive(&mut self.stream) {
                break end;
            }
        };
        assert_ne!(end.kind(), io::ErrorKind::WouldBlock, "the connection is still there");
    }
}

fn create(path: &str, mode: CreateMode) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_buf(Some(b"data"));
    acl::encode_list(&acl::open(), &mut body);
    body.put_i32(mode.flags());
    body
}

fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::new();
    frame.put_len(body.len());
    frame.extend_from_slice(body);
    stream.write_all(&frame)
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let len = usize::try_from(i32::from_be_bytes(head)).expect("a length");
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    Ok(body)
}
