//! A client: its connection, its session, what it has asked for and what it knows.

use std::collections::{BTreeMap, VecDeque};

use ironkeeper_proto::connect::{ConnectRequest, PASSWORD_LEN};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::{SessionId, Xid, Zxid};
use ironkeeper_zab::LinkId;

use super::early_ends::{Reign, SignOfLife};
use super::requests::Request;

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Away,
    Dialing,
    /// The session was asked for, old or new.
    Greeting(LinkId),
    Open(LinkId),
}

/// The end of the story, for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWords {
    Unsaid,
    /// Said, and not yet answered.
    Said,
    Answered,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    pub xid: Xid,
    pub at_us: u64,
    pub request: Request,
    /// If its server was leading then.
    pub reign: Option<Reign>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Client {
    pub number: usize,
    /// Its place in the network.
    pub node: usize,
    pub stage: Stage,
    /// Numbers connection attempts.
    pub attempt: u64,
    pub timeout_ms: i32,
    pub session: SessionId,
    pub password: [u8; PASSWORD_LEN],
    pub last_zxid: Zxid,
    /// It never goes back behind this: what it was told on this connection, or by a server with a leader before.
    pub floor_zxid: Zxid,
    /// What it was told by servers with a leader.
    pub told_zxid: Zxid,
    /// Whether it accepts a server that has no leader and only serves reads ...
    pub allows_read_only: bool,
    /// ... and whether it is at one.
    pub is_read_only: bool,
    xid: i32,
    /// Bounded: a client that waits for much asks for no more.
    pub pending: VecDeque<Asked>,
    pub unread: Vec<u8>,
    pub sent_us: u64,
    pub heard_us: u64,
    /// When its session was alive for certain.
    pub alive: Option<SignOfLife>,
    /// Whether it has ever wanted to end its session.
    pub asked_to_close: bool,
    pub paused_until_us: u64,
    /// The newest version it has seen of each register; -1 is none.
    pub seen: Vec<i32>,
    /// The same at the server without a leader that it is at: this may be undone.
    pub glimpsed: Vec<i32>,
    /// Registers with a watch, and the version that was seen when it was set.
    pub watches: BTreeMap<usize, i32>,
    /// Numbers its ephemeral nodes.
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

    /// Its end of the network's links. It lives for ever.
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

    /// Whether it waits for nothing.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.stage, Stage::Open(_)) && self.pending.is_empty() && !self.is_read_only
    }

    /// The session has ended. What comes next is another client in the same place.
    pub fn forget_session(&mut self) {
        self.session = SessionId::NONE;
        self.password = [0; PASSWORD_LEN];
        self.last_zxid = Zxid::ZERO;
        self.told_zxid = Zxid::ZERO;
        self.seen.fill(-1);
        self.watches.clear();
        (self.alive, self.asked_to_close) = (None, false);
    }

    /// The connection is gone, and with it all answers that were to come.
    pub fn forget_connection(&mut self) {
        self.stage = Stage::Away;
        self.pending.clear();
        self.unread.clear();
        if self.is_read_only {
            // The next server gives it a session of its own. What it has seen, and its watches, are still its.
            self.is_read_only = false;
            self.session = SessionId::NONE;
            self.password = [0; PASSWORD_LEN];
        }
        if self.last_words == LastWords::Said {
            self.last_words = LastWords::Unsaid;
        }
    }

    /// How it asks for its session, saying that it has seen so much.
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

    /// Takes a place in line for the request: the bytes to be sent.
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

    /// Takes the next whole frame from what has arrived.
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
