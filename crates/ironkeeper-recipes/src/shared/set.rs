//! A set that many change at once. The `Set` of menagerie and of java.util.
//!
//! # On the tree, steps, guarantees, and when things break
//! Those of [`Map`], which this is without the values: a node per member, empty. Of many who insert the
//! same member at once, exactly one is told that it was new.

use ironkeeper_client::Client;

use crate::error::Result;
use crate::shared::map::Map;

/// A set of texts on a path.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::Set;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let seen = Set::new(&client, "/sets/seen")?;
///     assert!(seen.insert("anna").await?);
///     assert!(!seen.insert("anna").await?);
///     assert_eq!(seen.members().await?, ["anna"]);
///     assert!(seen.remove("anna").await?);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedSet")]
#[doc(alias = "HashSet")]
pub struct Set {
    map: Map,
}

impl Set {
    /// A set on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Set> {
        Ok(Set { map: Map::new(client, path)? })
    }

    /// The path of the set.
    pub fn path(&self) -> &str {
        self.map.path()
    }

    /// Puts a member in. Says whether it is new.
    pub async fn insert(&self, member: &str) -> Result<bool> {
        Ok(self.map.put_if_absent(member, "").await?.is_none())
    }

    /// Takes a member out. Says whether it was there.
    pub async fn remove(&self, member: &str) -> Result<bool> {
        Ok(self.map.remove(member).await?.is_some())
    }

    /// Whether a member is there.
    pub async fn contains(&self, member: &str) -> Result<bool> {
        self.map.contains_key(member).await
    }

    /// All members, in their order.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.map.keys().await
    }

    /// How many members there are. Does not list them.
    pub async fn len(&self) -> Result<usize> {
        self.map.len().await
    }

    /// Whether there are none.
    pub async fn is_empty(&self) -> Result<bool> {
        self.map.is_empty().await
    }

    /// Takes all members out that are there at the start, one after another.
    pub async fn clear(&self) -> Result<()> {
        self.map.clear().await
    }
}
