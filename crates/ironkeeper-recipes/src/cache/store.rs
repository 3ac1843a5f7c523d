//! The nodes of a cache, and its listeners.
//!
//! Only the task of the cache writes. A change and its event are one step under one lock, so that a
//! listener that starts with a copy of the nodes receives every later event exactly once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ironkeeper_client::{Stat, Zxid};
use tokio::sync::{broadcast, watch};

use crate::cache::cached_node::{CacheEvent, CachedNode};
use crate::error::{RecipeError, Result};

/// How many events are buffered for a slow listener. Beyond that it gets [`CacheEvent::Reset`].
const EVENTS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Store {
    content: Mutex<Content>,
    /// A copy of `Content::is_ready` and `Content::over`, for tasks that wait.
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Debug)]
enum Phase {
    Loading,
    Ready,
    Over(RecipeError),
}

#[derive(Debug)]
struct Content {
    nodes: BTreeMap<String, Entry>,
    is_ready: bool,
    over: Option<RecipeError>,
    events: broadcast::Sender<CacheEvent>,
}

#[derive(Debug)]
struct Entry {
    node: Arc<CachedNode>,
    /// The pzxid of the node when its children were last listed: while it is unchanged, no child
    /// has been created or deleted since. `node.stat.pzxid` cannot be used instead: that stat may
    /// have been read before the events of the children were processed.
    listed: Option<Zxid>,
}

/// Which parts of a cached node are current, according to a stat that was just read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The data in the store is current.
    pub(crate) data: bool,
    /// The list of children in the store is current.
    pub(crate) children: bool,
}

impl Store {
    pub(crate) fn new() -> Arc<Store> {
        let content = Content {
            nodes: BTreeMap::new(),
            is_ready: false,
            over: None,
            events: broadcast::Sender::new(EVENTS_MAX),
        };
        Arc::new(Store { content: Mutex::new(content), phase: watch::Sender::new(Phase::Loading) })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // A panic cannot leave a step half done.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.content().nodes.get(path).map(|entry| entry.node.clone())
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.content().nodes.contains_key(path)
    }

    pub(crate) fn len(&self) -> usize {
        self.content().nodes.len()
    }

    /// Returns all nodes, in the order of their paths.
    pub(crate) fn all(&self) -> Vec<Arc<CachedNode>> {
        self.content().nodes.values().map(|entry| entry.node.clone()).collect()
    }

    /// Returns the children of a node, in the order of their names, and skips the nodes below them.
    pub(crate) fn children(&self, path: &str) -> Vec<Arc<CachedNode>> {
        let content = self.content();
        let prefix = below(path);
        let mut from = prefix.clone();
        let mut children = Vec::new();
        while let Some((key, entry)) = content.nodes.range(from.clone()..).next() {
            let Some(name) = key.strip_prefix(&prefix) else { break };
            from = match name.split_once('/') {
                Some((child, _)) => format!("{prefix}{child}{}", char::from(AFTER_SLASH)),
                None => {
                    if !name.is_empty() {
                        children.push(entry.node.clone());
                    }
                    format!("{key}\0")
                }
            };
        }
        children
    }

    /// Stores a node that was read, and sends the event.
    pub(crate) fn put(&self, path: &str, data: Bytes, stat: Stat) {
        let mut content = self.content();
        let found = Arc::new(CachedNode { path: path.to_owned(), data, stat });
        let mut listed = None;
        let event = match content.nodes.get(path) {
            Some(known) if is_earlier(&stat, &known.node.stat) => return,
            Some(known) if known.node.stat.czxid == stat.czxid => {
                listed = known.listed;
                let before = known.node.clone();
                (before.stat.mzxid != stat.mzxid)
                    .then(|| CacheEvent::Changed { before, after: found.clone() })
            }
            Some(_) => {
                // Deleted and created again. A node below that was created later belongs to the new
                // node.
                content.remove(path, |below| below.node.stat.czxid < stat.czxid);
                Some(CacheEvent::Created(found.clone()))
            }
            None => Some(CacheEvent::Created(found.clone())),
        };
        content.nodes.insert(path.to_owned(), Entry { node: found, listed });
        if let Some(event) = event {
            content.tell(event);
        }
    }

    /// Compares the stat of a cached node with one that was just read. Returns what is still
    /// current; `None` if the node is not cached.
    pub(crate) fn compare(&self, path: &str, stat: &Stat) -> Option<Known> {
        let content = self.content();
        let known = content.nodes.get(path)?;
        let is_same = known.node.stat.czxid == stat.czxid;
        Some(Known {
            data: is_same && known.node.stat.mzxid == stat.mzxid,
            children: is_same && known.listed == Some(stat.pzxid),
        })
    }

    /// Records that the children of a node were listed.
    pub(crate) fn listed(&self, path: &str, stat: &Stat) {
        if let Some(entry) = self.content().nodes.get_mut(path)
            && entry.node.stat.czxid == stat.czxid
        {
            entry.listed = Some(stat.pzxid);
        }
    }

    /// Removes a node and everything below it.
    pub(crate) fn remove(&self, path: &str) {
        self.content().remove(path, |_| true);
    }

    /// Removes all nodes that are not in `seen`.
    pub(crate) fn retain(&self, seen: &HashSet<String>) {
        let mut content = self.content();
        let gone: Vec<String> =
            content.nodes.keys().rev().filter(|path| !seen.contains(*path)).cloned().collect();
        for path in gone {
            if let Some(entry) = content.nodes.remove(&path) {
                content.tell(CacheEvent::Deleted(entry.node));
            }
        }
    }

    pub(crate) fn ready(&self) {
        let mut content = self.content();
        if !content.is_ready {
            content.is_ready = true;
            content.tell(CacheEvent::Initialized);
            self.phase.send_replace(Phase::Ready);
        }
    }

    pub(crate) fn end(&self, why: RecipeError) {
        let mut content = self.content();
        if content.over.is_none() {
            content.over = Some(why.clone());
            content.tell(CacheEvent::Ended(why.clone()));
            self.phase.send_replace(Phase::Over(why));
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.content().is_ready
    }

    /// Waits until all nodes have been read once.
    pub(crate) async fn initialized(&self) -> Result<()> {
        let mut phase = self.phase.subscribe();
        let reached = phase.wait_for(|phase| !matches!(phase, Phase::Loading)).await;
        match reached.as_deref() {
            Ok(Phase::Over(why)) if !self.is_ready() => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the present nodes as events, and the receiver of all later events.
    fn subscribe(&self) -> (VecDeque<CacheEvent>, broadcast::Receiver<CacheEvent>) {
        let content = self.content();
        let mut present: VecDeque<_> =
            content.nodes.values().map(|entry| CacheEvent::Created(entry.node.clone())).collect();
        if content.is_ready {
            present.push_back(CacheEvent::Initialized);
        }
        present.extend(content.over.clone().map(CacheEvent::Ended));
        (present, content.events.subscribe())
    }
}

impl Content {
    fn tell(&self, event: CacheEvent) {
        // Fails if there is no listener.
        let _ = self.events.send(event);
    }

    /// Removes a node, and those nodes below it for which `is_gone` is true, the deepest first.
    fn remove(&mut self, path: &str, is_gone: impl Fn(&Entry) -> bool) {
        let prefix = below(path);
        let gone: Vec<String> = self
            .nodes
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .filter(|(key, entry)| *key != path && is_gone(entry))
            .map(|(key, _)| key.clone())
            .collect();
        for path in gone.iter().rev().map(String::as_str).chain([path]) {
            if let Some(entry) = self.nodes.remove(path) {
                self.tell(CacheEvent::Deleted(entry.node));
            }
        }
    }
}

/// The byte after the slash: the paths below a node sort between `<path>/` and `<path>0`.
const AFTER_SLASH: u8 = b'/' + 1;

fn below(path: &str) -> String {
    if path == "/" { path.to_owned() } else { format!("{path}/") }
}

/// Returns whether a stat is of an earlier state than another one.
fn is_earlier(stat: &Stat, than: &Stat) -> bool {
    (stat.czxid, stat.mzxid) < (than.czxid, than.mzxid)
}

/// The events of a cache. They start with all present nodes as [`CacheEvent::Created`].
#[derive(Debug)]
pub struct CacheEvents {
    store: Arc<Store>,
    /// The events to return before those of `events`.
    present: VecDeque<CacheEvent>,
    events: broadcast::Receiver<CacheEvent>,
    is_over: bool,
}

impl CacheEvents {
    pub(crate) fn new(store: Arc<Store>) -> CacheEvents {
        let (present, events) = store.subscribe();
        CacheEvents { store, present, events, is_over: false }
    }

    /// Returns the next event; `None` after [`CacheEvent::Ended`].
    pub async fn next(&mut self) -> Option<CacheEvent> {
        if self.is_over {
            return None;
        }
        let event = match self.present.pop_front() {
            Some(event) => event,
            None => match self.events.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    (self.present, self.events) = self.store.subscribe();
                    CacheEvent::Reset
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            },
        };
        self.is_over = matches!(event, CacheEvent::Ended(_));
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(czxid: i64, mzxid: i64) -> Stat {
        Stat { czxid: Zxid(czxid), mzxid: Zxid(mzxid), ..Stat::default() }
    }

    fn put(store: &Store, path: &str, czxid: i64, mzxid: i64) {
        store.put(path, Bytes::new(), stat(czxid, mzxid));
    }

    fn told(store: &Arc<Store>, events: &mut CacheEvents) -> String {
        store.end(RecipeError::Closed { path: String::new() });
        let mut told = Vec::new();
        while let Ok(event) = events.events.try_recv() {
            match event {
                CacheEvent::Created(node) => told.push(format!("+{}", node.path)),
                CacheEvent::Changed { after, .. } => told.push(format!("*{}", after.path)),
                CacheEvent::Deleted(node) => told.push(format!("-{}", node.path)),
                _ => {}
            }
        }
        told.join(" ")
    }

    #[test]
    fn children_are_listed_without_what_is_below_them() {
        let store = Store::new();
        for path in ["/", "/a", "/a!", "/a/b", "/a/b/c", "/a-b", "/a/b-c", "/a/b.d", "/a0", "/b"] {
            put(&store, path, 1, 1);
        }
        let names = |path: &str| -> Vec<String> {
            store.children(path).iter().map(|node| node.path.clone()).collect()
        };
        assert_eq!(names("/"), ["/a", "/a!", "/a-b", "/a0", "/b"]);
        assert_eq!(names("/a"), ["/a/b", "/a/b-c", "/a/b.d"]);
        assert_eq!(names("/b"), [""; 0]);
    }

    #[test]
    fn the_deepest_go_first_and_neighbours_stay() {
        let store = Store::new();
        for path in ["/a", "/a/b", "/a/b/c", "/a-b"] {
            put(&store, path, 1, 1);
        }
        let mut events = CacheEvents::new(store.clone());
        store.remove("/a");
        assert_eq!(told(&store, &mut events), "-/a/b/c -/a/b -/a");
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn curator_182_183_a_node_created_again_keeps_only_what_is_younger() {
        let store = Store::new();
        put(&store, "/a", 1, 1);
        put(&store, "/a/old", 2, 2);
        // Read before its parent.
        put(&store, "/a/new", 9, 9);
        let mut events = CacheEvents::new(store.clone());
        put(&store, "/a", 8, 8);
        assert_eq!(told(&store, &mut events), "-/a/old -/a +/a");
        assert!(store.contains("/a/new"));
    }

    #[test]
    fn an_earlier_state_never_replaces_a_later_one() {
        let store = Store::new();
        put(&store, "/a", 5, 7);
        let mut events = CacheEvents::new(store.clone());
        put(&store, "/a", 5, 6);
        put(&store, "/a", 4, 9);
        put(&store, "/a", 5, 7);
        put(&store, "/a", 5, 8);
        assert_eq!(told(&store, &mut events), "*/a");
    }

    #[test]
    fn a_list_counts_as_known_by_the_time_of_the_listing_only() {
        let store = Store::new();
        put(&store, "/a", 1, 1);
        let later = Stat { pzxid: Zxid(6), ..stat(1, 1) };
        assert_eq!(store.compare("/a", &later), Some(Known { data: true, children: false }));
        store.listed("/a", &later);
        assert_eq!(store.compare("/a", &later), Some(Known { data: true, children: true }));
        let written = Stat { pzxid: Zxid(6), ..stat(1, 7) };
        assert_eq!(store.compare("/a", &written), Some(Known { data: false, children: true }));
        let recreated = Stat { pzxid: Zxid(6), ..stat(6, 6) };
        assert_eq!(store.compare("/a", &recreated), Some(Known { data: false, children: false }));
    }
}
