//! A minimal client that creates a tree and reads a whole tree.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result, bail};
use ironkeeper_peers::connection::{Incoming, Link, SILENCE, framed};
use ironkeeper_proto::acl::{Acl, AclVec, encode_list};
use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse};
use ironkeeper_proto::reply::{MultiHeader, ReplyHeader};
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::{CreateMode, OpCode, Put, Reader, SessionId, Stat, Xid, Zxid};

/// Several times the start-up time of a JVM on a busy machine, so that sessions survive it.
pub const SESSION_TIMEOUT_MS: i32 = 600_000;
/// Replies contain whole nodes; the largest is below the default limit of a request.
const FIELD_MAX: usize = 16 << 20;

/// All attributes of a node that a client can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub data: Option<Vec<u8>>,
    pub stat: Stat,
    pub acl: Vec<Acl>,
}

pub type Dump = BTreeMap<String, Node>;

/// A reply: the server's zxid, and the body or the error.
#[derive(Debug)]
pub struct Reply {
    pub zxid: Zxid,
    pub outcome: Result<Vec<u8>, i32>,
}

/// A session over one connection.
#[derive(Debug)]
pub struct Client {
    link: Link,
    session: SessionId,
    waiting: VecDeque<i32>,
}

impl Client {
    pub fn open(port: u16) -> Result<Self> {
        Self::connect(port, SessionId::NONE)
    }

    /// Resumes a session on the server that has it now.
    pub fn resume(port: u16, session: SessionId) -> Result<Self> {
        let client = Self::connect(port, session)?;
        if client.session != session {
            bail!("the server gave session {} for {session}", client.session);
        }
        Ok(client)
    }

    fn connect(port: u16, session: SessionId) -> Result<Self> {
        let mut link = Link::open(port)?;
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: SESSION_TIMEOUT_MS,
            session,
            password: &if session == SessionId::NONE { [0; 16] } else { session.password() },
            read_only: Some(false),
        }
        .encode(&mut body);
        link.write(&framed(&body));
        let Incoming::Frame(frame) = link.read(SILENCE) else {
            bail!("the handshake was not answered")
        };
        let answer = ConnectResponse::decode(&frame)?;
        if answer.timeout_ms == 0 {
            bail!("session {session} is not known");
        }
        Ok(Self { link, session: answer.session, waiting: VecDeque::new() })
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Sends a request whose reply is read later by [`Client::receive`].
    pub fn send(&mut self, op: OpCode, body: &[u8]) {
        let xid = self.link.next_xid();
        self.send_as(xid, op, body);
    }

    fn send_as(&mut self, xid: i32, op: OpCode, body: &[u8]) {
        let mut frame = Vec::with_capacity(body.len() + 8);
        RequestHeader { xid: Xid(xid), op: op.code() }.encode(&mut frame);
        frame.extend_from_slice(body);
        self.link.write(&framed(&frame));
        self.waiting.push_back(xid);
    }

    /// Returns the reply to the oldest outstanding request; `None` if the server has closed the
    /// connection.
    pub fn receive(&mut self) -> Result<Option<Reply>> {
        let expected = self.waiting.pop_front().context("nothing was asked")?;
        match self.link.read(SILENCE) {
            Incoming::Frame(frame) => {
                let mut reader = Reader::with_limit(&frame, FIELD_MAX);
                let header = ReplyHeader::decode(&mut reader)?;
                if header.xid.0 != expected {
                    bail!("a reply to {} where that to {expected} was due", header.xid.0);
                }
                let outcome =
                    if header.err == 0 { Ok(reader.rest().to_vec()) } else { Err(header.err) };
                Ok(Some(Reply { zxid: header.zxid, outcome }))
            }
            Incoming::Closed => Ok(None),
            Incoming::Silent => bail!("no reply within {SILENCE:?}"),
            Incoming::Nonsense(len) => bail!("a reply of {len} bytes"),
        }
    }

    pub fn call(&mut self, op: OpCode, body: &[u8]) -> Result<Reply> {
        self.send(op, body);
        self.receive()?.with_context(|| format!("the server hung up on {op:?}"))
    }

    fn must(&mut self, op: OpCode, body: &[u8], about: &str) -> Result<Vec<u8>> {
        match self.call(op, body)?.outcome {
            Ok(body) => Ok(body),
            Err(code) => bail!("{op:?} {about} was refused with {code}"),
        }
    }

    pub fn add_auth(&mut self, scheme: &str, auth: &[u8]) -> Result<()> {
        let mut body = Vec::new();
        body.put_i32(0);
        body.put_str(scheme);
        body.put_buf(Some(auth));
        self.send_as(Xid::AUTH.0, OpCode::Auth, &body);
        match self.receive()?.context("the server hung up on addauth")?.outcome {
            Ok(_) => Ok(()),
            Err(code) => bail!("addauth {scheme} was refused with {code}"),
        }
    }

    /// Creates a node of any kind except TTL nodes; returns its path.
    pub fn create(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        mode: CreateMode,
        acl: &[Acl],
    ) -> Result<String> {
        let op =
            if mode == CreateMode::Container { OpCode::CreateContainer } else { OpCode::Create };
        let reply = self.must(op, &create_body(path, data, mode, acl), path)?;
        Ok(Reader::new(&reply).str()?.into_owned())
    }

    pub fn create_ttl(&mut self, path: &str, mode: CreateMode, ttl_ms: i64) -> Result<()> {
        let mut body =
            create_body(path, Some(b"for a while"), mode, &ironkeeper_proto::acl::open());
        body.put_i64(ttl_ms);
        self.must(OpCode::CreateTtl, &body, path).map(drop)
    }

    pub fn set(&mut self, path: &str, data: Option<&[u8]>) -> Result<()> {
        self.must(OpCode::SetData, &set_body(path, data), path).map(drop)
    }

    pub fn delete(&mut self, path: &str) -> Result<()> {
        self.must(OpCode::Delete, &delete_body(path), path).map(drop)
    }

    pub fn set_acl(&mut self, path: &str, acl: &[Acl]) -> Result<()> {
        self.must(OpCode::SetAcl, &set_acl_body(path, acl), path).map(drop)
    }

    /// Executes a multi; returns `false` if it was rejected as a whole.
    pub fn multi(&mut self, parts: &[(OpCode, Vec<u8>)]) -> Result<bool> {
        let mut body = Vec::new();
        for (op, part) in parts {
            MultiHeader { kind: op.code(), done: false, err: -1 }.encode(&mut body);
            body.extend_from_slice(part);
        }
        MultiHeader::END.encode(&mut body);
        match self.call(OpCode::Multi, &body)?.outcome {
            Ok(reply) => {
                let first = MultiHeader::decode(&mut Reader::new(&reply))?;
                Ok(first.kind != OpCode::Error.code())
            }
            Err(_) => Ok(false),
        }
    }

    /// Closes the session, which deletes its ephemeral nodes.
    pub fn close(mut self) -> Result<()> {
        self.must(OpCode::CloseSession, &[], "the session").map(drop)
    }

    /// Sends transactions that change nothing until the last zxid is one for which servers keep a
    /// digest.
    pub fn reach_digest(&mut self, interval: i64) -> Result<Zxid> {
        let mut missing = 1;
        loop {
            // All missing transactions at once: no other client writes now, so the last one has the
            // wanted zxid.
            for _ in 0..missing {
                self.send(OpCode::Delete, &delete_body("/no such node"));
            }
            let mut last = Zxid::ZERO;
            for _ in 0..missing {
                let reply = self.receive()?.context("the server hung up")?;
                if reply.outcome.is_ok() {
                    bail!("a node that does not exist was deleted");
                }
                last = reply.zxid;
            }
            missing = (interval - last.0 % interval) % interval;
            if missing == 0 {
                return Ok(last);
            }
        }
    }

    /// Reads the whole tree. The session must have the permission to read all of it.
    pub fn dump(&mut self) -> Result<Dump> {
        const AT_ONCE: usize = 50;
        let mut dump = Dump::new();
        let mut left = vec!["/".to_owned()];
        while !left.is_empty() {
            let batch = left.split_off(left.len().saturating_sub(AT_ONCE));
            for path in &batch {
                let mut body = Vec::new();
                body.put_str(path);
                self.send(OpCode::GetAcl, &body);
                body.put_bool(false);
                self.send(OpCode::GetData, &body);
                self.send(OpCode::GetChildren, &body);
            }
            for path in batch {
                let reply = self.read_of(&path)?;
                let acl = AclVec::decode(&mut Reader::new(&reply))?.context("a null ACL")?.to_vec();
                let reply = self.read_of(&path)?;
                let mut reader = Reader::with_limit(&reply, FIELD_MAX);
                let data = reader.buf()?.map(<[u8]>::to_vec);
                let stat = Stat::decode(&mut reader)?;
                let reply = self.read_of(&path)?;
                let children =
                    Reader::with_limit(&reply, FIELD_MAX).str_vec()?.context("null children")?;
                let parent = if path == "/" { "" } else { &path };
                left.extend(children.iter().map(|child| format!("{parent}/{child}")));
                dump.insert(path, Node { data, stat, acl });
            }
        }
        Ok(dump)
    }

    fn read_of(&mut self, path: &str) -> Result<Vec<u8>> {
        match self.receive()?.with_context(|| format!("the server hung up on {path}"))?.outcome {
            Ok(body) => Ok(body),
            Err(code) => bail!("a read of {path} was refused with {code}"),
        }
    }
}

pub fn create_body(path: &str, data: Option<&[u8]>, mode: CreateMode, acl: &[Acl]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_buf(data);
    encode_list(acl, &mut body);
    body.put_i32(mode.flags());
    body
}

pub fn set_body(path: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_buf(data);
    body.put_i32(-1);
    body
}

pub fn delete_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    body.put_i32(-1);
    body
}

pub fn set_acl_body(path: &str, acl: &[Acl]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_str(path);
    encode_list(acl, &mut body);
    body.put_i32(-1);
    body
}

/// Compares two dumps; the error describes the differences in a few lines.
pub fn compare(before: &Dump, after: &Dump) -> Result<(), String> {
    const SHOWN: usize = 5;
    let mut differences = Vec::new();
    for path in before.keys().chain(after.keys().filter(|path| !before.contains_key(*path))) {
        match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) => {
                differences.push(format!("{path} was {}\n  and is {}", brief(old), brief(new)));
            }
            (Some(_), None) => differences.push(format!("{path} is gone")),
            (None, _) => differences.push(format!("{path} was not there before")),
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.len();
    differences.truncate(SHOWN);
    Err(format!("{count} of {} nodes differ\n{}", before.len(), differences.join("\n")))
}

fn brief(node: &Node) -> String {
    let data = match &node.data {
        None => "null".to_owned(),
        Some(data) if data.len() > 60 => format!("{} bytes", data.len()),
        Some(data) => format!("{:?}", String::from_utf8_lossy(data)),
    };
    format!("{data} {:?} {:?}", node.stat, node.acl)
}
