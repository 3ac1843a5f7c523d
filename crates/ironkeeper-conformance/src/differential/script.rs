//! The requests and connections of a run, valid and invalid, in an order that is equal for both
//! servers.
//!
//! A [`Script`] is plain data. It names connections by slot and sessions by label, so that the same
//! script has the same meaning on two servers that assign different session ids, and is still valid
//! after steps were removed from it.

use std::fmt;

use ironkeeper_proto::Put;
use ironkeeper_proto::op::OpCode;
use ironkeeper_proto::reply::MultiHeader;

/// A string field as encoded: null, or arbitrary bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(pub Option<Vec<u8>>);

impl Text {
    pub const NULL: Text = Text(None);

    fn put(&self, out: &mut Vec<u8>) {
        out.put_buf(self.0.as_deref());
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(Some(text.as_bytes().to_vec()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(Some(text.into_bytes()))
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Text(Some(bytes.to_vec()))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("null"),
            Some(bytes) => f.write_str(&quoted(bytes)),
        }
    }
}

/// Formats bytes as readable text; the middle of long values is omitted.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    if bytes.len() <= SHOWN_MAX {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    // The sum distinguishes two long values with equal beginnings.
    let sum =
        bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    format!("\"{}\"... {} bytes, sum {sum:08x}", bytes[..32].escape_ascii(), bytes.len())
}

/// One entry of an ACL.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub perms: i32,
    pub scheme: Text,
    pub id: Text,
}

impl Entry {
    pub fn new(perms: i32, scheme: &str, id: &str) -> Self {
        Self { perms, scheme: scheme.into(), id: id.into() }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:?}:{}", self.scheme, self.id, self.perms)
    }
}

pub type AclList = Option<Vec<Entry>>;

pub fn open() -> AclList {
    Some(vec![Entry::new(31, "world", "anyone")])
}

fn put_acl(acl: &AclList, out: &mut Vec<u8>) {
    match acl {
        None => out.put_i32(-1),
        Some(entries) => {
            out.put_len(entries.len());
            for entry in entries {
                out.put_i32(entry.perms);
                entry.scheme.put(out);
                entry.id.put(out);
            }
        }
    }
}

fn put_texts(list: &Option<Vec<Text>>, out: &mut Vec<u8>) {
    match list {
        None => out.put_i32(-1),
        Some(texts) => {
            out.put_len(texts.len());
            for text in texts {
                text.put(out);
            }
        }
    }
}

/// A zxid that a script can refer to without knowing the server's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZxidRef {
    Absolute(i64),
    /// The newest zxid in any reply of this run, plus an offset.
    Seen(i64),
}

/// The body of one request, or of one operation in a multi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Operations 1, 15, 19 and 21; only 21 encodes a TTL.
    Create {
        op: i32,
        path: Text,
        data: Text,
        acl: AclList,
        flags: i32,
        ttl: i64,
    },
    Delete {
        path: Text,
        version: i32,
    },
    /// Operations 3, 4, 8 and 12.
    Read {
        op: i32,
        path: Text,
        watch: bool,
    },
    SetData {
        path: Text,
        data: Text,
        version: i32,
    },
    GetAcl {
        path: Text,
    },
    SetAcl {
        path: Text,
        acl: AclList,
        version: i32,
    },
    Sync {
        path: Text,
    },
    Ping,
    Check {
        path: Text,
        version: i32,
    },
    /// Operations 14 and 22. Each operation is stored with the type in its header.
    Multi {
        op: i32,
        operations: Vec<(i32, Request)>,
        ended: bool,
    },
    Reconfig {
        joining: Text,
        leaving: Text,
        members: Text,
        config: i64,
    },
    /// Operations 17 and 18.
    Watches {
        op: i32,
        path: Text,
        kind: i32,
    },
    Auth {
        kind: i32,
        scheme: Text,
        auth: Text,
    },
    Sasl {
        token: Text,
    },
    /// Operations 101 (three lists) and 105 (five lists).
    SetWatches {
        op: i32,
        relative: ZxidRef,
        lists: Vec<Option<Vec<Text>>>,
    },
    GetEphemerals {
        prefix: Text,
    },
    GetAllChildrenNumber {
        path: Text,
    },
    AddWatch {
        path: Text,
        mode: i32,
    },
    WhoAmI,
    CloseSession,
    /// Any operation code with any body.
    Bytes {
        op: i32,
        body: Vec<u8>,
    },
}

impl Request {
    pub fn op(&self) -> i32 {
        match self {
            Request::Create { op, .. }
            | Request::Read { op, .. }
            | Request::Multi { op, .. }
            | Request::Watches { op, .. }
            | Request::SetWatches { op, .. }
            | Request::Bytes { op, .. } => *op,
            Request::Delete { .. } => OpCode::Delete.code(),
            Request::SetData { .. } => OpCode::SetData.code(),
            Request::GetAcl { .. } => OpCode::GetAcl.code(),
            Request::SetAcl { .. } => OpCode::SetAcl.code(),
            Request::Sync { .. } => OpCode::Sync.code(),
            Request::Ping => OpCode::Ping.code(),
            Request::Check { .. } => OpCode::Check.code(),
            Request::Reconfig { .. } => OpCode::Reconfig.code(),
            Request::Auth { .. } => OpCode::Auth.code(),
            Request::Sasl { .. } => OpCode::Sasl.code(),
            Request::GetEphemerals { .. } => OpCode::GetEphemerals.code(),
            Request::GetAllChildrenNumber { .. } => OpCode::GetAllChildrenNumber.code(),
            Request::AddWatch { .. } => OpCode::AddWatch.code(),
            Request::WhoAmI => OpCode::WhoAmI.code(),
            Request::CloseSession => OpCode::CloseSession.code(),
        }
    }

    pub fn put(&self, zxid: impl Fn(ZxidRef) -> i64 + Copy, out: &mut Vec<u8>) {
        match self {
            Request::Create { op, path, data, acl, flags, ttl } => {
                path.put(out);
                data.put(out);
                put_acl(acl, out);
                out.put_i32(*flags);
                if *op == OpCode::CreateTtl.code() {
                    out.put_i64(*ttl);
                }
            }
            Request::Delete { path, version } | Request::Check { path, version } => {
                path.put(out);
                out.put_i32(*version);
            }
            Request::Read { path, watch, .. } => {
                path.put(out);
                out.put_bool(*watch);
            }
            Request::SetData { path, data, version } => {
                path.put(out);
                data.put(out);
                out.put_i32(*version);
            }
            Request::SetAcl { path, acl, version } => {
                path.put(out);
                put_acl(acl, out);
                out.put_i32(*version);
            }
            Request::GetAcl { path }
            | Request::Sync { path }
            | Request::GetEphemerals { prefix: path }
            | Request::GetAllChildrenNumber { path } => path.put(out),
            Request::Multi { operations, ended, .. } => {
                for (kind, operation) in operations {
                    MultiHeader { kind: *kind, done: false, err: -1 }.encode(out);
                    operation.put(zxid, out);
                }
                if *ended {
                    MultiHeader::END.encode(out);
                }
            }
            Request::Reconfig { joining, leaving, members, config } => {
                joining.put(out);
                leaving.put(out);
                members.put(out);
                out.put_i64(*config);
            }
            Request::Watches { path, kind, .. } | Request::AddWatch { path, mode: kind } => {
                path.put(out);
                out.put_i32(*kind);
            }
            Request::Auth { kind, scheme, auth } => {
                out.put_i32(*kind);
                scheme.put(out);
                auth.put(out);
            }
            Request::Sasl { token } => token.put(out),
            Request::SetWatches { relative, lists, .. } => {
                out.put_i64(zxid(*relative));
                for list in lists {
                    put_texts(list, out);
                }
            }
            Request::Ping | Request::WhoAmI | Request::CloseSession => {}
            Request::Bytes { body, .. } => out.put_raw(body),
        }
    }
}

/// A change of the encoded body before it is framed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    None,
    /// Only this many bytes of the body are sent.
    Cut(usize),
    /// Bytes after the last field.
    Tail(Vec<u8>),
    /// One byte is replaced; a position after the end wraps around.
    Poke(usize, u8),
}

impl Damage {
    pub fn apply(&self, body: &mut Vec<u8>) {
        match self {
            Damage::None => {}
            Damage::Cut(len) => body.truncate(*len),
            Damage::Tail(bytes) => body.extend_from_slice(bytes),
            Damage::Poke(at, byte) => {
                if let Some(len) = std::num::NonZero::new(body.len()) {
                    body[*at % len] = *byte;
                }
            }
        }
    }
}

/// One frame of a connection after the handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The xid; `None` uses the connection's next xid.
    pub xid: Option<i32>,
    pub request: Request,
    pub damage: Damage,
}

impl From<Request> for Frame {
    fn from(request: Request) -> Self {
        Frame { xid: None, request, damage: Damage::None }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(xid) = self.xid {
            write!(f, "xid {xid}: ")?;
        }
        fmt::Debug::fmt(&self.request, f)?;
        if self.damage != Damage::None {
            write!(f, " damaged by {:?}", self.damage)?;
        }
        Ok(())
    }
}

/// The index of a connection of the script.
pub type Slot = usize;
pub const SLOTS: usize = 4;

/// The script's name of a session.
pub type Label = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRef {
    /// Requests a new session and stores it under this label.
    New(Label),
    /// Requests a session that was opened before; an unused label stands for an id that never
    /// existed.
    Known(Label),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    /// Zeros for a new session, the right password for a known session.
    Usual,
    Wrong,
    Null,
    /// Bytes of this length.
    Len(usize),
}

/// The handshake of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    pub session: SessionRef,
    pub timeout_ms: i32,
    pub password: Password,
    /// The read-only byte; `None` omits it.
    pub read_only: Option<u8>,
    pub last_zxid: ZxidRef,
    pub version: i32,
    pub damage: Damage,
}

impl Connect {
    pub fn new(label: Label) -> Self {
        Self::to(SessionRef::New(label))
    }

    pub fn again(label: Label) -> Self {
        Self::to(SessionRef::Known(label))
    }

    fn to(session: SessionRef) -> Self {
        Self {
            session,
            timeout_ms: 30_000,
            password: Password::Usual,
            read_only: Some(0),
            last_zxid: ZxidRef::Absolute(0),
            version: 0,
            damage: Damage::None,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Opens a connection in a slot; the slot's previous connection is dropped.
    Connect { slot: Slot, connect: Connect },
    /// Opens a connection and sends these frames as the first ones on it.
    Greet { slot: Slot, connect: Connect, frames: Vec<Frame> },
    /// Sends frames in one write and reads their replies.
    Send { slot: Slot, frames: Vec<Frame> },
    /// Sends frames on several connections at the same time, each below its own node; then reads
    /// all replies.
    Together { sends: Vec<(Slot, Vec<Frame>)> },
    /// Writes bytes that are not a complete valid frame; the server is expected to close the
    /// connection.
    Raw { slot: Slot, bytes: Vec<u8> },
    /// Closes the socket on the client's side; the session stays open.
    Drop { slot: Slot },
    /// Waits until the server has closed the idle connection and another connection has received an
    /// event of the session's expiry. Both, because Apache ends connection and session by two
    /// separate clocks.
    AwaitExpired { slot: Slot, watcher: Slot },
    /// Waits for a watch event.
    AwaitEvent { slot: Slot },
    /// Sends a four-letter word and keeps the lines that begin with one of the prefixes.
    Word { word: &'static str, lines: &'static [&'static str] },
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Connect { slot, connect } => write!(f, "c{slot} {connect:?}"),
            Step::Greet { slot, connect, frames } => {
                write!(f, "c{slot} {connect:?} and at once {frames:?}")
            }
            Step::Send { slot, frames } => {
                for (index, frame) in frames.iter().enumerate() {
                    let lead = if index == 0 { format!("c{slot}") } else { "\n      +".to_owned() };
                    write!(f, "{lead} {frame:?}")?;
                }
                Ok(())
            }
            Step::Together { sends } => {
                for (slot, frames) in sends {
                    write!(f, "\n      c{slot}")?;
                    for frame in frames {
                        write!(f, "\n      + {frame:?}")?;
                    }
                }
                Ok(())
            }
            Step::Raw { slot, bytes } => write!(f, "c{slot} raw {}", quoted(bytes)),
            Step::Drop { slot } => write!(f, "c{slot} drops its socket"),
            Step::AwaitExpired { slot, watcher } => {
                write!(f, "c{slot} waits to be closed, c{watcher} for an event")
            }
            Step::AwaitEvent { slot } => write!(f, "c{slot} waits for an event"),
            Step::Word { word, .. } => write!(f, "{word}"),
        }
    }
}

/// The steps of a run, and the subtree they use, which is deleted before and after.
#[derive(Debug, Clone)]
pub struct Script {
    pub root: String,
    pub steps: Vec<Step>,
    pub zxids: Zxids,
}

/// Whether the script or the server determines the order of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zxids {
    /// Sequential requests: zxids must be equal.
    Compared,
    /// Concurrent writes: only their number is compared, at the end.
    Hidden,
}
