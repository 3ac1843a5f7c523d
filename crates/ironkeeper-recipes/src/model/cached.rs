//! All values of a model, at hand without a request. Curator's `CachedModeledFramework`.
//!
//! # Steps, guarantees, and when things break
//! Those of [`ChildrenCache`](crate::cache::ChildrenCache). Values are decoded once, when they come or change. One that is not of
//! the type is left out of the values and told of by [`Models::malformed`]: it hides no other one. One
//! watch event per value that comes, changes or goes, at everybody who looks on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::{Decoded, DecodedChanges};
use crate::error::{RecipeError, Result};
use crate::model::modeled::Model;

/// All values at one moment, by the last name of their paths.
#[non_exhaustive]
pub struct Models<T> {
    /// The values.
    pub values: BTreeMap<String, Arc<T>>,
    /// What is wrong with the nodes that are not of the type.
    pub malformed: BTreeMap<String, RecipeError>,
}

impl<T> fmt::Debug for Models<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("values", &self.values.keys())
            .field("malformed", &self.malformed)
            .finish()
    }
}

/// The values of a model, followed in the background. Made by [`Model::follow`].
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::model::{Model, Text};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let limits: Model<u32> = Model::new("/limits/{name}", Text)?;
///     let followed = limits.follow(&client, &[]).await?;
///     let mut changes = followed.changes();
///     limits.at(&client, &["users"])?.write(&7).await?;
///     assert_eq!(*changes.next().await.unwrap().values["users"], 7);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "CachedModeledFramework")]
pub struct CachedModel<T> {
    decoded: Decoded<T>,
}

impl<T: Send + Sync + 'static> CachedModel<T> {
    pub(super) async fn open(
        client: &Client,
        parent: String,
        model: Model<T>,
    ) -> Result<CachedModel<T>> {
        let decode = move |path: &str, data: &[u8]| model.decode(path, data);
        Ok(CachedModel { decoded: Decoded::open(client, parent, decode).await? })
    }
}

impl<T> CachedModel<T> {
    /// The path whose children are the values.
    pub fn path(&self) -> &str {
        self.decoded.path()
    }

    /// All values last known. Makes no request.
    pub fn models(&self) -> Models<T> {
        let values = self.decoded.values();
        Models { values: values.good, malformed: values.malformed }
    }

    /// One value, by the last name of its path.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.decoded.get(name)
    }

    /// Whether changes are still heard of: not after the end of the session.
    pub fn is_followed(&self) -> bool {
        self.decoded.is_followed()
    }

    /// All changes from now on; the latest only, if they come faster than they are taken.
    pub fn changes(&self) -> ModelChanges<T> {
        ModelChanges { changes: self.decoded.changes() }
    }
}

/// The changes of a [`CachedModel`].
#[derive(Debug)]
pub struct ModelChanges<T> {
    changes: DecodedChanges<T>,
}

impl<T> ModelChanges<T> {
    /// All values after the next change; `None` when they are not followed any more: the session is
    /// over, or the cache was dropped.
    pub async fn next(&mut self) -> Option<Models<T>> {
        let values = self.changes.next().await?;
        Some(Models { values: values.good, malformed: values.malformed })
    }
}
