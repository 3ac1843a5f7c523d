//! Election by one node: whoever creates it leads. For few candidates.
//!
//! # On the tree
//! ```text
//! /leader          ephemeral; data: the id of the leader, '#', a unique mark
//! ```
//!
//! # Steps
//! Create the node; whoever succeeds leads. The others read and watch it, and try again when it goes.
//!
//! # Guarantees
//! One leader at a time among guards whose session lives; growing tokens; no order among the
//! candidates. A change of leaders wakes every candidate that waits: N events. The [`LeaderLatch`] wakes
//! one.
//!
//! # When things break
//! A node that somebody deletes can be taken by another at once: [`Guard::lost`] and [`Guard::check`] notice
//! that, but since all leaders use the same name [`Guard::fence`] tells only that somebody leads, not
//! who: use the token.
//!
//! A leader that was asked to give it back ([`revoke`](crate::lock::revoke)) leads on until it does. Its id is
//! overwritten: others see `__REVOKE__` in its place.
//!
//! Disconnected: the guard is in doubt, and [`Guard::lost`] waits for what becomes of the session. When
//! that is over, the node goes, and whoever waits is elected.
//!
//! [`LeaderLatch`]: crate::election::LeaderLatch

use ironkeeper_client::{Client, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::guard::{Guard, REVOKE_MESSAGE};
use crate::place::{Place, patient};

/// What became of an offer to lead.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum Offer {
    /// We lead, as long as the guard is held.
    Elected(Guard),
    /// Somebody else leads; its id.
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
    /// A candidate with an id that others see. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, id: impl Into<String>) -> StaticElection {
        StaticElection { client: client.clone(), path: path.into(), id: id.into() }
    }

    /// Leads if nobody does.
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

    /// Waits until it leads.
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

    /// The id of the leader.
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
