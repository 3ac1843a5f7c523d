//! A wait queue of consumers or producers. Only the first waiter watches the queue, so that a new
//! item notifies one waiter and not all.

use ironkeeper_client::{Client, CreateMode};

use crate::error::{RecipeError, Result};
use crate::place::Place;
use crate::queue_of_waiters::{Bases, Standing};

const BASES: Bases = &["waits-"];

/// Waits until our node is the first. Dropping the returned node leaves the wait queue.
pub(super) async fn stand(client: &Client, path: &str) -> Result<Place> {
    loop {
        let mode = CreateMode::EphemeralSequential;
        let place = Place::take(client, path, BASES[0], b"", mode).await?;
        let standing = Standing::plain(&place, BASES);
        match standing.wait(|_| {}).await {
            Ok(()) => return Ok(place),
            // Another client deleted our node: wait again, at the end.
            Err(RecipeError::NodeGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
