//! All values of a model, in memory. Curator's `CachedModeledFramework`.
//!
//! # Steps, guarantees, and when things break
//! As for [`ChildrenCache`](crate::cache::ChildrenCache). A value is decoded once, when its node is
//! created or changed. Data that cannot be decoded is excluded from the values and reported in
//! [`Models::malformed`]; it hides no other value. One watch event per created, changed or deleted
//! value, for each `CachedModel`.

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
    /// The decoding errors of the other nodes.
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

/// The values of a model, updated in the background. Created by [`Model::follow`].
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
    /// Returns the path whose children are the values.
    pub fn path(&self) -> &str {
        self.decoded.path()
    }

    /// Returns all values last known. Makes no request.
    pub fn models(&self) -> Models<T> {
        let values = self.decoded.values();
        Models { values: values.good, malformed: values.malformed }
    }

    /// Returns the last known value by the last name of its path.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.decoded.get(name)
    }

    /// Returns whether changes are still received: `false` after the end of the session.
    pub fn is_followed(&self) -> bool {
        self.decoded.is_followed()
    }

    /// Returns all changes from now on. A slow reader receives the latest values only.
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
    /// Waits for the next change and returns all values; `None` when the session has ended or the
    /// cache was dropped.
    pub async fn next(&mut self) -> Option<Models<T>> {
        let values = self.changes.next().await?;
        Some(Models { values: values.good, malformed: values.malformed })
    }
}
