//! A party: a group of participants whose identifiers need not be unique. kazoo's `Party` and
//! `ShallowParty`.
//!
//! # On the tree
//! ```text
//! /parties/workers                             container, created if it is missing
//!   0b7c…e1__party__                           ephemeral: a participant; data: its identifier
//!   53a9…04-anna                               ephemeral: a participant of a shallow party, with
//!                                              its identifier in the name (and also as data)
//! ```
//! Both names begin with 32 random hexadecimal digits.
//!
//! # Steps, guarantees, and when things break
//! Those of [`GroupMember`](super::GroupMember), except that no participant waits for a name: each
//! participant has its own node, and two with the same identifier are two participants.

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::cache::{CacheEvents, ChildrenCache};
use crate::error::{RecipeError, Result};
use crate::node::PersistentNode;
use crate::place::{join, name_of};

/// The end of the participants' node names, unless the party is shallow.
const MARK: &str = "__party__";

/// A participant of a party.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::Party;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let party = Party::join(&client, "/parties/workers", "anna").await?;
///     assert_eq!(party.participants(), ["anna"]);
///     party.leave().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "ShallowParty")]
pub struct Party {
    node: PersistentNode,
    cache: ChildrenCache,
    is_shallow: bool,
}

impl Party {
    /// Joins with an identifier, and waits until the node exists. Dropping the future withdraws the
    /// participant.
    pub async fn join(client: &Client, path: impl Into<String>, identifier: &str) -> Result<Party> {
        let name = format!("{}{MARK}", random_digits(client));
        Party::join_as(client, path.into(), name, identifier, false).await
    }

    /// Joins with the identifier in the name of the node, so that the list of children is
    /// sufficient to find the participants.
    pub async fn join_shallow(
        client: &Client,
        path: impl Into<String>,
        identifier: &str,
    ) -> Result<Party> {
        let path = path.into();
        if identifier.contains('/') {
            let why = format!("{path}: {identifier:?} cannot be a part of a node's name");
            return Err(RecipeError::Misuse(why));
        }
        let name = format!("{}-{identifier}", random_digits(client));
        Party::join_as(client, path, name, identifier, true).await
    }

    async fn join_as(
        client: &Client,
        path: String,
        name: String,
        identifier: &str,
        is_shallow: bool,
    ) -> Result<Party> {
        let data = Bytes::copy_from_slice(identifier.as_bytes());
        let node = PersistentNode::builder(client, join(&path, &name)).data(data).start();
        node.created().await?;
        let cache = ChildrenCache::start(client, path);
        cache.initialized().await?;
        Ok(Party { node, cache, is_shallow })
    }

    /// Returns the path of the party.
    pub fn path(&self) -> &str {
        self.cache.path()
    }

    /// Returns the identifiers of all participants, in no particular order.
    pub fn participants(&self) -> Vec<String> {
        let nodes = self.cache.children();
        let identifier = |(name, data): (&str, &[u8])| {
            if self.is_shallow {
                return name.split_once('-').map(|(_, identifier)| identifier.to_owned());
            }
            name.contains(MARK).then(|| String::from_utf8_lossy(data).into_owned())
        };
        nodes
            .iter()
            .map(|node| (name_of(&node.path), &node.data[..]))
            .filter_map(identifier)
            .collect()
    }

    /// Returns the present nodes of the party as events, and all events from now on.
    pub(super) fn events(&self) -> CacheEvents {
        self.cache.events()
    }

    /// Leaves, and waits until the node is deleted.
    pub async fn leave(self) -> Result<()> {
        self.node.close().await
    }
}

fn random_digits(client: &Client) -> String {
    client.random_uuid().replace('-', "")
}
