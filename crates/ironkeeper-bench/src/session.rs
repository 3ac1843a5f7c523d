//! A blocking session: creates the nodes of a run, and opens the sessions of all workloads.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{ErrorCode, OpCode, Put, Reader, SessionId, Zxid};

use super::connection::Connection;
use super::template::append_request;

/// Sessions that are opened at the same time. Apache's listen queue holds 50; a connection that
/// does not fit is delayed by a second.
const OPEN_AT_ONCE: usize = 32;
/// Requests in flight of [`Session::codes`]: few enough for the socket buffers of both directions.
const IN_FLIGHT: usize = 256;
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A server that sends nothing for so long is treated as failed.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The longest accepted reply: the names of some ten million children.
const FRAME_MAX: usize = 256 << 20;

/// A session on a blocking connection. It has no watches and hence receives no events.
#[derive(Debug)]
pub(crate) struct Session {
    stream: BufReader<TcpStream>,
    next_xid: i32,
    timeout_ms: i32,
}

impl Session {
    pub(crate) fn open(server: SocketAddr, timeout_ms: i32) -> Result<Session> {
        let mut session = Session::ask(server, timeout_ms)?;
        session.established()?;
        Ok(session)
    }

    /// Opens `count` sessions, `OPEN_AT_ONCE` at a time.
    pub(crate) fn open_many(
        server: SocketAddr,
        timeout_ms: i32,
        count: u32,
    ) -> Result<Vec<Session>> {
        let count = count as usize;
        let mut sessions = Vec::with_capacity(count);
        while sessions.len() < count {
            let established = sessions.len();
            for _ in established..count.min(established + OPEN_AT_ONCE) {
                sessions.push(Session::ask(server, timeout_ms)?);
            }
            for (at, session) in sessions.iter_mut().enumerate().skip(established) {
                session.established().with_context(|| format!("session {} of {count}", at + 1))?;
            }
        }
        Ok(sessions)
    }

    /// Opens `count` sessions, distributed over the servers in turn. With several servers each
    /// session sends a sync, so that it reads all earlier writes: a write that one member has
    /// acknowledged may not be applied on another member yet.
    pub(crate) fn open_spread(
        servers: &[SocketAddr],
        timeout_ms: i32,
        count: u32,
    ) -> Result<Vec<Session>> {
        let mut shares = Vec::new();
        for (at, server) in (0_u32..).zip(servers) {
            let others = servers.len() as u32;
            let share = count / others + u32::from(at < count % others);
            shares.push(Session::open_many(*server, timeout_ms, share)?.into_iter());
        }
        let mut sessions = Vec::with_capacity(count as usize);
        while sessions.len() < count as usize {
            sessions.extend(shares.iter_mut().filter_map(Iterator::next));
        }
        if servers.len() > 1 {
            for session in &mut sessions {
                session.call(OpCode::Sync, |out| out.put_str("/"))?.map_err(unexpected)?;
            }
        }
        Ok(sessions)
    }

    fn ask(server: SocketAddr, timeout_ms: i32) -> Result<Session> {
        let mut stream = TcpStream::connect_timeout(&server, CONNECT_MAX)
            .with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.write_all(&connect_request(timeout_ms))?;
        Ok(Session { stream: BufReader::new(stream), next_xid: 1, timeout_ms })
    }

    fn established(&mut self) -> Result<()> {
        let frame = self.frame().context(
            "the server closed the connection instead of opening a session \
             (Apache's maxClientCnxns allows 60 from one address unless configured)",
        )?;
        let response = ConnectResponse::decode(&frame)?;
        if response.timeout_ms <= 0 {
            bail!("the server refused the session");
        }
        self.timeout_ms = response.timeout_ms;
        Ok(())
    }

    /// Returns the timeout that the server granted.
    pub(crate) fn timeout_ms(&self) -> i32 {
        self.timeout_ms
    }

    /// Sends one request and returns the body of the reply, or its error code.
    pub(crate) fn call(
        &mut self,
        op: OpCode,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Result<Vec<u8>, i32>> {
        let mut out = Vec::new();
        let xid = self.take_xid();
        append_request(xid, op, &mut out, body);
        self.stream.get_mut().write_all(&out)?;
        self.answer(xid)
    }

    /// Sends one request per item, many in flight, and returns the error codes (0: none) in order.
    pub(crate) fn codes<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut append: impl FnMut(&T, i32, &mut Vec<u8>),
    ) -> Result<Vec<i32>> {
        let mut items = items.into_iter();
        let mut codes = Vec::new();
        let mut out = Vec::new();
        loop {
            let first_xid = self.next_xid;
            out.clear();
            for item in items.by_ref().take(IN_FLIGHT) {
                append(&item, self.take_xid(), &mut out);
            }
            if out.is_empty() {
                return Ok(codes);
            }
            self.stream.get_mut().write_all(&out)?;
            for xid in first_xid..self.next_xid {
                codes.push(self.answer(xid)?.err().unwrap_or(0));
            }
        }
    }

    pub(crate) fn close(mut self) -> Result<()> {
        self.call(OpCode::CloseSession, |_| ())?.map(drop).map_err(unexpected)
    }

    /// Converts the session to a non-blocking connection.
    pub(crate) fn into_connection(self) -> Result<Connection> {
        // The buffer is empty: a session without watches receives only replies.
        let stream = self.stream.into_inner();
        stream.set_nonblocking(true)?;
        Ok(Connection::new(mio::net::TcpStream::from_std(stream)))
    }

    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        xid
    }

    fn answer(&mut self, xid: i32) -> Result<Result<Vec<u8>, i32>> {
        let mut frame = self.frame()?;
        let header = ReplyHeader::decode(&mut Reader::new(&frame))?;
        if header.xid.0 != xid {
            bail!("the server answered request {} when {xid} was due", header.xid.0);
        }
        if header.err != 0 {
            return Ok(Err(header.err));
        }
        frame.drain(..ReplyHeader::ENCODED_LEN);
        Ok(Ok(frame))
    }

    fn frame(&mut self) -> Result<Vec<u8>> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).context("no answer from the server")?;
        let len = match usize::try_from(i32::from_be_bytes(len)) {
            Ok(len) if len <= FRAME_MAX => len,
            _ => bail!("the server sent a frame of impossible length {}", i32::from_be_bytes(len)),
        };
        let mut frame = Vec::new();
        self.stream.by_ref().take(len as u64).read_to_end(&mut frame)?;
        if frame.len() < len {
            bail!("the server closed the connection in the middle of an answer");
        }
        Ok(frame)
    }
}

/// Encodes the connect request of a new session.
pub(crate) fn connect_request(timeout_ms: i32) -> Vec<u8> {
    let mut body = Vec::new();
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid::ZERO,
        timeout_ms,
        session: SessionId::NONE,
        password: &[0; PASSWORD_LEN],
        read_only: Some(false),
    }
    .encode(&mut body);
    let mut frame = Vec::new();
    frame.put_buf(Some(&body));
    frame
}

/// Returns the error for an unexpected error code.
pub(crate) fn unexpected(code: i32) -> anyhow::Error {
    anyhow::anyhow!("the server answered {}", code_name(code))
}

/// Returns the text of an error code.
pub(crate) fn code_name(code: i32) -> String {
    ErrorCode::from_code(code)
        .map_or_else(|| format!("error {code}"), |error| error.text().to_owned())
}
