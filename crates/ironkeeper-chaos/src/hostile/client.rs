//! A client that only sends the given requests; it neither pings nor reconnects.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_peers::connection::{Incoming, Link, framed};
use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{OpCode, Reader, SessionId, Zxid};

use super::op::Op;

/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that a write to a server that does not read may block.
const WRITE_MAX: Duration = Duration::from_millis(200);
/// The requested session timeout.
const TIMEOUT_MS: i32 = 30_000;
/// A pause after a failed request, so that attackers in a loop leave CPU time to other processes.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of requests that are sent before their replies are read.
const WINDOW: usize = 200;

/// The result of a request: the error code in the header of its reply.
#[derive(Debug)]
pub struct Reply {
    pub err: i32,
}

#[derive(Debug)]
pub struct Client {
    link: Link,
    pub session: ConnectResponse,
}

impl Client {
    /// Opens a connection and a session.
    pub fn connect(port: u16) -> Result<Client> {
        Client::connect_for(port, TIMEOUT_MS)
    }

    /// Opens a connection and a session with this timeout.
    pub fn connect_for(port: u16, timeout_ms: i32) -> Result<Client> {
        let mut link = Link::open(port)?;
        link.stream().set_write_timeout(Some(PATIENCE))?;
        link.write(&connect_request(SessionId::NONE, timeout_ms));
        let Incoming::Frame(frame) = link.read(PATIENCE) else {
            bail!("no session was opened on port {port}");
        };
        let session = ConnectResponse::decode(&frame).context("a broken ConnectResponse")?;
        Ok(Client { link, session })
    }

    /// Opens a session on a connection that sends and never reads.
    pub fn mute(port: u16) -> Result<Client> {
        let client = Client::connect(port)?;
        client.link.stream().set_write_timeout(Some(WRITE_MAX))?;
        Ok(client)
    }

    /// Sends a request without waiting for the reply; returns `false` if it could not be written
    /// completely.
    pub fn send(&mut self, op: &Op) -> bool {
        let xid = self.link.next_xid();
        self.send_raw(&framed(&op.with_xid(xid)))
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> bool {
        let mut stream = self.link.stream();
        stream.write_all(bytes).is_ok()
    }

    pub fn ask(&mut self, op: &Op) -> Result<Reply> {
        self.send(op);
        self.reply(op)
    }

    /// Sends all requests, [`WINDOW`] at a time, and waits for their replies.
    pub fn ask_all<'o>(&mut self, ops: impl IntoIterator<Item = &'o Op>) -> Result<()> {
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() {
            let window: Vec<&Op> = ops.by_ref().take(WINDOW).collect();
            // In one write, like a pipelining client.
            let mut bytes = Vec::new();
            for op in &window {
                let xid = self.link.next_xid();
                bytes.extend(framed(&op.with_xid(xid)));
            }
            self.send_raw(&bytes);
            for op in window {
                self.reply(op)?;
            }
        }
        Ok(())
    }

    /// Returns the next reply; events before it are dropped.
    fn reply(&mut self, to: &Op) -> Result<Reply> {
        loop {
            let frame = match self.link.read(PATIENCE) {
                Incoming::Frame(frame) => frame,
                other => {
                    thread::sleep(PAUSE);
                    bail!("{:?} was not answered: {other:?}", to.code);
                }
            };
            let mut reader = Reader::new(&frame);
            let header = ReplyHeader::decode(&mut reader).context("a broken ReplyHeader")?;
            if header.xid.0 != -1 {
                return Ok(Reply { err: header.err });
            }
        }
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Closes the session, which deletes its ephemeral nodes.
    pub fn close(mut self) -> Result<()> {
        self.ask(&Op::bare(OpCode::CloseSession)).map(drop)
    }
}

/// Returns the first frame of a connection.
pub fn connect_request(session: SessionId, timeout_ms: i32) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid::ZERO,
        timeout_ms,
        session,
        password: &[0; PASSWORD_LEN],
        read_only: Some(false),
    };
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    framed(&bytes)
}
