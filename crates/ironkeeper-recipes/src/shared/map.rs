//! A map that many change at once. The `ConcurrentMap` of menagerie and of java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /maps/users                persistent; its version grows with every removal
//!   anna                     persistent: the value of a key; what a path may not contain is escaped
//!   a%2Fb                    the key `a/b`
//! /maps/users.receipts       one ephemeral node per writer, by which a repeated write is told from one
//!                            whose reply was lost
//! ```
//!
//! # Steps
//! 1. Read the version of the map, and the node of the key.
//! 2. Create the node, or write or delete it from the version that was read. Writes check that nothing
//!    was removed since, and removals count themselves: without that, a key that was removed and put
//!    again would be taken for the one that was read, as both begin with version 0.
//! 3. If somebody else was first, begin again at 1.
//!
//! # Guarantees
//! Each operation on a key takes place at one moment, once, upon what it says was there before. Keys and
//! entries of the whole map are no single moment: what is put or removed meanwhile is there or not.
//! Nothing is watched, so nobody is woken; [`Map::cache`] follows a map at one event per change.
//!
//! # When things break
//! - Disconnected: operations go on after the reconnect. A lost reply leaves no doubt, thanks to the
//!   receipt.
//! - Session over: an error. Whether the last write took place is not known then.
//! - The future of an operation dropped: it took place or not, once at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind};

use crate::cache::{CachedNode, ChildrenCache};
use crate::error::Result;
use crate::escape::{from_name, to_name};
use crate::place::{beside, ensure_persistent, join, name_of, patient};
use crate::reads::{children_or_none, get_children, get_or_none};
use crate::receipt::{Receipts, refusal};
use crate::shared::write::refuse_wild_version;

/// A map on a path, from text to bytes.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::Map;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let users = Map::new(&client, "/maps/users")?;
///     assert_eq!(users.put("anna", "10.0.0.1").await?, None);
///     assert_eq!(users.put_if_absent("anna", "10.0.0.2").await?.unwrap(), "10.0.0.1");
///     assert!(users.replace_if("anna", "10.0.0.1", "10.0.0.3").await?);
///     assert_eq!(users.get("anna").await?.unwrap(), "10.0.0.3");
///     assert_eq!(users.remove("anna").await?.unwrap(), "10.0.0.3");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedMap")]
#[doc(alias = "HashMap")]
pub struct Map {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    path: String,
    receipts: Receipts,
}

/// What an entry shall become.
enum Next {
    Stay,
    Put(Bytes),
    Remove,
}

/// What an operation found, and whether it changed that.
struct Done {
    before: Option<Bytes>,
    is_changed: bool,
}

impl Map {
    /// A map on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Map> {
        let path = path.into();
        let receipts = Receipts::new(beside(&path, "receipts")?);
        Ok(Map { inner: Arc::new(Inner { client: client.clone(), path, receipts }) })
    }

    /// The path of the map.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// The value of a key.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let node = get_or_none(&self.inner.client, &self.node(key)).await?;
        Ok(node.map(|node| node.data))
    }

    /// Whether there is a value for the key.
    pub async fn contains_key(&self, key: &str) -> Result<bool> {
        let (client, path) = (&self.inner.client, self.node(key));
        Ok(client.retry(&patient(), || client.exists(&path)).await?.is_some())
    }

    /// Sets a value, and gives the one before.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let value = value.into();
        Ok(self.change(key, |_| Next::Put(value.clone())).await?.before)
    }

    /// Sets a value if there is none, and gives the one that was there.
    #[doc(alias = "putIfAbsent")]
    #[doc(alias = "insert")]
    pub async fn put_if_absent(&self, key: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let value = value.into();
        let next = |before: Option<&Bytes>| match before {
            Some(_) => Next::Stay,
            None => Next::Put(value.clone()),
        };
        Ok(self.change(key, next).await?.before)
    }

    /// Sets a value if there is one, and gives the one before.
    pub async fn replace(&self, key: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let value = value.into();
        let next = |before: Option<&Bytes>| match before {
            Some(_) => Next::Put(value.clone()),
            None => Next::Stay,
        };
        Ok(self.change(key, next).await?.before)
    }

    /// Sets a value if it is `expected` now. Says whether it was.
    #[doc(alias = "compareAndSet")]
    pub async fn replace_if(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<bool> {
        let value = value.into();
        self.change_if(key, expected.as_ref(), || Next::Put(value.clone())).await
    }

    /// Removes a key, and gives the value that it had.
    pub async fn remove(&self, key: &str) -> Result<Option<Bytes>> {
        Ok(self.change(key, |_| Next::Remove).await?.before)
    }

    /// Removes a key if its value is `expected`. Says whether it was.
    pub async fn remove_if(&self, key: &str, expected: impl AsRef<[u8]>) -> Result<bool> {
        self.change_if(key, expected.as_ref(), || Next::Remove).await
    }

    /// Replaces a value by one that depends on it; `None` stands for no value, before and after. Gives
    /// what is there then. `f` may be called many times.
    pub async fn update(
        &self,
        key: &str,
        mut f: impl FnMut(Option<&Bytes>) -> Option<Bytes>,
    ) -> Result<Option<Bytes>> {
        let mut after = None;
        let next = |before: Option<&Bytes>| {
            after = f(before);
            after.clone().map_or(Next::Remove, Next::Put)
        };
        self.change(key, next).await?;
        Ok(after)
    }

    /// All keys, in their order.
    pub async fn keys(&self) -> Result<Vec<String>> {
        let names = children_or_none(&self.inner.client, self.path()).await?;
        let mut keys: Vec<String> = names.iter().filter_map(|name| from_name(name)).collect();
        keys.sort();
        Ok(keys)
    }

    /// All entries. Those that are removed meanwhile are left out.
    pub async fn entries(&self) -> Result<BTreeMap<String, Bytes>> {
        let names = children_or_none(&self.inner.client, self.path()).await?;
        let read = names.iter().map(String::as_str);
        let nodes = get_children(&self.inner.client, self.path(), read).await?;
        let entries = names.iter().zip(nodes);
        Ok(entries.filter_map(|(name, node)| Some((from_name(name)?, node?.data))).collect())
    }

    /// How many keys there are. Does not list them.
    pub async fn len(&self) -> Result<usize> {
        let client = &self.inner.client;
        let stat = client.retry(&patient(), || client.exists(self.path())).await?;
        Ok(stat.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0)))
    }

    /// Whether there are no keys.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    /// Removes all keys that are there at the start, one after another.
    pub async fn clear(&self) -> Result<()> {
        for key in self.keys().await? {
            self.remove(&key).await?;
        }
        Ok(())
    }

    /// Follows the map: all values at hand without a request, and all changes as events. See
    /// [`Map::key_of`] for the keys.
    pub fn cache(&self) -> ChildrenCache {
        ChildrenCache::start(&self.inner.client, self.path())
    }

    /// The key that a node of the map stands for; `None` if a map did not create it.
    pub fn key_of(node: &CachedNode) -> Option<String> {
        from_name(name_of(&node.path))
    }

    fn node(&self, key: &str) -> String {
        join(self.path(), &to_name(key))
    }

    async fn change_if(&self, key: &str, expected: &[u8], next: impl Fn() -> Next) -> Result<bool> {
        let next = |before: Option<&Bytes>| match before {
            Some(before) if before == expected => next(),
            _ => Next::Stay,
        };
        Ok(self.change(key, next).await?.is_changed)
    }

    async fn change(
        &self,
        key: &str,
        mut decide: impl FnMut(Option<&Bytes>) -> Next,
    ) -> Result<Done> {
        let Inner { client, path, receipts } = &*self.inner;
        let key = self.node(key);
        loop {
            // In this order: what is removed behind the first read is found out by the write.
            let map = client.retry(&patient(), || client.exists(path)).await?;
            let node = match &map {
                Some(_) => get_or_none(client, &key).await?,
                None => None,
            };
            let before = node.as_ref().map(|node| node.data.clone());
            let next = decide(before.as_ref());
            let (map, written) = match (&next, map) {
                (Next::Stay, _) => return Ok(Done { before, is_changed: false }),
                (Next::Remove, _) if node.is_none() => {
                    return Ok(Done { before, is_changed: false });
                }
                (_, None) => {
                    ensure_persistent(client, path).await?;
                    continue;
                }
                (_, Some(map)) => (map.version, node.as_ref().map_or(0, |node| node.stat.version)),
            };
            refuse_wild_version(path, map)?;
            refuse_wild_version(&key, written)?;
            let done = receipts.commit(client, |once| match (&next, &node) {
                (Next::Put(value), None) => once.create(&key, value, CreateMode::Persistent),
                (Next::Put(value), Some(_)) => once.check(path, map).set(&key, value, written),
                _ => once.set(path, "", map).delete(&key, written),
            });
            let Err(error) = done.await else { return Ok(Done { before, is_changed: true }) };
            match refusal(&error) {
                // Somebody else was first.
                Some(ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::BadVersion) => {}
                _ => return Err(error),
            }
        }
    }
}
