//! Runs a script against one server and records the replies.
//!
//! After every step each open connection sends a `sync` with a reserved xid and reads up to its
//! reply. A server queues an event before it replies to the request that caused the event, so all
//! effects of the step have arrived by then, on every connection, and the next step starts from an
//! idle server.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_peers::connection::{Incoming, Link, SILENCE, framed};
use ironkeeper_peers::server;
use ironkeeper_proto::connect::{ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::op::OpCode;
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{ErrorCode, Put, SessionId, Xid};

use super::exceptions;
use super::script::{
    Connect, Frame, Label, Password, Request, SLOTS, Script, SessionRef, Slot, Step, Text, ZxidRef,
    Zxids,
};
use super::transcript::{Names, Purpose, hex};

/// The xid of the `sync` that ends a step. Scripts use other xids.
const FENCE_XID: i32 = 0x5eed_0000;
/// A session id that no server assigns.
const UNKNOWN_SESSION: i64 = 0x00de_ad00_beef_0000;
/// The timeout for a close that is expected at once.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The timeout of the session that cleans up. It sends nothing while the script runs, which takes a
/// cold JVM longer than the scripts' own timeout.
const CLEANER_TIMEOUT_MS: i32 = 60_000;

/// The credentials of the session that cleans up; both servers are started with their digest.
const SUPER: &[u8] = b"super:test";
pub const SUPER_DIGEST_FLAG: &str =
    "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// The recorded behaviour of one server.
#[derive(Debug, Default)]
pub struct Transcript {
    /// One list of lines for each step of the script.
    pub steps: Vec<Vec<String>>,
    /// The tree below the script's root at the end, and which sessions were still open.
    pub remains: Vec<String>,
    /// The state that all scripts share: the zxid, the root and the nodes below /zookeeper, after
    /// the clean-up.
    pub world: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    id: SessionId,
    password: [u8; PASSWORD_LEN],
}

struct Player {
    port: u16,
    purpose: Purpose,
    names: Names,
    slots: [Option<Link>; SLOTS],
    sessions: BTreeMap<Label, Session>,
    /// The session of each slot's connection.
    attached: [Option<Label>; SLOTS],
    seen: i64,
}

/// Runs a script. Returns an error if the server could not be reached at all.
pub fn play(port: u16, script: &Script, purpose: Purpose) -> Result<Transcript> {
    let mut cleaner = Cleaner::open(port)?;
    let base = cleaner.zxid()?;
    let mut player = Player {
        port,
        purpose,
        names: Names::new(base, purpose, script.zxids),
        slots: [const { None }; SLOTS],
        sessions: BTreeMap::new(),
        attached: [None; SLOTS],
        seen: base,
    };
    let mut transcript = Transcript::default();
    for step in &script.steps {
        transcript.steps.push(player.step(step)?);
    }
    transcript.remains = cleaner.walk(&script.root, &mut player.names)?;
    transcript.remains.extend(player.end_sessions()?);
    cleaner.clear(&script.root)?;
    transcript.world = cleaner.world()?;
    cleaner.close();
    Ok(transcript)
}

impl Player {
    fn step(&mut self, step: &Step) -> Result<Vec<String>> {
        // Lines of one connection stay together and in order; the interleaving of connections is
        // not observable.
        let mut lines: [Vec<String>; SLOTS] = [const { Vec::new() }; SLOTS];
        let mut extra = Vec::new();
        match step {
            Step::Connect { slot, connect } => self.connect(*slot, connect, &mut lines[*slot])?,
            Step::Greet { slot, connect, frames } => {
                self.connect(*slot, connect, &mut lines[*slot])?;
                self.send(*slot, frames, &mut lines[*slot]);
            }
            Step::Send { slot, frames } => self.send(*slot, frames, &mut lines[*slot]),
            Step::Together { sends } => {
                let mut owed = Vec::new();
                for (slot, frames) in sends {
                    owed.push((*slot, self.write(*slot, frames, &mut lines[*slot])));
                }
                for (slot, awaited) in owed {
                    self.read(slot, awaited, &mut lines[slot]);
                }
            }
            Step::Raw { slot, bytes } => match &mut self.slots[*slot] {
                None => lines[*slot].push("not connected".to_owned()),
                Some(link) => {
                    link.write(bytes);
                    self.expect_close(*slot, &mut lines[*slot]);
                }
            },
            Step::Drop { slot } => {
                self.slots[*slot] = None;
                self.attached[*slot] = None;
            }
            Step::AwaitExpired { slot, watcher } => {
                if self.slots[*slot].is_some() {
                    self.expect_close(*slot, &mut lines[*slot]);
                }
                self.await_event(*watcher, &mut lines[*watcher]);
            }
            Step::AwaitEvent { slot } => self.await_event(*slot, &mut lines[*slot]),
            Step::Word { word, lines: prefixes } => {
                let answer =
                    server::ask(self.port, word).unwrap_or_else(|e| format!("no answer: {e}"));
                let kept =
                    answer.lines().filter(|line| prefixes.iter().any(|p| line.starts_with(p)));
                extra.extend(kept.map(|line| format!("{word}: {line}")));
            }
        }
        for (slot, own) in lines.iter_mut().enumerate() {
            self.fence(slot, own);
        }
        for (slot, own) in lines.iter_mut().enumerate() {
            if exceptions::may_end_session(step) {
                settle_events(own);
            }
            extra.extend(own.drain(..).map(|line| format!("c{slot} {line}")));
        }
        Ok(extra)
    }

    fn connect(&mut self, slot: Slot, connect: &Connect, lines: &mut Vec<String>) -> Result<()> {
        if let SessionRef::Known(label) = connect.session
            && self.purpose == Purpose::Compare
            && connect.password != Password::Usual
            && self.attached.contains(&Some(label))
        {
            // Only a reduced script can get here; a generated script cannot.
            lines.push("a wrong password for a connected session is not asked".to_owned());
            return Ok(());
        }
        self.slots[slot] = None;
        self.attached[slot] = None;
        let known = match connect.session {
            SessionRef::New(_) => Session { id: SessionId::NONE, password: [0; PASSWORD_LEN] },
            SessionRef::Known(label) => self
                .sessions
                .get(&label)
                .copied()
                .unwrap_or(Session { id: SessionId(UNKNOWN_SESSION), password: [7; PASSWORD_LEN] }),
        };
        let mut body = Vec::new();
        body.put_i32(connect.version);
        body.put_i64(self.zxid(connect.last_zxid));
        body.put_i32(connect.timeout_ms);
        body.put_i64(known.id.0);
        match &connect.password {
            Password::Usual => body.put_buf(Some(&known.password)),
            Password::Wrong => body.put_buf(Some(&known.password.map(|byte| byte ^ 0x55))),
            Password::Null => body.put_buf(None),
            Password::Len(len) => body.put_buf(Some(&vec![9; *len])),
        }
        if let Some(byte) = connect.read_only {
            body.put_u8(byte);
        }
        connect.damage.apply(&mut body);

        let mut link = Link::open(self.port)?;
        link.write(&framed(&body));
        let answer = link.read(SILENCE);
        self.slots[slot] = Some(link);
        let Incoming::Frame(frame) = answer else {
            self.lose(slot, &answer, lines);
            return Ok(());
        };
        let Ok(response) = ConnectResponse::decode(&frame) else {
            lines.push(format!("answers the handshake with {}", hex(&frame)));
            return Ok(());
        };
        if response.session == SessionId::NONE {
            lines.push(format!("refused: {response:?}"));
            self.expect_close(slot, lines);
            return Ok(());
        }
        let label = match connect.session {
            SessionRef::New(label) | SessionRef::Known(label) => label,
        };
        // A server that ignores the requested session must be distinguished from a server that
        // grants it.
        let granted = Session { id: response.session, password: response.password };
        if connect.session == SessionRef::New(label) {
            self.names.name_session(response.session, label);
            self.sessions.insert(label, granted);
        }
        self.attached[slot] = Some(label);
        let password =
            if response.password == response.session.password() { "right" } else { "odd" };
        lines.push(format!(
            "connected: {} bytes, timeout {}, session {}, password {password}, readOnly {:?}",
            frame.len(),
            response.timeout_ms,
            self.names.session(response.session.0),
            response.read_only,
        ));
        Ok(())
    }

    fn send(&mut self, slot: Slot, frames: &[Frame], lines: &mut Vec<String>) {
        let awaited = self.write(slot, frames, lines);
        self.read(slot, awaited, lines);
    }

    /// Sends frames in one write; returns the operations whose replies are outstanding.
    fn write(&mut self, slot: Slot, frames: &[Frame], lines: &mut Vec<String>) -> VecDeque<i32> {
        let seen = self.seen;
        let Some(link) = &mut self.slots[slot] else {
            lines.push("not connected".to_owned());
            return VecDeque::new();
        };
        let mut bytes = Vec::new();
        let mut awaited = VecDeque::new();
        for frame in frames {
            let xid = frame.xid.unwrap_or_else(|| link.next_xid());
            let mut body = Vec::new();
            frame.request.put(|zxid| resolve(seen, zxid), &mut body);
            frame.damage.apply(&mut body);
            let mut message = Vec::new();
            message.put_i32(xid);
            message.put_i32(frame.request.op());
            message.extend_from_slice(&body);
            bytes.extend_from_slice(&framed(&message));
            awaited.push_back(frame.request.op());
        }
        link.write(&bytes);
        awaited
    }

    fn read(&mut self, slot: Slot, mut awaited: VecDeque<i32>, lines: &mut Vec<String>) {
        while let Some(op) = awaited.front() {
            match self.next(slot, lines) {
                Some((header, body)) => {
                    lines.push(self.names.reply(*op, header, &body));
                    if closes_after(*op, header) {
                        // The server closes the connection after a delay; the `sync` that ends the
                        // step must not race with it.
                        self.expect_close(slot, lines);
                    }
                    awaited.pop_front();
                }
                None => return,
            }
        }
    }

    /// Returns the next reply and records the events before it. Returns `None` when the connection
    /// has ended.
    fn next(&mut self, slot: Slot, lines: &mut Vec<String>) -> Option<(ReplyHeader, Vec<u8>)> {
        loop {
            let incoming = self.slots[slot].as_mut()?.read(SILENCE);
            let Incoming::Frame(frame) = incoming else {
                self.lose(slot, &incoming, lines);
                return None;
            };
            let mut reader = Reader::new(&frame);
            let Ok(header) = ReplyHeader::decode(&mut reader) else {
                lines.push(format!("a reply without a header: {}", hex(&frame)));
                continue;
            };
            if header.xid == Xid::NOTIFICATION {
                lines.push(self.names.event(header, reader.rest()));
                continue;
            }
            self.seen = self.seen.max(header.zxid.0);
            return Some((header, reader.rest().to_vec()));
        }
    }

    /// Reads one packet, which should be an event; later events are recorded when the step ends.
    fn await_event(&mut self, slot: Slot, lines: &mut Vec<String>) {
        let Some(link) = &mut self.slots[slot] else { return };
        let incoming = link.read(SILENCE);
        let Incoming::Frame(frame) = incoming else {
            self.lose(slot, &incoming, lines);
            return;
        };
        let mut reader = Reader::new(&frame);
        match ReplyHeader::decode(&mut reader) {
            Ok(header) if header.xid == Xid::NOTIFICATION => {
                lines.push(self.names.event(header, reader.rest()));
            }
            _ => lines.push(format!("sent {}", hex(&frame))),
        }
    }

    fn fence(&mut self, slot: Slot, lines: &mut Vec<String>) {
        let Some(link) = &mut self.slots[slot] else { return };
        link.write(&message(FENCE_XID, &Request::Sync { path: "/".into() }));
        while let Some((header, body)) = self.next(slot, lines) {
            if header.xid.0 == FENCE_XID {
                lines.push(format!("at {}", self.names.zxid(header.zxid.0)));
                return;
            }
            lines.push(format!("an uncalled-for reply {header:?} {}", hex(&body)));
        }
    }

    fn expect_close(&mut self, slot: Slot, lines: &mut Vec<String>) {
        while let Some(link) = &mut self.slots[slot] {
            match link.read(CLOSE_PATIENCE) {
                Incoming::Frame(frame) => {
                    let mut reader = Reader::new(&frame);
                    match ReplyHeader::decode(&mut reader) {
                        Ok(header) if header.xid == Xid::NOTIFICATION => {
                            lines.push(self.names.event(header, reader.rest()));
                        }
                        _ => lines.push(format!("sent {}", hex(&frame))),
                    }
                }
                Incoming::Silent => {
                    lines.push("stays open".to_owned());
                    return;
                }
                end => self.lose(slot, &end, lines),
            }
        }
    }

    fn lose(&mut self, slot: Slot, why: &Incoming, lines: &mut Vec<String>) {
        lines.push(match why {
            Incoming::Closed => "closed".to_owned(),
            Incoming::Silent => "silent".to_owned(),
            Incoming::Nonsense(length) => format!("sent the frame length {length}"),
            Incoming::Frame(frame) => format!("sent {}", hex(frame)),
        });
        self.slots[slot] = None;
        self.attached[slot] = None;
    }

    /// Closes every session of the script, so that none expires during a later script.
    fn end_sessions(&mut self) -> Result<Vec<String>> {
        let mut remains = Vec::new();
        let labels: Vec<Label> = self.sessions.keys().copied().collect();
        for label in labels {
            let mut lines = Vec::new();
            let slot = match self.attached.iter().position(|attached| *attached == Some(label)) {
                Some(slot) => slot,
                None => {
                    self.connect(0, &Connect::again(label), &mut lines)?;
                    0
                }
            };
            if self.slots[slot].is_some() {
                self.send(slot, &[Request::CloseSession.into()], &mut lines);
            }
            settle_events(&mut lines);
            remains.extend(lines.into_iter().map(|line| format!("end of s{label}: {line}")));
        }
        Ok(remains)
    }

    fn zxid(&self, zxid: ZxidRef) -> i64 {
        resolve(self.seen, zxid)
    }
}

fn resolve(seen: i64, zxid: ZxidRef) -> i64 {
    match zxid {
        ZxidRef::Absolute(zxid) => zxid,
        ZxidRef::Seen(offset) => seen + offset,
    }
}

/// Returns whether a server has to close the connection after this reply.
fn closes_after(op: i32, header: ReplyHeader) -> bool {
    let error = ErrorCode::from_code(header.err);
    op == OpCode::CloseSession.code()
        || error == Some(ErrorCode::AuthFailed)
        || error == Some(ErrorCode::SessionClosedRequireSaslAuth)
        || (error == Some(ErrorCode::Unimplemented) && header.zxid.0 == -1)
}

fn message(xid: i32, request: &Request) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_i32(xid);
    body.put_i32(request.op());
    request.put(|_| 0, &mut body);
    framed(&body)
}

/// Sorts consecutive events of one transaction.
fn settle_events(lines: &mut [String]) {
    let zxid = |line: &String| {
        line.starts_with("event ")
            .then(|| line.rsplit_once(" zxid ").map(|(_, z)| z.to_owned()))
            .flatten()
    };
    for run in lines.chunk_by_mut(|a, b| zxid(a).is_some() && zxid(a) == zxid(b)) {
        run.sort();
    }
}

/// The super user's session, which reads the whole tree and cleans up.
struct Cleaner {
    link: Link,
}

impl Cleaner {
    fn open(port: u16) -> Result<Self> {
        let mut link = Link::open(port)?;
        let mut body = Vec::new();
        body.put_i32(0);
        body.put_i64(0);
        body.put_i32(CLEANER_TIMEOUT_MS);
        body.put_i64(0);
        body.put_buf(Some(&[0; PASSWORD_LEN]));
        body.put_bool(false);
        link.write(&framed(&body));
        match link.read(SILENCE) {
            Incoming::Frame(frame)
                if ConnectResponse::decode(&frame).is_ok_and(|r| r.timeout_ms > 0) => {}
            other => bail!("the server refuses a plain session: {other:?}"),
        }
        let mut cleaner = Self { link };
        let auth = Request::Auth { kind: 0, scheme: "digest".into(), auth: SUPER.into() };
        cleaner.ask(&auth).context("the server refuses the super user")?;
        Ok(cleaner)
    }

    fn ask(&mut self, request: &Request) -> Result<(ReplyHeader, Vec<u8>)> {
        let xid = self.link.next_xid();
        self.link.write(&message(xid, request));
        self.answer(xid)
    }

    fn answer(&mut self, xid: i32) -> Result<(ReplyHeader, Vec<u8>)> {
        match self.link.read(SILENCE) {
            Incoming::Frame(frame) => {
                let mut reader = Reader::new(&frame);
                let header = ReplyHeader::decode(&mut reader)?;
                if header.xid.0 != xid {
                    bail!("the server answers {} where {xid} was asked", header.xid.0);
                }
                Ok((header, reader.rest().to_vec()))
            }
            other => bail!("the server leaves a plain session without an answer: {other:?}"),
        }
    }

    fn zxid(&mut self) -> Result<i64> {
        Ok(self.ask(&Request::Sync { path: "/".into() })?.0.zxid.0)
    }

    fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let op = OpCode::GetChildren.code();
        let (header, body) = self.ask(&Request::Read { op, path: path.into(), watch: false })?;
        if header.err != 0 {
            return Ok(Vec::new());
        }
        let list = Reader::new(&body).str_vec()?.context("a null list of children")?;
        let mut names: Vec<String> = list.iter().map(std::borrow::Cow::into_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the paths of `root` and all nodes below it, parents first.
    fn paths(&mut self, root: &str) -> Result<Vec<String>> {
        let mut paths = vec![root.to_owned()];
        let mut at = 0;
        while at < paths.len() {
            let path = paths[at].clone();
            at += 1;
            paths.extend(self.children(&path)?.into_iter().map(|name| format!("{path}/{name}")));
        }
        Ok(paths)
    }

    fn walk(&mut self, root: &str, names: &mut Names) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for path in self.paths(root)? {
            lines.push(self.describe(&path, names)?);
        }
        for path in self.paths(&quota_root(root))? {
            lines.push(self.describe(&path, names)?);
        }
        Ok(lines)
    }

    fn describe(&mut self, path: &str, names: &mut Names) -> Result<String> {
        let text = Text::from(path);
        let mut line = format!("{path}:");
        for request in [
            Request::Read { op: OpCode::GetData.code(), path: text.clone(), watch: false },
            Request::GetAcl { path: text.clone() },
            Request::Read { op: OpCode::GetChildren2.code(), path: text, watch: false },
        ] {
            let (mut header, body) = self.ask(&request)?;
            header.xid = Xid(0);
            line.push_str(&format!(" {}", names.reply(request.op(), header, &body)));
        }
        Ok(line)
    }

    fn clear(&mut self, root: &str) -> Result<()> {
        for root in [root.to_owned(), quota_root(root)] {
            let mut paths = self.paths(&root)?;
            paths.reverse();
            for path in paths {
                self.ask(&Request::Delete { path: Text::from(path), version: -1 })?;
            }
        }
        Ok(())
    }

    fn world(&mut self) -> Result<Vec<String>> {
        let mut names = Names::new(0, Purpose::Rule, Zxids::Compared);
        let mut lines = vec![format!("zxid 0x{:x}", self.zxid()?)];
        for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            lines.push(self.describe(path, &mut names)?);
        }
        Ok(lines)
    }

    fn close(mut self) {
        // The socket is closed afterwards in any case, so the reply does not matter.
        let _ = self.ask(&Request::CloseSession);
    }
}

fn quota_root(root: &str) -> String {
    format!("/zookeeper/quota{root}")
}
