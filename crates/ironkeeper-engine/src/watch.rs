//! Watches: who wants to know what about which path.
//!
//! The table maps a path to the connections that watch it in any way; in which ways is kept by the
//! connection (`Inner::watches`), so that its end costs the size of its own watches. Registration
//! happens under the shared side of the gate, firing under the exclusive side: the two never meet,
//! and the shard locks only keep readers apart.
//!
//! A connection is told once per event, however many of its watches match.

use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{Perms, Zxid, path};
use ironkeeper_tree::{AclList, Changes};
use std::hash::BuildHasher;

use crate::auth;
use crate::config::EngineConfig;
use crate::conn::{Conn, Inner, Wakes};
use crate::database::Hasher;
use crate::stats::ServerStats;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

/// The ways in which one connection watches one path, as bits. [`Modes::IN_LINE`] is no way of its own, but says of the
/// data watch what its event is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Modes(u8);

impl Modes {
    /// One-shot, by `exists` or `getData`.
    pub const DATA: Modes = Modes(1);
    /// One-shot, by `getChildren`.
    pub const CHILD: Modes = Modes(2);
    pub const PERSISTENT: Modes = Modes(4);
    pub const RECURSIVE: Modes = Modes(8);
    pub const ANY: Modes = Modes(15);
    /// Comes and goes with [`Modes::DATA`].
    const IN_LINE: Modes = Modes(16);
    /// One-shot, and its event tells who is the oldest sibling of a deleted node.
    pub const DATA_IN_LINE: Modes = Modes::DATA.or(Modes::IN_LINE);

    pub const fn or(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    pub fn has_any(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }

    fn without(self, other: Modes) -> Modes {
        let along = if other.has_any(Modes::DATA) { Modes::IN_LINE } else { Modes::default() };
        Modes(self.0 & !other.or(along).0)
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The `type` field of checkWatches and removeWatches.
    pub fn from_watcher_type(kind: i32) -> Option<Modes> {
        Some(match kind {
            1 => Modes::CHILD,
            2 => Modes::DATA,
            3 => Modes::ANY,
            4 => Modes::PERSISTENT,
            5 => Modes::RECURSIVE,
            _ => return None,
        })
    }

    /// Whether Apache would have this in its data table, which is the one it lists to
    /// administrators.
    pub fn is_in_data_table(self) -> bool {
        self.has_any(Modes::DATA.or(Modes::PERSISTENT).or(Modes::RECURSIVE))
    }

    fn is_in_child_table(self) -> bool {
        self.has_any(Modes::CHILD.or(Modes::PERSISTENT))
    }

    /// How many watches Apache would count: one for each of its two tables.
    fn count(self) -> usize {
        usize::from(self.is_in_data_table()) + usize::from(self.is_in_child_table())
    }
}

type Shard = HashMap<Arc<str>, Vec<Arc<Conn>>, Hasher>;

/// See the head of this file.
#[derive(Debug)]
pub struct WatchTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: Hasher,
    /// Paths in the table; zero lets a write skip it all.
    paths: AtomicUsize,
    /// Recursive watches; zero lets a write skip the walk over ancestors.
    recursive: AtomicUsize,
    /// Watches as Apache counts them.
    count: AtomicUsize,
}

impl WatchTable {
    pub fn new(hasher: Hasher) -> WatchTable {
        let shards =
            (0..SHARDS).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect();
        let zero = || AtomicUsize::new(0);
        WatchTable { shards, hasher, paths: zero(), recursive: zero(), count: zero() }
    }

    fn shard(&self, path: &str) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(path) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the ways in which a connection watches a path.
    pub(crate) fn add(&self, conn: &Arc<Conn>, inner: &mut Inner, path: &str, modes: Modes) {
        if let Some(own) = inner.watches.get_mut(path) {
            if modes.has_any(Modes::RECURSIVE) && !own.has_any(Modes::RECURSIVE) {
                self.recursive.fetch_add(1, Relaxed);
            }
            let before = own.count();
            *own = own.or(modes);
            self.count.fetch_add(own.count() - before, Relaxed);
            return;
        }
        self.count.fetch_add(modes.count(), Relaxed);
        let mut shard = self.shard(path);
        let key = match shard.get_key_value_mut(path) {
            Some((key, conns)) => {
                conns.push(Arc::clone(conn));
                Arc::clone(key)
            }
            None => {
                let key: Arc<str> = Arc::from(path);
                shard.insert(Arc::clone(&key), vec![Arc::clone(conn)]);
                self.paths.fetch_add(1, Relaxed);
                key
            }
        };
        if modes.has_any(Modes::RECURSIVE) {
            self.recursive.fetch_add(1, Relaxed);
        }
        inner.watches.insert(key, modes);
    }

    /// Takes ways away; false if the connection had none of them.
    pub(crate) fn remove(
        &self,
        conn: &Arc<Conn>,
        inner: &mut Inner,
        path: &str,
        modes: Modes,
    ) -> bool {
        let Some(own) = inner.watches.get_mut(path) else { return false };
        if !own.has_any(modes) {
            return false;
        }
        if own.has_any(Modes::RECURSIVE) && modes.has_any(Modes::RECURSIVE) {
            self.recursive.fetch_sub(1, Relaxed);
        }
        let before = own.count();
        *own = own.without(modes);
        self.count.fetch_sub(before - own.count(), Relaxed);
        if own.is_none() {
            inner.watches.remove(path);
            self.unlist(conn, path);
        }
        true
    }

    /// Forgets a connection that is gone.
    pub(crate) fn remove_all(&self, conn: &Arc<Conn>, inner: &mut Inner) {
        for (path, own) in
            std::mem::replace(&mut inner.watches, HashMap::with_hasher(self.hasher.clone()))
        {
            if own.has_any(Modes::RECURSIVE) {
                self.recursive.fetch_sub(1, Relaxed);
            }
            self.count.fetch_sub(own.count(), Relaxed);
            self.unlist(conn, &path);
        }
    }

    fn unlist(&self, conn: &Arc<Conn>, path: &str) {
        let mut shard = self.shard(path);
        if let Some(conns) = shard.get_mut(path) {
            if let Some(at) = conns.iter().position(|other| Arc::ptr_eq(other, conn)) {
                conns.swap_remove(at);
            }
            if conns.is_empty() {
                shard.remove(path);
                self.paths.fetch_sub(1, Relaxed);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.paths.load(Relaxed) == 0
    }

    /// Watches as Apache counts them for `mntr`: the entries of its data table plus those of its
    /// child table.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// Turns the changes of one transaction into events in outboxes. Lives under the exclusive side.
pub(crate) struct Firing<'a> {
    pub table: &'a WatchTable,
    pub config: &'a EngineConfig,
    pub stats: &'a ServerStats,
    pub zxid: Zxid,
    pub wakes: &'a mut Wakes,
}

impl Firing<'_> {
    fn fire(&mut self, kind: EventType, path: &str, acl: &AclList, wanted: Modes, ancestors: bool) {
        self.fire_event(Event::new(kind, path, acl, self.zxid), wanted, ancestors);
    }

    /// Tells everybody who watches the node in one of the `wanted` ways, and, if asked, those who
    /// watch an ancestor recursively.
    fn fire_event(&mut self, mut event: Event<'_>, wanted: Modes, ancestors: bool) {
        let path = event.path;
        let with_ancestors = ancestors && self.table.recursive.load(Relaxed) > 0;
        let mut told: Vec<u64> = Vec::new();
        self.fire_at(path, wanted, &mut event, with_ancestors.then_some(&mut told));
        if with_ancestors {
            let mut above = path::parent(path);
            while let Some(ancestor) = above {
                self.fire_at(ancestor, Modes::RECURSIVE, &mut event, Some(&mut told));
                above = path::parent(ancestor);
            }
        }
        if event.fired > 0 {
            self.stats.watches_fired.of(event.kind).add(event.fired);
        }
        for encoded in [&event.plain, &event.in_line] {
            if encoded.sent > 0 {
                self.stats.note_events(encoded.sent, encoded.frame.len());
            }
        }
    }

    fn fire_at(
        &mut self,
        at: &str,
        wanted: Modes,
        event: &mut Event<'_>,
        mut told: Option<&mut Vec<u64>>,
    ) {
        let mut shard = self.table.shard(at);
        let Some(conns) = shard.get_mut(at) else { return };
        let one_shot = Modes::DATA.or(Modes::CHILD);
        let mut used_up = 0;
        conns.retain(|conn| {
            let mut inner = conn.lock();
            let Some(own) = inner.watches.get_mut(at) else { return false };
            if !own.has_any(wanted) {
                return true;
            }
            // A one-shot watch is used up even if the event is then held back by the ACL.
            let spent = Modes(wanted.0 & one_shot.0);
            let (before, in_line) = (own.count(), own.has_any(Modes::IN_LINE));
            *own = own.without(spent);
            used_up += before - own.count();
            let keep = !own.is_none();
            if !keep {
                inner.watches.remove(at);
            }
            let first = match told.as_deref_mut() {
                None => true,
                Some(told) if told.contains(&conn.id) => false,
                Some(told) => {
                    told.push(conn.id);
                    true
                }
            };
            event.fired += u64::from(first);
            if first && auth::allowed(&self.config.auth, event.acl, Perms::READ, &inner.identity) {
                let encoded = event.encoded(in_line);
                encoded.sent += u64::from(inner.push_event(&encoded.frame));
                self.wakes.add(conn, &mut inner);
            }
            keep
        });
        self.table.count.fetch_sub(used_up, Relaxed);
        if conns.is_empty() {
            shard.remove(at);
            self.table.paths.fetch_sub(1, Relaxed);
        }
    }
}

/// An event, encoded once for all its recipients: for those who want to hear of the oldest sibling, and for all
/// others.
struct Event<'a> {
    kind: EventType,
    path: &'a str,
    acl: &'a AclList,
    zxid: Zxid,
    /// Of the siblings of a node that was deleted.
    oldest: Option<Zxid>,
    plain: Encoded,
    in_line: Encoded,
    /// Connections whose watch it fired.
    fired: u64,
}

#[derive(Default)]
struct Encoded {
    frame: Vec<u8>,
    /// To how many: those who may know of it.
    sent: u64,
}

impl<'a> Event<'a> {
    fn new(kind: EventType, path: &'a str, acl: &'a AclList, zxid: Zxid) -> Event<'a> {
        let (plain, in_line) = Default::default();
        Event { kind, path, acl, zxid, oldest: None, plain, in_line, fired: 0 }
    }

    fn encoded(&mut self, in_line: bool) -> &mut Encoded {
        let Event { kind, path, zxid, .. } = *self;
        let oldest = self.oldest.filter(|_| in_line);
        let encoded = if oldest.is_some() { &mut self.in_line } else { &mut self.plain };
        if encoded.frame.is_empty() {
            match oldest {
                Some(oldest) => {
                    watch_event::encode_in_line_frame(path, zxid, oldest, &mut encoded.frame);
                }
                None => watch_event::encode_frame(kind, path, zxid, &mut encoded.frame),
            }
        }
        encoded
    }
}

impl Changes for Firing<'_> {
    fn created(&mut self, path: &str, acl: &AclList, parent: &str, parent_acl: &AclList) {
        if self.table.is_quiet() {
            return;
        }
        let on_node = Modes::DATA.or(Modes::PERSISTENT).or(Modes::RECURSIVE);
        self.fire(EventType::NodeCreated, path, acl, on_node, true);
        let on_parent = Modes::CHILD.or(Modes::PERSISTENT);
        self.fire(EventType::NodeChildrenChanged, parent, parent_acl, on_parent, false);
    }

    fn deleted(
        &mut self,
        path: &str,
        acl: &AclList,
        parent: &str,
        parent_acl: &AclList,
        oldest: Option<Zxid>,
    ) {
        if self.table.is_quiet() {
            return;
        }
        let event = Event { oldest, ..Event::new(EventType::NodeDeleted, path, acl, self.zxid) };
        self.fire_event(event, Modes::ANY, true);
        let on_parent = Modes::CHILD.or(Modes::PERSISTENT);
        self.fire(EventType::NodeChildrenChanged, parent, parent_acl, on_parent, false);
    }

    fn data_changed(&mut self, path: &str, acl: &AclList) {
        if self.table.is_quiet() {
            return;
        }
        let on_node = Modes::DATA.or(Modes::PERSISTENT).or(Modes::RECURSIVE);
        self.fire(EventType::NodeDataChanged, path, acl, on_node, true);
    }
}
