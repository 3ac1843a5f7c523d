//! Requests that are checked against schemas before they are sent.

use std::sync::Arc;

use ironkeeper_client::{
    Acl, Client, CreateOptions, Created, Node, OpResult, Reply, Stat, Transaction, Version, Watch,
};

use crate::error::{RecipeError, Result};
use crate::model::schema::SchemaSet;

/// A client that checks requests against a [`SchemaSet`]. The requests are those of [`Client`]:
/// each is in flight when the method returns without an error.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, Version};
/// use ironkeeper_recipes::model::{Schema, SchemaClient, SchemaSet};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let rules = SchemaSet::new().with(Schema::new("the settings", "/settings")?.undeletable());
///     let client = SchemaClient::new(&Client::connect("127.0.0.1:2181").await?, rules);
///     client.create("/settings", "", CreateMode::Persistent)?.await?;
///     assert!(client.delete("/settings", Version::Any).is_err());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SchemaClient {
    client: Client,
    rules: Arc<SchemaSet>,
}

impl SchemaClient {
    /// Creates a client with schemas.
    pub fn new(client: &Client, rules: SchemaSet) -> SchemaClient {
        SchemaClient { client: client.clone(), rules: Arc::new(rules) }
    }

    /// Returns the client without checks, for all requests that have no rule.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the schemas.
    pub fn rules(&self) -> &SchemaSet {
        &self.rules
    }

    /// Creates a node, if its schema allows it.
    pub fn create(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> Result<Reply<Created>> {
        let (data, options) = (data.as_ref(), options.into());
        self.rules.check_create(path, data, options.clone())?;
        Ok(self.client.create_with(path, data, &options))
    }

    /// Sets the data of a node, if its schema allows it.
    pub fn set(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: impl Into<Version>,
    ) -> Result<Reply<Stat>> {
        self.rules.check_set(path, data.as_ref())?;
        Ok(self.client.set(path, data, version))
    }

    /// Sets the ACL of a node, if its schema allows it.
    pub fn set_acl(
        &self,
        path: &str,
        acl: &[Acl],
        version: impl Into<Version>,
    ) -> Result<Reply<Stat>> {
        self.rules.check_set_acl(path, acl)?;
        Ok(self.client.set_acl(path, acl, version))
    }

    /// Deletes a node, if its schema allows it.
    pub fn delete(&self, path: &str, version: impl Into<Version>) -> Result<Reply<()>> {
        self.rules.check_delete(path)?;
        Ok(self.client.delete(path, version))
    }

    /// Reads and watches a node, if its schema allows it.
    pub fn get_and_watch(&self, path: &str) -> Result<Reply<(Node, Watch)>> {
        self.rules.check_watch(path)?;
        Ok(self.client.get_and_watch(path))
    }

    /// Checks whether a node exists and watches it, if its schema allows it.
    pub fn exists_and_watch(&self, path: &str) -> Result<Reply<(Option<Stat>, Watch)>> {
        self.rules.check_watch(path)?;
        Ok(self.client.exists_and_watch(path))
    }

    /// Lists and watches the children of a node, if its schema allows it.
    pub fn children_and_watch(&self, path: &str) -> Result<Reply<(Vec<String>, Stat, Watch)>> {
        self.rules.check_watch(path)?;
        Ok(self.client.children_and_watch(path))
    }

    /// Begins a transaction, whose operations must all be allowed.
    pub fn transaction(&self) -> SchemaTransaction {
        let (inner, rules) = (self.client.transaction(), self.rules.clone());
        SchemaTransaction { inner, rules, forbidden: None }
    }
}

/// A transaction that is checked against a [`SchemaSet`].
#[derive(Debug)]
#[must_use = "nothing happens before commit()"]
pub struct SchemaTransaction {
    inner: Transaction,
    rules: Arc<SchemaSet>,
    /// The error of the first forbidden operation.
    forbidden: Option<RecipeError>,
}

impl SchemaTransaction {
    /// Creates a node.
    pub fn create(
        self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> SchemaTransaction {
        let (data, options) = (data.as_ref(), options.into());
        let checked = self.rules.check_create(path, data, options.clone());
        self.add(checked, |inner| inner.create(path, data, options))
    }

    /// Sets the data of a node.
    pub fn set(
        self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: impl Into<Version>,
    ) -> SchemaTransaction {
        let checked = self.rules.check_set(path, data.as_ref());
        self.add(checked, |inner| inner.set(path, data, version))
    }

    /// Deletes a node.
    pub fn delete(self, path: &str, version: impl Into<Version>) -> SchemaTransaction {
        let checked = self.rules.check_delete(path);
        self.add(checked, |inner| inner.delete(path, version))
    }

    /// Makes the transaction conditional on the node and its version. No schema restricts that.
    pub fn check(self, path: &str, version: impl Into<Version>) -> SchemaTransaction {
        self.add(Ok(()), |inner| inner.check(path, version))
    }

    fn add(
        mut self,
        checked: Result<()>,
        add: impl FnOnce(Transaction) -> Transaction,
    ) -> SchemaTransaction {
        if let Err(error) = checked {
            self.forbidden.get_or_insert(error);
        }
        self.inner = add(self.inner);
        self
    }

    /// Sends the operations, or returns the error of the first forbidden operation.
    pub fn commit(self) -> Result<Reply<Vec<OpResult>>> {
        match self.forbidden {
            Some(error) => Err(error),
            None => Ok(self.inner.commit()),
        }
    }
}
