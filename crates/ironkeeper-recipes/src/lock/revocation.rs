//! Asking a holder to give back what it holds.

use ironkeeper_client::{Client, ErrorKind, Version};

use crate::error::Result;
use crate::guard::REVOKE_MESSAGE;
use crate::place::patient;

/// Asks whoever owns the node `path` to give it back. Holders heed it if they await
/// [`Guard::revocation`](crate::Guard::revocation), or as Curator's revocable mutexes do. Says whether
/// there was such a node.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let running = ironkeeper_testing::TestServer::start()?;
/// # let server = running.connect_string();
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::{self, Mutex};
///
/// let client = Client::connect(&server).await?;
/// let guard = Mutex::new(&client, "/locks/report").lock().await?;
/// lock::revoke(&client, guard.path()).await?;
/// guard.revocation().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub async fn revoke(client: &Client, path: &str) -> Result<bool> {
    match client.retry(&patient(), || client.set(path, REVOKE_MESSAGE, Version::Any)).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
        Err(error) => Err(error.into()),
    }
}
