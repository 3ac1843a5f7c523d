//! Requests that are served from memory into the outbox, in one hold of the gate.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use ironkeeper_proto::reply::{self, MultiHeader};
use ironkeeper_proto::request::{DataWatch, SetWatches};
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{ErrorCode, OpCode, Perms, Put, Reader, Request, Stat, Xid, Zxid, acl};
use ironkeeper_tree::Node;

use crate::auth;
use crate::conn::frames::{ReadOp, ReadRequest};
use crate::conn::{CloseReason, Conn, Inner, OUTBOX_BYTES_HARD};
use crate::database::{Database, Hasher};
use crate::long_lists::{LongLists, put_children};
use crate::outbox::{Outbox, SHARE_BYTES_MIN};
use crate::planted::Place;
use crate::state::State;
use crate::stats::{LastOp, ReadTally};
use crate::time::Now;
use crate::watch::Modes;

/// Bytes of replies that count as much as one short read. The value is small because names of
/// children are scattered in memory.
const WORK_UNIT_BYTES: usize = 128;

/// Bytes of an ephemeral node's path that count as one step.
const EPHEMERAL_STEP_BYTES: usize = 64;

/// A list of at least this many children is encoded once for all reads of a multiRead.
const KEPT_LIST_CHILDREN: u32 = 16;

/// Serves reads during one hold of the gate; `state` proves that it is locked. Must be closed with
/// [`Reads::finish`].
#[must_use]
pub(crate) struct Reads<'a> {
    db: &'a Database,
    state: &'a State,
    now: Now,
    tally: ReadTally,
    work: usize,
}

impl<'a> Reads<'a> {
    pub fn new(db: &'a Database, state: &'a State, now: Now) -> Reads<'a> {
        Reads { db, state, now, tally: ReadTally::default(), work: 0 }
    }

    /// Returns the work done, in units of a short read: about 0.3 µs each.
    pub fn work(&self) -> usize {
        self.work
    }

    /// Adds the reads to the server's counters and returns the work done.
    pub fn finish(self) -> usize {
        self.tally.settle(&self.db.stats);
        self.work
    }

    /// Serves one request into the outbox of `inner`, whose lock the caller holds.
    pub fn serve(
        &mut self,
        conn: &Arc<Conn>,
        inner: &mut Inner,
        request: ReadRequest<'_>,
        received_ms: u64,
    ) {
        let Reads { db, state, now, .. } = *self;
        let op = match request.op {
            ReadOp::Rejected(code) => {
                let error = Some(ErrorCode::Unimplemented);
                reply::header_frame(inner.outbox.tail(), request.xid, Zxid(-1), error);
                inner.close_after_flush(CloseReason::BadOperation(code));
                return;
            }
            ReadOp::Served(op) => op,
        };
        db.planted_panic.strike(Place::Read);
        let zxid = state.applied();
        let xid = if op == OpCode::Ping { Xid::PING } else { request.xid };
        let before = inner.outbox.len();
        let mut service = Service { db, state, conn, inner, xid, zxid, told_bytes: 0, steps: 0 };
        let body = Reader::with_limit(request.body, db.config.field_bytes_max);
        let answer = match Request::decode(op, body) {
            Ok(request) => service.answer(&request),
            Err(_) => Err(ErrorCode::MarshallingError),
        };
        let Service { told_bytes, steps, .. } = service;
        if let Err(error) = answer {
            reply::header_frame(inner.outbox.tail(), xid, zxid, Some(error));
        }
        let latency_ms = now.mono_ms.saturating_sub(received_ms);
        inner.stats.note_reply(LastOp::Op(op), xid, zxid, now.mono_ms, latency_ms);
        let all_bytes = inner.outbox.len() - before;
        self.work += 1 + steps + all_bytes / WORK_UNIT_BYTES;
        let reply_bytes = all_bytes - told_bytes;
        self.tally.note(&db.stats, reply_bytes, op != OpCode::Ping, latency_ms);
    }

    /// Serves the read at the front of the connection's lane, if there is one.
    pub fn serve_next(&mut self, conn: &Arc<Conn>, inner: &mut Inner) -> bool {
        let Some(read) = inner.lane.pop_read() else { return false };
        self.serve(conn, inner, read.request(), read.received_ms);
        true
    }

    /// Serves the reads at the front of the connection's lane. All of them must be served before
    /// the next write is applied, with replies of any length, so the client cannot be paused here:
    /// above the bound its connection is closed. Returns the work done.
    pub fn serve_waiting(mut self, conn: &Arc<Conn>, inner: &mut Inner) -> usize {
        while let Some(read) = inner.lane.pop_read() {
            if inner.outbox.copied_len() > OUTBOX_BYTES_HARD {
                inner.cut_off();
            }
            if inner.is_open() {
                self.serve(conn, inner, read.request(), read.received_ms);
            }
        }
        inner.count_unsent(&self.db.unsent);
        self.finish()
    }
}

struct Service<'a> {
    db: &'a Database,
    state: &'a State,
    conn: &'a Arc<Conn>,
    inner: &'a mut Inner,
    xid: Xid,
    zxid: Zxid,
    /// The bytes of events that precede the reply in the outbox.
    told_bytes: usize,
    /// Nodes read besides the first, watches set, and events.
    steps: usize,
}

impl<'a> Service<'a> {
    fn answer(&mut self, request: &Request<'_>) -> Result<(), ErrorCode> {
        match request {
            Request::Ping => self.done(),
            Request::Exists { path, watch } => self.exists(path, *watch)?,
            Request::GetData { path, watch } => self.get_data(path, *watch)?,
            Request::GetAcl { path } => self.get_acl(path)?,
            Request::GetChildren { path, watch } => self.get_children(path, *watch, false)?,
            Request::GetChildren2 { path, watch } => self.get_children(path, *watch, true)?,
            Request::GetAllChildrenNumber { path } => {
                let node = self.readable(path)?;
                // For the empty path Apache ZooKeeper counts the root as well.
                let count = node.descendant_count() + usize::from(path.is_empty());
                self.reply(|out| out.put_len(count));
            }
            Request::GetEphemerals { prefix } => self.get_ephemerals(prefix.as_deref()),
            Request::WhoAmI => self.who_am_i(),
            Request::MultiRead(requests) => self.multi_read(requests),
            Request::CheckWatches { path, kind } => {
                let modes = Modes::from_watcher_type(*kind).ok_or(ErrorCode::MarshallingError)?;
                let path = path.as_deref().ok_or(ErrorCode::NoWatcher)?;
                let own = self.inner.watches.get(path).copied().unwrap_or_default();
                if !own.has_any(modes) {
                    return Err(ErrorCode::NoWatcher);
                }
                self.done();
            }
            Request::RemoveWatches { path, kind } => {
                let modes = Modes::from_watcher_type(*kind).ok_or(ErrorCode::MarshallingError)?;
                let path = path.as_deref().ok_or(ErrorCode::NoWatcher)?;
                if !self.state.watches.remove(self.conn, self.inner, path, modes) {
                    return Err(ErrorCode::NoWatcher);
                }
                self.done();
            }
            Request::AddWatch { path, mode } => {
                let modes = match mode {
                    0 => Modes::PERSISTENT,
                    1 => Modes::RECURSIVE,
                    _ => return Err(ErrorCode::MarshallingError),
                };
                self.watch(path, modes);
                self.reply(|out| out.put_i32(0));
            }
            Request::SetWatches(watches) | Request::SetWatches2(watches) => {
                self.set_watches(watches);
                self.done();
            }
            // The other classes of `OpCode::class`: they are not served from memory.
            Request::Create(_)
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::SetAcl { .. }
            | Request::Sync { .. }
            | Request::Multi(_)
            | Request::Reconfig(_)
            | Request::CloseSession
            | Request::Auth { .. }
            | Request::Sasl { .. }
            | Request::Check { .. }
            | Request::DeleteContainer { .. }
            | Request::CreateSession { .. } => return Err(ErrorCode::Unimplemented),
        }
        Ok(())
    }

    fn done(&mut self) {
        reply::header_frame(self.inner.outbox.tail(), self.xid, self.zxid, None);
    }

    fn reply(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        let out = self.inner.outbox.tail();
        let start = reply::start_frame(out, self.xid, self.zxid);
        body(out);
        reply::finish_frame(out, start);
    }

    fn watch(&mut self, path: &str, modes: Modes) {
        self.steps += 1;
        self.state.watches.add(self.conn, self.inner, path, modes);
    }

    fn allowed(&self, node: &Node<'_>, wanted: Perms) -> bool {
        auth::allowed(&self.db.config.auth, node.acl(), wanted, &self.inner.identity)
    }

    fn readable(&self, path: &str) -> Result<Node<'a>, ErrorCode> {
        let node = self.state.tree.find(path).ok_or(ErrorCode::NoNode)?;
        if !self.allowed(&node, Perms::READ) {
            return Err(ErrorCode::NoAuth);
        }
        Ok(node)
    }

    fn exists(&mut self, path: &str, watch: bool) -> Result<(), ErrorCode> {
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let found = self.readable(path);
        if watch && !matches!(found, Err(ErrorCode::NoAuth)) {
            self.watch(path, Modes::DATA);
        }
        let stat = found?.stat();
        self.reply(|out| stat.encode(out));
        Ok(())
    }

    fn get_data(&mut self, path: &str, watch: DataWatch) -> Result<(), ErrorCode> {
        let node = self.readable(path)?;
        let len = node.data().map_or(0, <[u8]>::len);
        let out = self.inner.outbox.tail();
        out.put_len(reply::ReplyHeader::ENCODED_LEN + 4 + len + Stat::ENCODED_LEN);
        reply::ReplyHeader { xid: self.xid, zxid: self.zxid, err: 0 }.encode(out);
        put_data(&node, &mut self.inner.outbox);
        match watch {
            DataWatch::None => {}
            DataWatch::OneShot => self.watch(path, Modes::DATA),
            DataWatch::InLine => self.watch(path, Modes::DATA_IN_LINE),
        }
        Ok(())
    }

    fn get_acl(&mut self, path: &str) -> Result<(), ErrorCode> {
        let node = self.state.tree.find(path).ok_or(ErrorCode::NoNode)?;
        if !self.allowed(&node, Perms::READ.or(Perms::ADMIN)) {
            return Err(ErrorCode::NoAuth);
        }
        let stat = node.stat();
        if self.allowed(&node, Perms::ADMIN) {
            self.reply(|out| {
                acl::encode_reply(node.acl().entries(), out);
                stat.encode(out);
            });
        } else {
            let masked: Vec<_> = node.acl().entries().iter().map(auth::masked).collect();
            self.reply(|out| {
                acl::encode_reply(&masked, out);
                stat.encode(out);
            });
        }
        Ok(())
    }

    fn get_children(&mut self, path: &str, watch: bool, with_stat: bool) -> Result<(), ErrorCode> {
        let node = self.readable(path)?;
        if LongLists::is_long(&node) {
            let list = self.state.long_lists.of(&node);
            let stat_len = if with_stat { Stat::ENCODED_LEN } else { 0 };
            let out = self.inner.outbox.tail();
            out.put_len(reply::ReplyHeader::ENCODED_LEN + list.len() + stat_len);
            reply::ReplyHeader { xid: self.xid, zxid: self.zxid, err: 0 }.encode(out);
            list.pieces().for_each(|piece| self.inner.outbox.put_piece(piece));
            if with_stat {
                node.stat().encode(self.inner.outbox.tail());
            }
        } else {
            self.reply(|out| {
                put_children(&node, out);
                if with_stat {
                    node.stat().encode(out);
                }
            });
        }
        if watch {
            self.watch(path, Modes::CHILD);
        }
        Ok(())
    }

    fn get_ephemerals(&mut self, prefix: Option<&str>) {
        // A prefix that is blank, or "/" with blanks around it, matches all; otherwise blanks are
        // part of the prefix.
        let everything = prefix.is_none_or(|prefix| matches!(prefix.trim(), "" | "/"));
        let prefix = prefix.filter(|_| !everything).unwrap_or_default();
        let mut steps = 0;
        let own = self.state.tree.ephemerals(self.inner.session).inspect(|path| {
            // Paths are assembled from the names of the ancestors.
            steps += 1 + path.len() / EPHEMERAL_STEP_BYTES;
        });
        let paths: Vec<String> = own.filter(|path| path.starts_with(prefix)).collect();
        self.steps += steps;
        self.reply(|out| {
            out.put_len(paths.len());
            paths.iter().for_each(|path| out.put_str(path));
        });
    }

    fn who_am_i(&mut self) {
        let identity = Arc::clone(&self.inner.identity);
        self.reply(|out| {
            out.put_len(identity.ids().len());
            for (scheme, user) in identity.users() {
                out.put_str(scheme);
                out.put_str(user);
            }
        });
    }

    fn list_of(&self, node: &Node<'_>) -> Vec<Bytes> {
        if LongLists::is_long(node) {
            return self.state.long_lists.of(node).pieces().collect();
        }
        let mut list = Vec::new();
        put_children(node, &mut list);
        vec![Bytes::from(list)]
    }

    fn multi_read(&mut self, requests: &[Request<'_>]) {
        let mut body = Outbox::default();
        // A list is encoded once, however often it is requested.
        let hasher = Hasher::with_seed(self.db.config.tree.hash_seed);
        let mut lists: HashMap<&str, Vec<Bytes>, Hasher> = HashMap::with_hasher(hasher);
        self.steps += requests.len();
        for request in requests {
            // One request could name one large node ten thousand times.
            if body.len() > OUTBOX_BYTES_HARD {
                self.inner.close_after_flush(CloseReason::ReplyLength(OUTBOX_BYTES_HARD));
                return;
            }
            let result = match request {
                Request::GetData { path, .. } => self.readable(path).map(|node| {
                    MultiHeader { kind: OpCode::GetData.code(), done: false, err: 0 }
                        .encode(body.tail());
                    put_data(&node, &mut body);
                }),
                Request::GetChildren { path, .. } => self.readable(path).map(|node| {
                    MultiHeader { kind: OpCode::GetChildren.code(), done: false, err: 0 }
                        .encode(body.tail());
                    if node.child_count() < KEPT_LIST_CHILDREN {
                        return put_children(&node, body.tail());
                    }
                    let list = lists.entry(path).or_insert_with(|| self.list_of(&node));
                    for piece in list {
                        match piece.len() < SHARE_BYTES_MIN {
                            true => body.tail().extend_from_slice(piece),
                            false => body.put_piece(piece.clone()),
                        }
                    }
                }),
                _ => Err(ErrorCode::Unimplemented),
            };
            if let Err(error) = result {
                MultiHeader { kind: OpCode::Error.code(), done: false, err: error.code() }
                    .encode(body.tail());
                body.tail().put_i32(error.code());
            }
            body.cut_long_tail();
        }
        MultiHeader::END.encode(body.tail());
        let out = self.inner.outbox.tail();
        out.put_len(reply::ReplyHeader::ENCODED_LEN + body.len());
        reply::ReplyHeader { xid: self.xid, zxid: self.zxid, err: 0 }.encode(out);
        self.inner.outbox.append(body);
    }

    /// Restores watches after a reconnect; sends an event immediately for each missed change.
    fn set_watches(&mut self, wanted: &SetWatches<'_>) {
        let since = wanted.relative_zxid;
        for path in wanted.data.iter() {
            match self.state.tree.find(&path).map(|node| node.persisted().mzxid > since) {
                None => self.tell(EventType::NodeDeleted, &path),
                Some(true) => self.tell(EventType::NodeDataChanged, &path),
                Some(false) => self.watch(&path, Modes::DATA),
            }
        }
        for path in wanted.exist.iter() {
            match self.state.tree.find(&path) {
                Some(_) => self.tell(EventType::NodeCreated, &path),
                None => self.watch(&path, Modes::DATA),
            }
        }
        for path in wanted.child.iter() {
            match self.state.tree.find(&path).map(|node| node.persisted().pzxid > since) {
                None => self.tell(EventType::NodeDeleted, &path),
                Some(true) => self.tell(EventType::NodeChildrenChanged, &path),
                Some(false) => self.watch(&path, Modes::CHILD),
            }
        }
        for path in wanted.persistent.iter().flat_map(|paths| paths.iter()) {
            self.watch(&path, Modes::PERSISTENT);
        }
        for path in wanted.persistent_recursive.iter().flat_map(|paths| paths.iter()) {
            self.watch(&path, Modes::RECURSIVE);
        }
    }

    fn tell(&mut self, kind: EventType, path: &str) {
        let out = self.inner.outbox.tail();
        let before = out.len();
        watch_event::encode_frame(kind, path, Zxid(-1), out);
        let bytes = out.len() - before;
        self.told_bytes += bytes;
        self.steps += 1;
        self.inner.stats.packets_sent += 1;
        self.db.stats.note_events(1, bytes);
    }
}

/// Appends data and stat. Large data is shared instead of copied while the gate is locked.
fn put_data(node: &Node<'_>, out: &mut Outbox) {
    let data = node.data();
    let is_large = data.is_some_and(|data| data.len() >= SHARE_BYTES_MIN);
    match is_large.then(|| node.shared_data()).flatten() {
        Some(data) => {
            out.tail().put_len(data.as_ref().len());
            out.share(Bytes::from_owner(data));
        }
        None => out.tail().put_buf(data),
    }
    node.stat().encode(out.tail());
}
