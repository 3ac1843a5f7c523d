//! Revocation: a request to a holder to release its lock. Curator's `Revoker` and `Revocable`.
//!
//! # On the tree
//! ```text
//! /locks/report
//!   _c_<uuid>-lock-0000000007                  the holder's node; its data becomes `__REVOKE__`
//! ```
//!
//! # Steps
//! 1. The revoker finds the holder's node ([`Mutex::participants`](super::Mutex::participants)) and
//!    writes the message into it: [`revoke`], or
//!    [`Mutex::revoke_holder`](super::Mutex::revoke_holder).
//! 2. A holder that supports revocation awaits [`Guard::revocation`](crate::Guard::revocation),
//!    which reads and watches its node. It completes its work and releases the lock.
//!
//! # Guarantees
//! Revocation is cooperative: a holder that does not await it keeps the lock. A holder also
//! receives a message that was written before it began to wait. A message for a holder that has
//! released reaches no other holder, because the next one has another node. The message overwrites
//! the data of the node. It costs one watch event at a holder that awaits it, one more when that
//! holder releases, and one at the contender right behind it, which lists again and continues to
//! wait.
//!
//! # When things break
//! - Disconnected: the request is repeated, and a holder that awaits it receives it after the
//!   reconnect. The request is idempotent.
//! - Session of the holder ended, or its node deleted: `revocation` returns
//!   [`RecipeError::Lost`](crate::RecipeError::Lost), and [`revoke`] returns `false`.
//! - A future dropped: the message is written or not. A holder that stops waiting leaves a watch,
//!   which fires when it releases.

use ironkeeper_client::{Client, ErrorKind, Version};

use crate::error::Result;
use crate::guard::REVOKE_MESSAGE;
use crate::place::patient;

/// Asks the owner of the node `path` to release it. Holders that await
/// [`Guard::revocation`](crate::Guard::revocation) receive the request, and so do Curator's
/// revocable mutexes. Returns whether the node exists.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::{self, Mutex};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let guard = Mutex::new(&client, "/locks/report").lock().await?;
///     lock::revoke(&client, guard.path()).await?;
///     guard.revocation().await?;
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[doc(alias = "Revoker")]
pub async fn revoke(client: &Client, path: &str) -> Result<bool> {
    match client.retry(&patient(), || client.set(path, REVOKE_MESSAGE, Version::Any)).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
        Err(error) => Err(error.into()),
    }
}
