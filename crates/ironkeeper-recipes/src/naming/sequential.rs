//! Ids that a server counts, one by one.
//!
//! # On the tree
//! ```text
//! /ids/orders                                  persistent; the server counts what is created below it
//!   _c_<uuid>-id-0000000007                    ephemeral, and gone at once: 7 was handed out
//! ```
//!
//! # Steps
//! Create an ephemeral sequential node; its number is the id. Delete the node, in the background.
//!
//! # Guarantees
//! No id is handed out twice. Ids are in the order of asking, for everybody: who asks when another one
//! has got its id gets a larger one. Numbers are left out where the future of [`SequentialIds::next`]
//! is dropped. There are 2^31 of them. Nobody is woken.
//!
//! # When things break
//! - Disconnected: the wait goes on after the reconnect. After a lost reply the node is found by its mark, so
//!   that no second one is made.
//! - Session over: an error.
//! - The node deleted by somebody else, with its count: a handle that has handed out ids before refuses to
//!   begin anew, with [`RecipeError::NodeGone`].
//! - All numbers used: [`RecipeError::Exhausted`], where a server would go on with negative ones.

use std::sync::atomic::{AtomicI64, Ordering};

use ironkeeper_client::{Client, CreateMode, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::place::{Place, ensure_persistent};
use crate::queue_of_waiters::{Bases, Contender};

const BASES: Bases = &["id-"];

/// Ids on a path, counted by the server.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::naming::SequentialIds;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let orders = SequentialIds::new(&client, "/ids/orders");
///     assert_eq!(orders.next().await?, 0);
///     assert_eq!(orders.next().await?, 1);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "IdGenerator")]
pub struct SequentialIds {
    client: Client,
    path: String,
    /// The largest id that was handed out here; -1 if none was.
    largest: AtomicI64,
}

impl SequentialIds {
    /// Ids on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SequentialIds {
        SequentialIds { client: client.clone(), path: path.into(), largest: AtomicI64::new(-1) }
    }

    /// The path of the ids.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The next id.
    pub async fn next(&self) -> Result<u32> {
        let gone = || RecipeError::NodeGone { path: self.path.clone() };
        // What was handed out before this call has to be smaller.
        let before = self.largest.load(Ordering::Acquire);
        let place = loop {
            let mode = CreateMode::EphemeralSequential;
            match Place::take_below(&self.client, &self.path, BASES[0], b"", mode).await {
                Ok(place) => break place,
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    if self.largest.load(Ordering::Acquire) >= 0 {
                        return Err(gone());
                    }
                    // Not a container, which would go and take the count with it.
                    ensure_persistent(&self.client, &self.path).await?;
                }
                Err(error) => return Err(error),
            }
        };
        let number = Contender::parse(place.name(), BASES).map(|named| named.sequence);
        let id = number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
            RecipeError::Exhausted { path: self.path.clone(), what: "all numbers have been used" }
        })?;
        if i64::from(id) <= before {
            return Err(gone());
        }
        self.largest.fetch_max(id.into(), Ordering::AcqRel);
        Ok(id)
    }
}
