//! A set that many clients change concurrently. The `Set` of menagerie and of java.util.
//!
//! # On the tree, steps, guarantees, and when things break
//! Those of [`Map`], with one empty node per member. If several clients insert the same member
//! concurrently, exactly one call returns `true`.

use ironkeeper_client::Client;

use crate::error::Result;
use crate::shared::map::Map;

/// A set of strings on a path.
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
    /// Creates a handle for the set on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Set> {
        Ok(Set { map: Map::new(client, path)? })
    }

    /// Returns the path of the set.
    pub fn path(&self) -> &str {
        self.map.path()
    }

    /// Inserts a member. Returns whether it is new.
    pub async fn insert(&self, member: &str) -> Result<bool> {
        Ok(self.map.put_if_absent(member, "").await?.is_none())
    }

    /// Removes a member. Returns whether it existed.
    pub async fn remove(&self, member: &str) -> Result<bool> {
        Ok(self.map.remove(member).await?.is_some())
    }

    /// Returns whether the set contains a member.
    pub async fn contains(&self, member: &str) -> Result<bool> {
        self.map.contains_key(member).await
    }

    /// Returns all members, sorted.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.map.keys().await
    }

    /// Returns the number of members, without listing them.
    pub async fn len(&self) -> Result<usize> {
        self.map.len().await
    }

    /// Returns whether the set is empty.
    pub async fn is_empty(&self) -> Result<bool> {
        self.map.is_empty().await
    }

    /// Removes all members that exist at the start, one after another.
    pub async fn clear(&self) -> Result<()> {
        self.map.clear().await
    }
}
