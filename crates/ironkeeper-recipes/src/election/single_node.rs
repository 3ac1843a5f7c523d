//! An election by one node: the candidate that creates it leads. For few candidates.
//!
//! # On the tree
//! ```text
//! /leader          ephemeral; data: the id of the leader, '#', a random UUID
//! ```
//!
//! # Steps
//! Each candidate tries to create the node; the one that succeeds leads. The other candidates read
//! and watch the node, and try again when it is deleted.
//!
//! # Guarantees
//! One leader at a time among guards whose session is open; increasing fencing tokens; no order
//! among the candidates. A change of leaders wakes all N waiting candidates with one event each.
//! The [`LeaderLatch`] wakes one.
//!
//! # When things break
//! If another client deletes the node, another candidate can lead at once. [`Guard::lost`] and
//! [`Guard::check`] detect that. All leaders use the same path, so [`Guard::fence`] checks only
//! that there is a leader, not which one: use the fencing token.
//!
//! A leader that receives a revocation request ([`revoke`](crate::lock::revoke)) leads until it
//! releases the guard. The request overwrites its id: other clients read `__REVOKE__` instead.
//!
//! The connection is lost: the guard is in doubt, and [`Guard::lost`] stays pending until the
//! session has ended, or until a read after the reconnect finds that the node was deleted. When the
//! session has ended, the node is deleted, and one of the waiting candidates is elected.
//!
//! [`LeaderLatch`]: crate::election::LeaderLatch

use ironkeeper_client::{Client, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::guard::{Guard, REVOKE_MESSAGE};
use crate::place::{Place, patient};

/// The result of an attempt to lead.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum Offer {
    /// This candidate leads, as long as the guard is held.
    Elected(Guard),
    /// Another candidate leads; its id.
    Leader(String),
}

/// An election by one node.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::election::{Offer, StaticElection};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let Offer::Elected(guard) =
///         StaticElection::new(&client, "/leader", "host-1").offer().await?
///     else {
///         panic!("there is no other candidate");
///     };
///     let other = StaticElection::new(&client, "/leader", "host-2").offer().await?;
///     assert!(matches!(other, Offer::Leader(id) if id == "host-1"));
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct StaticElection {
    client: Client,
    path: String,
    id: String,
}

impl StaticElection {
    /// Creates a candidate with an id that is visible to other clients. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, id: impl Into<String>) -> StaticElection {
        StaticElection { client: client.clone(), path: path.into(), id: id.into() }
    }

    /// Becomes the leader if there is none.
    pub async fn offer(&self) -> Result<Offer> {
        loop {
            let data = format!("{}#{}", self.id, self.client.random_uuid());
            if let Some(place) = Place::claim(&self.client, &self.path, data.as_bytes()).await? {
                return Ok(Offer::Elected(Guard::new(place)));
            }
            if let Some(leader) = self.leader().await? {
                return Ok(Offer::Leader(leader));
            }
        }
    }

    /// Waits until this candidate leads.
    pub async fn elected(&self) -> Result<Guard> {
        loop {
            if let Offer::Elected(guard) = self.offer().await? {
                return Ok(guard);
            }
            let client = &self.client;
            match client.retry(&patient(), || client.get_and_watch(&self.path)).await {
                Ok((_, watch)) => {
                    watch.await?;
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the id of the leader.
    pub async fn leader(&self) -> Result<Option<String>> {
        match self.client.retry(&patient(), || self.client.get(&self.path)).await {
            Ok(node) => parse_leader(&node.data).map(Some).ok_or_else(|| RecipeError::Malformed {
                path: self.path.clone(),
                why: "not a node of this election".to_owned(),
            }),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) fn parse_leader(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    let id = if data == REVOKE_MESSAGE { text } else { text.rsplit_once('#')?.0 };
    Some(id.to_owned())
}
