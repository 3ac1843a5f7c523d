//! A name service: maps names to values, permanently or for the lifetime of a session.
//!
//! # On the tree
//! As for [`Map`]: one node per name, whose data is the value. Bound names are persistent nodes,
//! registered names are ephemeral nodes.
//!
//! # Steps, guarantees, and when things break
//! As for [`Map`] for bound names, and as for [`PersistentNode`] for registered names: a
//! registration waits until the name is free, is created again when another client deletes it, and
//! ends with the session. A name has one value at a time; if two clients bind it at once, one of
//! them receives `false`. [`NameService::wait_for`] costs one watch event when the name is bound,
//! and removes its watch when its future is dropped.

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::barrier::TidyWatch;
use crate::cache::ChildrenCache;
use crate::error::{RecipeError, Result};
use crate::escape::to_name;
use crate::node::PersistentNode;
use crate::place::{ensure_persistent, join, patient};
use crate::shared::Map;

/// The names on a path.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::naming::NameService;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let names = NameService::new(&client, "/names")?;
///     assert!(names.bind("db/orders", "10.0.0.1:5432").await?);
///     assert!(!names.bind("db/orders", "10.0.0.2:5432").await?); // taken
///     assert_eq!(names.lookup("db/orders").await?.unwrap(), "10.0.0.1:5432");
///
///     let registration = names.register("web/1", "10.0.0.3:80").await?; // as long as we live
///     assert_eq!(names.list("web/").await?, ["web/1"]);
///     registration.unregister().await?;
///     assert_eq!(names.lookup("web/1").await?, None);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct NameService {
    client: Client,
    names: Map,
}

impl NameService {
    /// Creates a handle of the names on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<NameService> {
        Ok(NameService { client: client.clone(), names: Map::new(client, path)? })
    }

    /// Returns the path of the names.
    pub fn path(&self) -> &str {
        self.names.path()
    }

    /// Binds a name permanently. Returns `false` if it is taken.
    pub async fn bind(&self, name: &str, value: impl Into<Bytes>) -> Result<bool> {
        self.refuse_no_name(name)?;
        Ok(self.names.put_if_absent(name, value).await?.is_none())
    }

    /// Binds a name unconditionally, and returns its old value.
    pub async fn rebind(&self, name: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        self.refuse_no_name(name)?;
        self.names.put(name, value).await
    }

    /// Deletes a name, and returns its old value. A registered name is created again by its owner.
    pub async fn unbind(&self, name: &str) -> Result<Option<Bytes>> {
        self.names.remove(name).await
    }

    /// Binds a name as long as this session and the registration exist. Waits until the name is
    /// free.
    pub async fn register(&self, name: &str, value: impl Into<Bytes>) -> Result<Registration> {
        self.refuse_no_name(name)?;
        // The parent of the names is persistent, as `Map` requires.
        ensure_persistent(&self.client, self.path()).await?;
        let node = PersistentNode::builder(&self.client, self.node(name)).data(value).start();
        node.created().await?;
        Ok(Registration { name: name.to_owned(), node })
    }

    /// Returns the value of a name.
    pub async fn lookup(&self, name: &str) -> Result<Option<Bytes>> {
        self.names.get(name).await
    }

    /// Waits until a name has a value, and returns the value.
    pub async fn wait_for(&self, name: &str) -> Result<Bytes> {
        let (client, path) = (&self.client, self.node(name));
        loop {
            if let Some(value) = self.lookup(name).await? {
                return Ok(value);
            }
            let (found, watch) =
                client.retry(&patient(), || client.exists_and_watch(&path)).await?;
            let watch = TidyWatch::new(client, watch);
            if found.is_none() {
                watch.fired().await?;
            }
        }
    }

    /// Returns all names that begin with `beginning`, sorted.
    pub async fn list(&self, beginning: &str) -> Result<Vec<String>> {
        let mut names = self.names.keys().await?;
        names.retain(|name| name.starts_with(beginning));
        Ok(names)
    }

    /// Returns a cache of all names, with their values in memory and changes as events.
    /// [`Map::key_of`] decodes the names.
    pub fn cache(&self) -> ChildrenCache {
        self.names.cache()
    }

    fn node(&self, name: &str) -> String {
        join(self.path(), &to_name(name))
    }

    fn refuse_no_name(&self, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(RecipeError::Misuse(format!("{}: no name is empty", self.path())));
        }
        Ok(())
    }
}

/// A registered name. Dropping it deletes the name in the background.
#[derive(Debug)]
#[must_use = "a registration that is dropped frees its name"]
pub struct Registration {
    name: String,
    node: PersistentNode,
}

impl Registration {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the value of the name.
    pub async fn set(&self, value: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(value).await
    }

    /// Resolves when the name is not maintained any more, with the reason: the session has ended,
    /// or the server rejects the requests.
    pub async fn lost(&self) -> RecipeError {
        let mut creations = self.node.creations();
        loop {
            if let Err(why) = creations.next().await {
                return why;
            }
        }
    }

    /// Deletes the name, and waits for the reply.
    pub async fn unregister(self) -> Result<()> {
        self.node.close().await
    }
}
