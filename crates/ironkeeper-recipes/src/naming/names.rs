//! A name service: what a name stands for, for good or as long as somebody lives.
//!
//! # On the tree
//! That of a [`Map`]: a node per name, whose data is what the name stands for. Names that are bound for good
//! are persistent nodes, registered ones are ephemeral.
//!
//! # Steps, guarantees, and when things break
//! Those of [`Map`] for names that are bound, and those of [`PersistentNode`] for names that are
//! registered: a registration waits until the name is free, comes back when somebody deletes it, and ends
//! with the session. A name stands for one thing at a time; of two who bind it at once one is told that
//! it is taken. Who waits for a name costs one watch event when it is bound, and leaves no watch behind
//! when it gives up.

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::barrier::TidyWatch;
use crate::cache::ChildrenCache;
use crate::error::{RecipeError, Result};
use crate::escape::to_name;
use crate::node::PersistentNode;
use crate::place::{ensure_persistent, join, patient};
use crate::shared::Map;

/// Names on a path.
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
    /// The names on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<NameService> {
        Ok(NameService { client: client.clone(), names: Map::new(client, path)? })
    }

    /// The path of the names.
    pub fn path(&self) -> &str {
        self.names.path()
    }

    /// Binds a name for good. `false` if it is taken.
    pub async fn bind(&self, name: &str, value: impl Into<Bytes>) -> Result<bool> {
        self.refuse_no_name(name)?;
        Ok(self.names.put_if_absent(name, value).await?.is_none())
    }

    /// Binds a name, whatever it stood for, and gives that.
    pub async fn rebind(&self, name: &str, value: impl Into<Bytes>) -> Result<Option<Bytes>> {
        self.refuse_no_name(name)?;
        self.names.put(name, value).await
    }

    /// Frees a name, and gives what it stood for. One that is registered comes back.
    pub async fn unbind(&self, name: &str) -> Result<Option<Bytes>> {
        self.names.remove(name).await
    }

    /// Binds a name as long as this session lives and the registration is kept. Waits until it is free.
    pub async fn register(&self, name: &str, value: impl Into<Bytes>) -> Result<Registration> {
        self.refuse_no_name(name)?;
        // The node of the names is persistent, as a map wants it.
        ensure_persistent(&self.client, self.path()).await?;
        let node = PersistentNode::builder(&self.client, self.node(name)).data(value).start();
        node.created().await?;
        Ok(Registration { name: name.to_owned(), node })
    }

    /// What a name stands for.
    pub async fn lookup(&self, name: &str) -> Result<Option<Bytes>> {
        self.names.get(name).await
    }

    /// Waits until a name stands for something, and tells what.
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

    /// All names that begin so, in their order.
    pub async fn list(&self, beginning: &str) -> Result<Vec<String>> {
        let mut names = self.names.keys().await?;
        names.retain(|name| name.starts_with(beginning));
        Ok(names)
    }

    /// Follows all names: what they stand for at hand without a request, and all changes as events. See
    /// [`Map::key_of`] for the names.
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

/// A name that is ours as long as this is kept. Dropping it frees the name in the background.
#[derive(Debug)]
#[must_use = "a registration that is dropped frees its name"]
pub struct Registration {
    name: String,
    node: PersistentNode,
}

impl Registration {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes what the name stands for.
    pub async fn set(&self, value: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(value).await
    }

    /// Resolves when the name is not kept any more, with the reason: the session is over, or the server
    /// refuses.
    pub async fn lost(&self) -> RecipeError {
        let mut creations = self.node.creations();
        loop {
            if let Err(why) = creations.next().await {
                return why;
            }
        }
    }

    /// Frees the name, and waits until it is free.
    pub async fn unregister(self) -> Result<()> {
        self.node.close().await
    }
}
