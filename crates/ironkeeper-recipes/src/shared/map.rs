//! A map that many clients change concurrently. The `ConcurrentMap` of menagerie and of
//! java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /maps/users                persistent; every removal increments its version
//!   anna                     persistent: the value of a key; invalid characters are escaped
//!   a%2Fb                    the key `a/b`
//! /maps/users.receipts       one ephemeral node per concurrent write, which shows after a lost
//!                            reply whether the write was applied
//! ```
//!
//! # Steps
//! 1. Read the version of the map, and the node of the key.
//! 2. Create the node, or write or delete it conditional on its version. A write checks that the
//!    version of the map is unchanged, and a removal increments it: without that, a key that was
//!    removed and put again would pass for the node that was read, because both begin with version
//!    0.
//! 3. If another client was first, start over.
//!
//! # Guarantees
//! Each operation on a key is atomic and applied once, to the value that it returns as the previous
//! one. The keys and the entries of the whole map are not read atomically: a key that is put or
//! removed meanwhile may be missing or not. No watches, so no watch events; [`Map::cache`] follows
//! a map, with one event per change.
//!
//! # When things break
//! - Disconnected: operations continue after the reconnect. After a lost reply the receipt shows
//!   whether the write was applied.
//! - Session ended: an error. It is unknown whether the last write was applied.
//! - The future of an operation is dropped: the operation is applied at most once.

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

/// The change of an entry.
enum Next {
    Stay,
    Put(Bytes),
    Remove,
}

/// The value that an operation found, and whether the operation changed it.
struct Done {
    before: Option<Bytes>,
    is_changed: bool,
}

impl Map {
    /// Creates a handle for the map on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Map> {
        let path = path.into();
        let receipts = Receipts::new(beside(&path, "receipts")?);
        Ok(Map { inner: Arc::new(Inner { client: client.clone(), path, receipts }) })
    }

    /// Returns the path of the map.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let node = get_or_none(&self.inner.client, &self.node(key)).await?;
        Ok(node.map(|node| node.data))
    }

    /// Returns whether the key has a value.
    pub async fn contains_key(&self, key: &str) -> Result<bool> {
        let (client, path) = (&self.inner.client, self.node(key));
        Ok(client.retry(&patient(), || client.exists(&path)).await?.is_some())
    }

    /// Sets a value, and returns the previous one.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let value = value.into();
        Ok(self.change(key, |_| Next::Put(value.clone())).await?.before)
    }

    /// Sets a value if there is none, and returns the existing one.
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

    /// Sets a value if there is one, and returns the previous one.
    pub async fn replace(&self, key: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let value = value.into();
        let next = |before: Option<&Bytes>| match before {
            Some(_) => Next::Put(value.clone()),
            None => Next::Stay,
        };
        Ok(self.change(key, next).await?.before)
    }

    /// Sets a value if the present one is `expected`. Returns whether it did.
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

    /// Removes a key, and returns its value.
    pub async fn remove(&self, key: &str) -> Result<Option<Bytes>> {
        Ok(self.change(key, |_| Next::Remove).await?.before)
    }

    /// Removes a key if its value is `expected`. Returns whether it did.
    pub async fn remove_if(&self, key: &str, expected: impl AsRef<[u8]>) -> Result<bool> {
        self.change_if(key, expected.as_ref(), || Next::Remove).await
    }

    /// Replaces a value by the result of `f`, which may be called many times; `None` means no
    /// value, before and after. Returns the new value.
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

    /// Returns all keys, sorted.
    pub async fn keys(&self) -> Result<Vec<String>> {
        let names = children_or_none(&self.inner.client, self.path()).await?;
        let mut keys: Vec<String> = names.iter().filter_map(|name| from_name(name)).collect();
        keys.sort();
        Ok(keys)
    }

    /// Returns all entries, without those that are removed during the reads.
    pub async fn entries(&self) -> Result<BTreeMap<String, Bytes>> {
        let names = children_or_none(&self.inner.client, self.path()).await?;
        let read = names.iter().map(String::as_str);
        let nodes = get_children(&self.inner.client, self.path(), read).await?;
        let entries = names.iter().zip(nodes);
        Ok(entries.filter_map(|(name, node)| Some((from_name(name)?, node?.data))).collect())
    }

    /// Returns the number of keys, without listing them.
    pub async fn len(&self) -> Result<usize> {
        let client = &self.inner.client;
        let stat = client.retry(&patient(), || client.exists(self.path())).await?;
        Ok(stat.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0)))
    }

    /// Returns whether there are no keys.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    /// Removes all keys that exist at the start, one after another.
    pub async fn clear(&self) -> Result<()> {
        for key in self.keys().await? {
            self.remove(&key).await?;
        }
        Ok(())
    }

    /// Starts a cache of the map: all values without a request, and all changes as events. See
    /// [`Map::key_of`] for the keys.
    pub fn cache(&self) -> ChildrenCache {
        ChildrenCache::start(&self.inner.client, self.path())
    }

    /// Returns the key of a node of the map; `None` if a map did not create the node.
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
            // In this order: if a key is removed after the first read, the version of the map
            // differs at the write.
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
                // Another client wrote first.
                Some(ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::BadVersion) => {}
                _ => return Err(error),
            }
        }
    }
}
