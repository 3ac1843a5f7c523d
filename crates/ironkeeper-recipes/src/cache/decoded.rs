//! The children of a node as values, decoded once when a child is created or changed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ironkeeper_client::Client;
use tokio::sync::watch;

use crate::cache::cached_node::CacheEvent;
use crate::cache::children::ChildrenCache;
use crate::cache::store::CacheEvents;
use crate::cache::task::Task;
use crate::error::{RecipeError, Result};
use crate::place::name_of;

/// The values of a cache, by the names of their nodes. A node that cannot be decoded does not hide
/// the others.
pub(crate) struct Values<T> {
    pub(crate) good: BTreeMap<String, Arc<T>>,
    pub(crate) malformed: BTreeMap<String, RecipeError>,
}

impl<T> Clone for Values<T> {
    fn clone(&self) -> Values<T> {
        Values { good: self.good.clone(), malformed: self.malformed.clone() }
    }
}

impl<T> Default for Values<T> {
    fn default() -> Values<T> {
        Values { good: BTreeMap::new(), malformed: BTreeMap::new() }
    }
}

struct Latest<T> {
    values: Values<T>,
    is_ready: bool,
    over: Option<RecipeError>,
}

/// A [`ChildrenCache`] whose nodes are decoded.
pub(crate) struct Decoded<T> {
    latest: watch::Receiver<Latest<T>>,
    cache: ChildrenCache,
    _reader: Task,
}

impl<T> fmt::Debug for Decoded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Decoded<T> {
    /// Starts to follow the children of a path, which need not exist, and waits until all of them
    /// are read. `decode` receives the path and the data of a node.
    pub(crate) async fn open(
        client: &Client,
        path: String,
        decode: impl Fn(&str, &[u8]) -> Result<T> + Send + 'static,
    ) -> Result<Decoded<T>> {
        let cache = ChildrenCache::start(client, path);
        let (told, mut latest) =
            watch::channel(Latest { values: Values::default(), is_ready: false, over: None });
        let reader = Task::spawn(read(cache.events(), told, decode));
        let closed = || RecipeError::Closed { path: cache.path().to_owned() };
        match latest.wait_for(|latest| latest.is_ready || latest.over.is_some()).await.as_deref() {
            Ok(latest) if latest.is_ready => {}
            Ok(latest) => return Err(latest.over.clone().unwrap_or_else(closed)),
            Err(_) => return Err(closed()),
        }
        Ok(Decoded { latest, cache, _reader: reader })
    }
}

impl<T> Decoded<T> {
    pub(crate) fn path(&self) -> &str {
        self.cache.path()
    }

    pub(crate) fn values(&self) -> Values<T> {
        self.latest.borrow().values.clone()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.latest.borrow().values.good.get(name).cloned()
    }

    /// Returns whether the values are still updated.
    pub(crate) fn is_followed(&self) -> bool {
        self.latest.borrow().over.is_none()
    }

    /// Returns all changes from now on; only the latest one if changes come faster than they are
    /// taken.
    pub(crate) fn changes(&self) -> DecodedChanges<T> {
        let mut latest = self.latest.clone();
        latest.mark_unchanged();
        DecodedChanges { latest }
    }
}

pub(crate) struct DecodedChanges<T> {
    latest: watch::Receiver<Latest<T>>,
}

impl<T> fmt::Debug for DecodedChanges<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodedChanges").finish_non_exhaustive()
    }
}

impl<T> DecodedChanges<T> {
    /// Returns all values after the next change; `None` when they are not updated any more.
    pub(crate) async fn next(&mut self) -> Option<Values<T>> {
        self.latest.changed().await.ok()?;
        let latest = self.latest.borrow_and_update();
        latest.over.is_none().then(|| latest.values.clone())
    }
}

async fn read<T>(
    mut events: CacheEvents,
    told: watch::Sender<Latest<T>>,
    decode: impl Fn(&str, &[u8]) -> Result<T>,
) {
    let mut known: Values<T> = Values::default();
    let mut is_ready = false;
    while let Some(event) = events.next().await {
        let mut over = None;
        match event {
            CacheEvent::Created(node) | CacheEvent::Changed { after: node, .. } => {
                let name = name_of(&node.path).to_owned();
                known.good.remove(&name);
                known.malformed.remove(&name);
                match decode(&node.path, &node.data) {
                    Ok(value) => drop(known.good.insert(name, Arc::new(value))),
                    Err(error) => {
                        tracing::warn!(path = node.path, %error, "malformed node ignored");
                        known.malformed.insert(name, error);
                    }
                }
            }
            CacheEvent::Deleted(node) => {
                known.good.remove(name_of(&node.path));
                known.malformed.remove(name_of(&node.path));
            }
            CacheEvent::Initialized => is_ready = true,
            CacheEvent::Reset => {
                known = Values::default();
                is_ready = false;
            }
            CacheEvent::Ended(why) => over = Some(why),
        }
        // Incomplete values are not published, neither at the start nor after a reset.
        if over.is_some() || is_ready {
            told.send_modify(|latest| {
                latest.is_ready |= is_ready;
                if is_ready {
                    latest.values = known.clone();
                }
                latest.over = over;
            });
        }
    }
}
