//! Deletes that are retried in the background until they succeed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::client::{Client, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::retry::RetryPolicy;

/// The pause between attempts; every attempt waits for a connection first.
const PAUSE: Duration = Duration::from_millis(200);

/// A delete that runs in the background. It is a future that need not be awaited. Created by
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
    /// Deletes a node regardless of connection losses: the client repeats the delete in the
    /// background until it succeeds, fails with an error that is not retriable, or the session
    /// ends. If the node does not exist, the delete has succeeded.
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
        // The first attempt is queued now, not when the task first runs.
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
            // The runtime is shutting down.
            .map(|ended| ended.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed))))
    }
}
