//! A client: its connection, its session, its outstanding requests and its knowledge.

use std::collections::{BTreeMap, VecDeque};

use ironkeeper_proto::connect::{ConnectRequest, PASSWORD_LEN};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::{SessionId, Xid, Zxid};
use ironkeeper_zab::LinkId;

use super::early_ends::{Reign, SignOfLife};
use super::requests::Request;

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Away,
    Dialing,
    /// The client has sent the ConnectRequest, for a new or an existing session.
    Greeting(LinkId),
    Open(LinkId),
}

/// The state of a client's final check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWords {
    Unsaid,
    /// Sent; the replies are outstanding.
    Said,
    Answered,
}

/// A request that waits for its reply.
#[derive(Clone, Debug)]
pub struct Asked {
    pub xid: Xid,
    pub at_us: u64,
    pub request: Request,
    /// The leader term of the client's server at that time, if it was leading.
    pub reign: Option<Reign>,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    pub number: usize,
    /// Its node number in the network.
    pub node: usize,
    pub stage: Stage,
    /// The number of the connection attempt.
    pub attempt: u64,
    pub timeout_ms: i32,
    pub session: SessionId,
    pub password: [u8; PASSWORD_LEN],
    pub last_zxid: Zxid,
    /// The zxids of later replies must not be below this: the largest zxid received on this
    /// connection, or before from a server with a leader.
    pub floor_zxid: Zxid,
    /// The largest zxid received from servers with a leader.
    pub told_zxid: Zxid,
    /// Whether the client accepts a server in read-only mode.
    pub allows_read_only: bool,
    /// Whether the client is connected to a server in read-only mode.
    pub is_read_only: bool,
    xid: i32,
    /// Bounded: at a limit the client sends no more requests.
    pub pending: VecDeque<Asked>,
    pub unread: Vec<u8>,
    pub sent_us: u64,
    pub heard_us: u64,
    /// The last time at which its session was certainly alive.
    pub alive: Option<SignOfLife>,
    /// Whether it has requested the end of its session.
    pub asked_to_close: bool,
    pub paused_until_us: u64,
    /// The newest version of each register that the client has read; -1 for none.
    pub seen: Vec<i32>,
    /// The same for reads on the current read-only connection. These versions may be undone.
    pub glimpsed: Vec<i32>,
    /// Registers with a watch, and the version that was read when the watch was set.
    pub watches: BTreeMap<usize, i32>,
    /// The number of its ephemeral nodes.
    pub ephemerals: u64,
    pub last_words: LastWords,
}

impl Client {
    pub fn new(number: usize, node: usize, timeout_ms: i32, registers: usize) -> Client {
        Client {
            number,
            node,
            stage: Stage::Away,
            attempt: 0,
            timeout_ms,
            session: SessionId::NONE,
            password: [0; PASSWORD_LEN],
            last_zxid: Zxid::ZERO,
            floor_zxid: Zxid::ZERO,
            told_zxid: Zxid::ZERO,
            allows_read_only: false,
            is_read_only: false,
            xid: 0,
            pending: VecDeque::new(),
            unread: Vec::new(),
            sent_us: 0,
            heard_us: 0,
            alive: None,
            asked_to_close: false,
            paused_until_us: 0,
            seen: vec![-1; registers],
            glimpsed: vec![-1; registers],
            watches: BTreeMap::new(),
            ephemerals: 0,
            last_words: LastWords::Unsaid,
        }
    }

    /// Returns its end of a network link. Clients have a single boot, number 0.
    pub fn end(&self) -> (usize, u64) {
        (self.node, 0)
    }

    pub fn is_dialing(&self, attempt: u64) -> bool {
        self.stage == Stage::Dialing && self.attempt == attempt
    }

    pub fn link(&self) -> Option<LinkId> {
        match self.stage {
            Stage::Greeting(link) | Stage::Open(link) => Some(link),
            Stage::Away | Stage::Dialing => None,
        }
    }

    /// Returns whether the client is connected to a server with a leader and waits for no reply.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.stage, Stage::Open(_)) && self.pending.is_empty() && !self.is_read_only
    }

    /// Resets the state after the end of the session. The client then acts as a new one.
    pub fn forget_session(&mut self) {
        self.session = SessionId::NONE;
        self.password = [0; PASSWORD_LEN];
        self.last_zxid = Zxid::ZERO;
        self.told_zxid = Zxid::ZERO;
        self.seen.fill(-1);
        self.watches.clear();
        (self.alive, self.asked_to_close) = (None, false);
    }

    /// Resets the state after the end of the connection. Outstanding replies are dropped.
    pub fn forget_connection(&mut self) {
        self.stage = Stage::Away;
        self.pending.clear();
        self.unread.clear();
        if self.is_read_only {
            // The next server creates a new session. The versions it has read and its watches
            // remain.
            self.is_read_only = false;
            self.session = SessionId::NONE;
            self.password = [0; PASSWORD_LEN];
        }
        if self.last_words == LastWords::Said {
            self.last_words = LastWords::Unsaid;
        }
    }

    /// Encodes a ConnectRequest with this last zxid.
    pub fn greeting(&self, last_zxid_seen: Zxid) -> Vec<u8> {
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: self.timeout_ms,
            session: self.session,
            password: &self.password,
            read_only: Some(self.allows_read_only),
        }
        .encode(&mut body);
        framed(&body)
    }

    /// Appends the request to `pending` and returns the bytes to send.
    pub fn ask(&mut self, request: Request, reign: Option<Reign>, now_us: u64) -> Vec<u8> {
        self.asked_to_close |= matches!(request, Request::Close);
        let xid = match request {
            Request::Ping => Xid::PING,
            Request::SetWatches { .. } => Xid::SET_WATCHES,
            _ => {
                self.xid += 1;
                Xid(self.xid)
            }
        };
        let mut body = Vec::new();
        RequestHeader { xid, op: request.op().code() }.encode(&mut body);
        request.encode(&mut body);
        self.pending.push_back(Asked { xid, at_us: now_us, request, reign });
        self.sent_us = now_us;
        framed(&body)
    }

    /// Returns the next complete frame of the received bytes.
    pub fn next_frame(&mut self) -> Option<Vec<u8>> {
        let head = self.unread.first_chunk::<4>()?;
        let end = 4 + u32::from_be_bytes(*head) as usize;
        if self.unread.len() < end {
            return None;
        }
        let rest = self.unread.split_off(end);
        let frame = std::mem::replace(&mut self.unread, rest);
        Some(frame[4..].to_vec())
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_len(body.len());
    frame.put_raw(body);
    frame
}
