//! Typed values on paths of a form. Curator's `ModeledFramework` and `ModelSpec`.
//!
//! # On the tree
//! ```text
//! /users                                       container, created if it is missing
//!   anna                                       persistent: a value, encoded by the codec
//! ```
//!
//! # Steps
//! Encode and write, read and decode. A write that depends on a value read before is conditional on
//! the version, and [`Modeled::update`] reads, computes and writes until the version is unchanged.
//!
//! # Guarantees
//! A read returns a value of the type, or an error that contains the path. Data that cannot be
//! decoded is never written. Conditional writes are applied only if no client has written since the
//! read. No watches, except by [`CachedModel`].
//!
//! # When things break
//! - The connection is lost: the operation continues after the reconnect.
//! - A reply is lost: a write determines whether it was applied; if that cannot be determined, it
//!   returns the connection loss with [`Happened::Maybe`](ironkeeper_client::Happened).
//! - The session has ended: an error.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind, Node, Version};

use crate::error::{RecipeError, Result};
use crate::model::cached::CachedModel;
use crate::model::codec::{Codec, Json};
use crate::model::form::PathForm;
use crate::place::{join, patient};
use crate::reads::{children_or_none, get_children};
use crate::shared::VersionedValue;
use crate::shared::write::{Upon, Written, overwrite_or_create, write_once};

/// A type, its codec, and the form of the paths of its values.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::model::Model;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     type Settings = BTreeMap<String, u32>;
///
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let settings: Model<Settings> = Model::json("/users/{user}/settings")?;
///     let of_anna = settings.at(&client, &["anna"])?;
///     assert!(of_anna.create(&Settings::from([("volume".to_owned(), 3)])).await?);
///     of_anna
///         .update(|old| {
///             let mut new = old.cloned().unwrap_or_default();
///             *new.entry("volume".to_owned()).or_default() += 1;
///             new
///         })
///         .await?;
///     assert_eq!(of_anna.read().await?.unwrap().value["volume"], 4);
///     Ok(())
/// }
/// ```
#[doc(alias = "ModelSpec")]
pub struct Model<T> {
    form: PathForm,
    codec: Arc<dyn Codec<T>>,
    what: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Model<T> {
    fn clone(&self) -> Model<T> {
        Model { form: self.form.clone(), codec: self.codec.clone(), what: PhantomData }
    }
}

impl<T> fmt::Debug for Model<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("form", &self.form).finish_non_exhaustive()
    }
}

impl<T> Model<T> {
    /// Creates a model of values with a codec, on paths of a form.
    pub fn new(form: &str, codec: impl Codec<T> + 'static) -> Result<Model<T>> {
        let (form, codec) = (PathForm::parse(form)?, Arc::new(codec));
        Ok(Model { form, codec, what: PhantomData })
    }

    /// Creates a model of JSON values, on paths of a form.
    pub fn json(form: &str) -> Result<Model<T>>
    where
        Json: Codec<T>,
    {
        Model::new(form, Json)
    }

    /// Returns the form of the paths.
    pub fn form(&self) -> &PathForm {
        &self.form
    }

    /// Returns the handle of one value. Makes no request.
    pub fn at(&self, client: &Client, parameters: &[&str]) -> Result<Modeled<T>> {
        let path = self.form.fill(parameters)?;
        Ok(Modeled { client: client.clone(), path, model: self.clone() })
    }

    /// Reads all values for the last parameter, which must be the last name of the form. Returns an
    /// error if one of them cannot be decoded.
    pub async fn list(&self, client: &Client, parameters: &[&str]) -> Result<BTreeMap<String, T>> {
        let parent = self.form.fill_parent(parameters)?;
        let names = children_or_none(client, &parent).await?;
        let nodes = get_children(client, &parent, names.iter().map(|name| &**name)).await?;
        let mut values = BTreeMap::new();
        for (name, node) in names.into_iter().zip(nodes) {
            let Some(node) = node else { continue };
            let value = self.decode(&join(&parent, &name), &node.data)?;
            values.insert(name, value);
        }
        Ok(values)
    }

    pub(super) fn decode(&self, path: &str, data: &[u8]) -> Result<T> {
        self.codec.decode(data).map_err(|why| RecipeError::Malformed { path: path.to_owned(), why })
    }

    fn encode(&self, path: &str, value: &T) -> Result<Vec<u8>> {
        let misuse = |why| RecipeError::Misuse(format!("{path}: {why}"));
        let data = self.codec.encode(value).map_err(misuse)?;
        // Other clients could not read such data.
        self.codec.decode(&data).map_err(misuse)?;
        Ok(data)
    }
}

impl<T: Send + Sync + 'static> Model<T> {
    /// Watches all values for the last parameter, which must be the last name of the form. The
    /// parent need not exist.
    pub async fn follow(&self, client: &Client, parameters: &[&str]) -> Result<CachedModel<T>> {
        CachedModel::open(client, self.form.fill_parent(parameters)?, self.clone()).await
    }
}

/// The path of one value of a [`Model`], which need not exist.
#[derive(Debug)]
#[doc(alias = "ModeledFramework")]
pub struct Modeled<T> {
    client: Client,
    path: String,
    model: Model<T>,
}

impl<T> Clone for Modeled<T> {
    fn clone(&self) -> Modeled<T> {
        let (client, path) = (self.client.clone(), self.path.clone());
        Modeled { client, path, model: self.model.clone() }
    }
}

impl<T> Modeled<T> {
    /// Returns the path of the value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the value; `None` if the node does not exist.
    pub async fn read(&self) -> Result<Option<VersionedValue<T>>> {
        let Some(node) = self.node().await? else { return Ok(None) };
        let value = self.model.decode(&self.path, &node.data)?;
        Ok(Some(VersionedValue::new(value, &node.stat)))
    }

    async fn node(&self) -> Result<Option<Node>> {
        match self.client.retry(&patient(), || self.client.get(&self.path)).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the value, unless the node exists. Returns whether it was created.
    pub async fn create(&self, value: &T) -> Result<bool> {
        let data = self.model.encode(&self.path, value)?;
        let written = write_once(&self.client, &self.path, &data, Upon::Nothing).await?;
        Ok(matches!(written, Written::Yes(_)))
    }

    /// Writes the value unconditionally and exactly once; creates the node if it is missing.
    pub async fn write(&self, value: &T) -> Result<()> {
        let data = self.model.encode(&self.path, value)?;
        overwrite_or_create(&self.client, &self.path, &data).await
    }

    /// Writes the value if the node is unchanged since `seen` was read. Returns whether it was
    /// written.
    pub async fn replace(&self, seen: &VersionedValue<T>, value: &T) -> Result<bool> {
        let data = self.model.encode(&self.path, value)?;
        let upon = Upon::Version(seen.version, seen.czxid);
        let written = write_once(&self.client, &self.path, &data, upon).await?;
        Ok(matches!(written, Written::Yes(_)))
    }

    /// Reads, computes and writes until the write meets no conflict. `change` receives `None` if
    /// the node does not exist, and may be called several times.
    pub async fn update(&self, change: impl Fn(Option<&T>) -> T) -> Result<VersionedValue<T>> {
        loop {
            let seen = self.read().await?;
            let value = change(seen.as_ref().map(|seen| &seen.value));
            let data = self.model.encode(&self.path, &value)?;
            let upon = match &seen {
                Some(seen) => Upon::Version(seen.version, seen.czxid),
                None => Upon::Nothing,
            };
            let written = write_once(&self.client, &self.path, &data, upon).await?;
            if let Written::Yes(stat) = written {
                return Ok(VersionedValue::new(value, &stat));
            }
        }
    }

    /// Deletes the value. Returns whether it existed.
    pub async fn delete(&self) -> Result<bool> {
        match self.client.delete_idempotent(&self.path, Version::Any, &patient()).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the data of the node without decoding it, for data that is not of the type.
    pub async fn raw(&self) -> Result<Option<Bytes>> {
        Ok(self.node().await?.map(|node| node.data))
    }
}
