//! Ids from the server's sequence numbers, one request per id.
//!
//! # On the tree
//! ```text
//! /ids/orders                                  persistent; its sequence counter yields the ids
//!   _c_<uuid>-id-0000000007                    ephemeral, deleted at once: id 7 was returned
//! ```
//!
//! # Steps
//! Create an ephemeral sequential node; its sequence number is the id. Delete the node in the
//! background.
//!
//! # Guarantees
//! No id is returned twice. Ids follow the real-time order of the calls of all clients: a call that
//! begins after another call has returned gets a larger id. A number is skipped if the future of
//! [`SequentialIds::next`] is dropped. There are 2^31 ids. No watches.
//!
//! # When things break
//! - The connection is lost: the call continues after the reconnect. After a lost reply the node is
//!   found by its protection id, so that no second node is created.
//! - The session has ended: an error.
//! - Another client deleted the parent, and with it the counter: a handle that has returned ids
//!   before returns [`RecipeError::NodeGone`] instead of starting from 0 again.
//! - All numbers are used: [`RecipeError::Exhausted`]. A server would continue with negative
//!   numbers.

use std::sync::atomic::{AtomicI64, Ordering};

use ironkeeper_client::{Client, CreateMode, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::place::{Place, ensure_persistent};
use crate::queue_of_waiters::{Bases, Contender};

const BASES: Bases = &["id-"];

/// A generator of ids on a path, counted by the server.
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
    /// The largest id that this handle has returned; -1 if none.
    largest: AtomicI64,
}

impl SequentialIds {
    /// Creates a generator of ids on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SequentialIds {
        SequentialIds { client: client.clone(), path: path.into(), largest: AtomicI64::new(-1) }
    }

    /// Returns the path of the ids.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the next id.
    pub async fn next(&self) -> Result<u32> {
        let gone = || RecipeError::NodeGone { path: self.path.clone() };
        // The new id must be larger than all ids returned before this call.
        let before = self.largest.load(Ordering::Acquire);
        let place = loop {
            let mode = CreateMode::EphemeralSequential;
            match Place::take_below(&self.client, &self.path, BASES[0], b"", mode).await {
                Ok(place) => break place,
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    if self.largest.load(Ordering::Acquire) >= 0 {
                        return Err(gone());
                    }
                    // Not a container: the server would delete it when empty, together with its
                    // counter.
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
