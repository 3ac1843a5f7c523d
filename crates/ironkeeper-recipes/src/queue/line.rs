//! A line of those who wait for a queue. Only the first one looks at the queue, so that an item that
//! comes wakes one of them and not all.

use ironkeeper_client::{Client, CreateMode};

use crate::error::{RecipeError, Result};
use crate::place::Place;
use crate::queue_of_waiters::{Bases, Standing};

const BASES: Bases = &["waits-"];

/// Waits until we are the first. The place is given back when it is dropped.
pub(super) async fn stand(client: &Client, path: &str) -> Result<Place> {
    loop {
        let mode = CreateMode::EphemeralSequential;
        let place = Place::take(client, path, BASES[0], b"", mode).await?;
        let standing = Standing::plain(&place, BASES);
        match standing.wait(|_| {}).await {
            Ok(()) => return Ok(place),
            // Nobody loses more than the place in line: we stand at its end again.
            Err(RecipeError::NodeGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
