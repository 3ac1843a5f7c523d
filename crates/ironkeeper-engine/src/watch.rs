//! The watch table: connections by watched path.
//!
//! The table maps a path to the connections that watch it in any mode; the modes are kept by the
//! connection (`Inner::watches`), so that closing it costs time proportional to its own watches.
//! Watches are registered under the shared gate and fired under the exclusive gate: the two never
//! overlap, and the shard locks only separate readers.
//!
//! A connection receives one event per change, however many of its watches match.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet, HashTable, hash_map};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{Perms, Zxid};
use ironkeeper_tree::{AclList, Changes, PathHasher};

use crate::auth;
use crate::config::EngineConfig;
use crate::conn::{Conn, Inner, Wakes};
use crate::database::{Database, Hasher};
use crate::stats::ServerStats;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Mutex, MutexGuard};
use crate::unsent::Unsent;

const SHARDS: usize = 64;
/// The number of paths for which a shard keeps capacity after they are removed.
const SHARD_ROOM_KEPT: usize = 256;
/// The maximum number of watches of a closed connection, and of bytes of their paths, that are
/// removed in one step.
const REMOVED_MAX: usize = 256;
const REMOVED_BYTES_MAX: usize = 32 << 10;
/// The frame of an event without its path: length, header, kind, state, length of the path.
const EVENT_BYTES: usize = 4 + ReplyHeader::ENCODED_LEN + 4 + 4 + 4;

/// The modes in which one connection watches one path, as bits. `Modes::IN_LINE` is a flag of the
/// data watch: its event carries the oldest sibling.
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
    /// Set and removed together with [`Modes::DATA`].
    const IN_LINE: Modes = Modes(16);
    /// One-shot; the event of a deletion carries the czxid of the oldest sibling.
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

    /// Decodes the `type` field of checkWatches and removeWatches.
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

    /// Returns whether Apache ZooKeeper would keep this watch in its data table, which is the one
    /// that administrators see.
    pub fn is_in_data_table(self) -> bool {
        self.has_any(Modes::DATA.or(Modes::PERSISTENT).or(Modes::RECURSIVE))
    }

    fn is_in_child_table(self) -> bool {
        self.has_any(Modes::CHILD.or(Modes::PERSISTENT))
    }

    /// Returns the number of watches as Apache ZooKeeper counts them: one for each of its two
    /// tables.
    fn count(self) -> usize {
        usize::from(self.is_in_data_table()) + usize::from(self.is_in_child_table())
    }
}

/// A watched path, and the connections that watch it.
#[derive(Debug)]
struct Watched {
    /// The hash of the path, see [`PathHasher`]. Stored, so that a growing table need not read all
    /// paths.
    hash: u64,
    path: Arc<str>,
    conns: Vec<Arc<Conn>>,
}

/// Watched paths by hash.
type Shard = HashTable<Watched>;

/// The watches of all connections; see the module documentation.
#[derive(Debug)]
pub struct WatchTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: Hasher,
    paths_hasher: PathHasher,
    /// Paths in the table; if zero, a write skips the table.
    paths: AtomicUsize,
    /// Recursive watches; if zero, a write skips the walk over ancestors.
    recursive: AtomicUsize,
    /// Watches as Apache ZooKeeper counts them.
    count: AtomicUsize,
}

impl WatchTable {
    pub fn new(seed: u64) -> WatchTable {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashTable::new())).collect();
        let (hasher, paths_hasher) = (Hasher::with_seed(seed), PathHasher::with_seed(seed));
        let zero = || AtomicUsize::new(0);
        let (paths, recursive, count) = (zero(), zero(), zero());
        WatchTable { shards, hasher, paths_hasher, paths, recursive, count }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Neither the lowest nor the highest bits: the table uses those.
        let index = (hash >> 32) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds modes to the watch of a connection on a path.
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
        let hash = self.paths_hasher.hash(path);
        let mut shard = self.shard(hash);
        let key = match shard.find_mut(hash, |watched| &*watched.path == path) {
            Some(watched) => {
                watched.conns.push(Arc::clone(conn));
                Arc::clone(&watched.path)
            }
            None => {
                let path: Arc<str> = Arc::from(path);
                let conns = vec![Arc::clone(conn)];
                let watched = Watched { hash, path: Arc::clone(&path), conns };
                shard.insert_unique(hash, watched, |watched| watched.hash);
                self.paths.fetch_add(1, Relaxed);
                path
            }
        };
        if modes.has_any(Modes::RECURSIVE) {
            self.recursive.fetch_add(1, Relaxed);
        }
        inner.watches.insert(key, modes);
    }

    /// Removes modes; returns false if the connection had none of them.
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

    /// Takes the watches of a closed connection. It receives no more events, but the table contains
    /// and counts its watches until they are removed.
    pub(crate) fn abandon(&self, conn: &Arc<Conn>, inner: &mut Inner) -> OldWatches {
        let none = HashMap::with_hasher(self.hasher.clone());
        let left = std::mem::replace(&mut inner.watches, none).into_iter();
        OldWatches { conn: Arc::clone(conn), left }
    }

    fn unlist(&self, conn: &Arc<Conn>, path: &str) {
        let hash = self.paths_hasher.hash(path);
        let mut shard = self.shard(hash);
        if let Ok(mut entry) = shard.find_entry(hash, |watched| &*watched.path == path) {
            let conns = &mut entry.get_mut().conns;
            if let Some(at) = conns.iter().position(|other| Arc::ptr_eq(other, conn)) {
                conns.swap_remove(at);
            }
            if conns.is_empty() {
                entry.remove();
                self.paths.fetch_sub(1, Relaxed);
                shrink(&mut shard);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.paths.load(Relaxed) == 0
    }

    /// Returns the number of watches as Apache ZooKeeper counts them for `mntr`: the entries of its
    /// data table plus the entries of its child table.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// Frees memory after many paths were removed.
fn shrink(shard: &mut Shard) {
    if shard.capacity() > SHARD_ROOM_KEPT && shard.len() < shard.capacity() / 8 {
        let room = (shard.len() * 2).max(SHARD_ROOM_KEPT);
        shard.shrink_to(room, |watched| watched.hash);
    }
}

/// The watches of a closed connection that are still in the table. A client may have millions of
/// them, so they are removed in steps.
#[derive(Debug)]
#[must_use = "the table lists and counts these watches until they are removed"]
pub struct OldWatches {
    conn: Arc<Conn>,
    left: hash_map::IntoIter<Arc<str>, Modes>,
}

impl OldWatches {
    /// Removes some of them in one hold of the gate. Returns true if more are left: then other
    /// connections are served first.
    pub fn remove_some(&mut self, db: &Database) -> bool {
        self.left.len() > 0 && self.remove_from(&db.read().watches)
    }

    fn remove_from(&mut self, table: &WatchTable) -> bool {
        let mut bytes = 0;
        for (path, own) in self.left.by_ref().take(REMOVED_MAX) {
            if own.has_any(Modes::RECURSIVE) {
                table.recursive.fetch_sub(1, Relaxed);
            }
            table.count.fetch_sub(own.count(), Relaxed);
            table.unlist(&self.conn, &path);
            bytes += path.len();
            if bytes > REMOVED_BYTES_MAX {
                break;
            }
        }
        self.left.len() > 0
    }

    /// Removes all of them. For drivers that serve no other clients meanwhile.
    pub fn remove_all(mut self, db: &Database) {
        while self.remove_some(db) {}
    }
}

/// Turns the changes of one transaction into events in outboxes. Used under the exclusive gate.
pub(crate) struct Firing<'a> {
    pub table: &'a WatchTable,
    pub config: &'a EngineConfig,
    pub stats: &'a ServerStats,
    pub unsent: &'a Unsent,
    pub zxid: Zxid,
    pub wakes: &'a mut Wakes,
}

impl Firing<'_> {
    fn fire(
        &mut self,
        kind: EventType,
        path: &str,
        acl: &Arc<AclList>,
        wanted: Modes,
        ancestors: bool,
    ) {
        self.fire_event(Event::new(kind, path, acl, self.zxid), wanted, ancestors);
    }

    /// Sends the event to all connections that watch the node in one of the `wanted` modes and, if
    /// `ancestors` is set, to the connections that watch an ancestor recursively.
    fn fire_event(&mut self, mut event: Event<'_>, wanted: Modes, ancestors: bool) {
        let path = event.path;
        let with_ancestors = ancestors && self.table.recursive.load(Relaxed) > 0;
        let table = self.table;
        if with_ancestors {
            let mut told = HashSet::with_hasher(table.hasher.clone());
            let chain: Vec<(&str, u64)> = table.paths_hasher.prefixes(path).collect();
            for (depth, &at) in chain.iter().enumerate().rev() {
                let wanted = if depth + 1 == chain.len() { wanted } else { Modes::RECURSIVE };
                self.fire_at(at, wanted, &mut event, Some(&mut told));
            }
        } else {
            self.fire_at((path, table.paths_hasher.hash(path)), wanted, &mut event, None);
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
        (at, hash): (&str, u64),
        wanted: Modes,
        event: &mut Event<'_>,
        mut told: Option<&mut HashSet<u64, Hasher>>,
    ) {
        let mut shard = self.table.shard(hash);
        let found = shard.find_entry(hash, |watched| &*watched.path == at);
        let Ok(mut watched) = found else { return };
        let conns = &mut watched.get_mut().conns;
        let one_shot = Modes::DATA.or(Modes::CHILD);
        let mut used_up = 0;
        conns.retain(|conn| {
            // A connection gets one event, however many of its watches match.
            if wanted == Modes::RECURSIVE
                && told.as_ref().is_some_and(|told| told.contains(&conn.id))
            {
                return true;
            }
            let mut inner = conn.lock();
            let Some(own) = inner.watches.get_mut(at) else { return false };
            if !own.has_any(wanted) {
                return true;
            }
            // A one-shot watch is used up even if the ACL then suppresses the event.
            let spent = Modes(wanted.0 & one_shot.0);
            let (before, in_line) = (own.count(), own.has_any(Modes::IN_LINE));
            *own = own.without(spent);
            used_up += before - own.count();
            let keep = !own.is_none();
            if !keep {
                inner.watches.remove(at);
            }
            let first = told.as_deref_mut().is_none_or(|told| told.insert(conn.id));
            event.fired += u64::from(first);
            if first && auth::allowed(&self.config.auth, event.acl, Perms::READ, &inner.identity) {
                let encoded = event.encoded(in_line);
                encoded.sent += u64::from(inner.push_event(&encoded.frame, self.unsent));
                self.wakes.add(conn, &mut inner);
            }
            keep
        });
        self.table.count.fetch_sub(used_up, Relaxed);
        if conns.is_empty() {
            watched.remove();
            self.table.paths.fetch_sub(1, Relaxed);
            shrink(&mut shard);
        }
    }
}

/// An event, encoded once for all its recipients: with the oldest sibling and without it.
struct Event<'a> {
    kind: EventType,
    path: &'a str,
    acl: &'a Arc<AclList>,
    zxid: Zxid,
    /// The czxid of the oldest sibling of a deleted node.
    oldest: Option<Zxid>,
    plain: Encoded,
    in_line: Encoded,
    /// The number of connections whose watch fired.
    fired: u64,
}

#[derive(Default)]
struct Encoded {
    frame: Bytes,
    /// The number of recipients: only connections that may read the node.
    sent: u64,
}

impl<'a> Event<'a> {
    fn new(kind: EventType, path: &'a str, acl: &'a Arc<AclList>, zxid: Zxid) -> Event<'a> {
        let (plain, in_line) = Default::default();
        Event { kind, path, acl, zxid, oldest: None, plain, in_line, fired: 0 }
    }

    fn encoded(&mut self, in_line: bool) -> &mut Encoded {
        let Event { kind, path, zxid, .. } = *self;
        let oldest = self.oldest.filter(|_| in_line);
        let encoded = if oldest.is_some() { &mut self.in_line } else { &mut self.plain };
        if encoded.frame.is_empty() {
            // Allocated with its final length, so that conversion to `Bytes` does not copy it.
            let oldest_len = oldest.map_or(0, |_| size_of::<Zxid>());
            let mut frame = Vec::with_capacity(EVENT_BYTES + path.len() + oldest_len);
            match oldest {
                Some(oldest) => {
                    watch_event::encode_in_line_frame(path, zxid, oldest, &mut frame);
                }
                None => watch_event::encode_frame(kind, path, zxid, &mut frame),
            }
            encoded.frame = Bytes::from(frame);
        }
        encoded
    }
}

impl Changes for Firing<'_> {
    fn created(&mut self, path: &str, acl: &Arc<AclList>, parent: &str, parent_acl: &Arc<AclList>) {
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
        acl: &Arc<AclList>,
        parent: &str,
        parent_acl: &Arc<AclList>,
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

    fn data_changed(&mut self, path: &str, acl: &Arc<AclList>) {
        if self.table.is_quiet() {
            return;
        }
        let on_node = Modes::DATA.or(Modes::PERSISTENT).or(Modes::RECURSIVE);
        self.fire(EventType::NodeDataChanged, path, acl, on_node, true);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::time::Now;

    const NOW: Now = Now { mono_ms: 0, wall_ms: 0 };

    fn conn(id: u64) -> Arc<Conn> {
        let peer = ([127, 0, 0, 1], 2181).into();
        Conn::new(id, 0, peer, NOW, Hasher::with_seed(7))
    }

    /// Returns the number of connections that receive an event at `path`.
    fn fired(table: &WatchTable, path: &str) -> u64 {
        let (config, stats) = (EngineConfig::default(), ServerStats::default());
        let (unsent, zxid) = (Unsent::new(config.unsent_bytes_max), Zxid(1));
        let mut wakes = Wakes::default();
        let mut firing = Firing {
            table,
            config: &config,
            stats: &stats,
            unsent: &unsent,
            zxid,
            wakes: &mut wakes,
        };
        let open = Arc::new(AclList::of_entries(ironkeeper_proto::acl::open()));
        firing.data_changed(path, &open);
        wakes.drain().count() as u64
    }

    #[test]
    fn the_cost_of_an_event_grows_with_its_path_and_not_with_the_square_of_it() {
        let table = WatchTable::new(7);
        let elsewhere = conn(1);
        table.add(&elsewhere, &mut elsewhere.lock(), "/elsewhere", Modes::RECURSIVE);
        // Hashing each ancestor's path separately would hash ten thousand million bytes.
        let path = "/a".repeat(100_000);
        assert_eq!(fired(&table, &path), 0);
        let above = conn(2);
        for path in ["/", "/a/a", &path[..2000]] {
            table.add(&above, &mut above.lock(), path, Modes::RECURSIVE);
        }
        assert_eq!(fired(&table, &path), 1, "told once");
    }

    #[test]
    fn every_ancestor_of_a_deep_node_can_be_watched() {
        let table = WatchTable::new(7);
        let watcher = conn(1);
        let path = "/a".repeat(300);
        for depth in 1..=300 {
            table.add(&watcher, &mut watcher.lock(), &path[..2 * depth], Modes::RECURSIVE);
        }
        assert_eq!(fired(&table, &path), 1);
        let mut old = table.abandon(&watcher, &mut watcher.lock());
        assert_eq!(fired(&table, &path), 0, "it is gone, although its watches are still counted");
        assert_eq!(table.count(), 300);
        while old.remove_from(&table) {}
        assert!(table.is_quiet());
        assert_eq!((fired(&table, &path), table.count()), (0, 0));
    }

    #[test]
    fn watches_of_a_lost_connection_are_removed_part_by_part_and_their_memory_with_them() {
        let table = WatchTable::new(7);
        let (gone, stays) = (conn(1), conn(2));
        for at in 0..100_000 {
            table.add(&gone, &mut gone.lock(), &format!("/{at}"), Modes::DATA);
        }
        table.add(&stays, &mut stays.lock(), "/7", Modes::DATA);
        let room =
            || -> usize { table.shards.iter().map(|shard| shard.lock().unwrap().capacity()).sum() };
        assert!(room() >= 100_000);
        let mut old = table.abandon(&gone, &mut gone.lock());
        let mut parts = 0;
        while old.remove_from(&table) {
            parts += 1;
        }
        assert!(parts >= 100_000 / REMOVED_MAX - 1, "{parts}");
        assert_eq!(table.count(), 1);
        assert!(room() <= 2 * SHARDS * SHARD_ROOM_KEPT, "{}", room());
        assert_eq!(fired(&table, "/7"), 1);
        let long = "/a".repeat(REMOVED_BYTES_MAX);
        for at in 0..10 {
            table.add(&gone, &mut gone.lock(), &format!("{long}/{at}"), Modes::DATA);
        }
        let mut old = table.abandon(&gone, &mut gone.lock());
        assert!(old.remove_from(&table), "a few long paths are as much as many short ones");
        assert_eq!(table.count(), 9);
        old.remove_from(&table);
    }
}
