//! Deletes that go on in the background until they are done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::client::{Client, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::retry::RetryPolicy;

/// Between tries; every one of them waits for a connection first.
const PAUSE: Duration = Duration::from_millis(200);

/// A delete under way in the background. A future, which need not be awaited. Made by
/// [`Client::delete_guaranteed`], with an example there.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, GuaranteedDelete};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/n", "", CreateMode::Persistent).await?;
///     // Goes on in the background if the future is dropped.
///     let _: GuaranteedDelete = client.delete_guaranteed("/n", -1);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct GuaranteedDelete {
    task: JoinHandle<Result<()>>,
}

impl Client {
    /// Deletes a node, whatever happens to the connection: if it breaks, the delete is repeated in the
    /// background until it is done, fails for good, or the session is over. A node that is gone already
    /// is deleted.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/lock", "", CreateMode::Persistent).await?;
    ///     client.delete_guaranteed("/lock", Version::Any).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "guaranteed")]
    pub fn delete_guaranteed(&self, path: &str, version: impl Into<Version>) -> GuaranteedDelete {
        let version = version.into();
        // The first try takes its place in line now, not when the task first runs.
        let first = self.delete(path, version);
        let (client, path) = (self.clone(), path.to_owned());
        let task = self.runtime().spawn(async move {
            match quietly(first.await) {
                Err(error) if error.is_retriable() => {}
                other => return other,
            }
            let forever = RetryPolicy::forever(PAUSE);
            client
                .retry(&forever, || {
                    let again = client.delete(&path, version);
                    async move { quietly(again.await) }
                })
                .await
        });
        GuaranteedDelete { task }
    }
}

fn quietly(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(()),
        other => other,
    }
}

impl Future for GuaranteedDelete {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.task)
            .poll(cx)
            // The runtime is going down.
            .map(|ended| ended.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed))))
    }
}
