//! Asking a holder to give back what it holds. Curator's `Revoker` and `Revocable`.
//!
//! # On the tree
//! ```text
//! /locks/report
//!   _c_<uuid>-lock-0000000007                  the holder's node; its data becomes `__REVOKE__`
//! ```
//!
//! # Steps
//! 1. Whoever wants the lock finds the holder's node ([`Mutex::participants`](super::Mutex::participants))
//!    and writes the word into it: [`revoke`], or [`Mutex::revoke_holder`](super::Mutex::revoke_holder).
//! 2. A holder that heeds it awaits [`Guard::revocation`](crate::Guard::revocation), which reads and
//!    watches its node. It ends its work in order, and releases.
//!
//! # Guarantees
//! A request, not an order: nothing is taken from a holder that does not listen. A word that was written
//! before the holder listens is heard as well, and one for a holder that has gone reaches nobody else,
//! since the next one has another node. What the node said of its owner is overwritten. One watch event
//! at a holder that listens, one more when it releases; and one at whoever waits right behind it, who
//! looks again and waits on.
//!
//! # When things break
//! - Disconnected: the request is repeated, and a holder that listens hears it after the reconnect. Asking
//!   twice is the same as asking once.
//! - The session of the holder over, or its node deleted: `revocation` ends with
//!   [`RecipeError::Lost`](crate::RecipeError::Lost), and [`revoke`] says that there is nobody to ask.
//! - A future dropped: the word is written or not; a holder that stops listening leaves a watch, which
//!   fires when it releases.

use ironkeeper_client::{Client, ErrorKind, Version};

use crate::error::Result;
use crate::guard::REVOKE_MESSAGE;
use crate::place::patient;

/// Asks whoever owns the node `path` to give it back. Holders heed it if they await
/// [`Guard::revocation`](crate::Guard::revocation), or as Curator's revocable mutexes do. Says whether
/// there was such a node.
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
