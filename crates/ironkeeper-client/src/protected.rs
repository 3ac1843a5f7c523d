//! Creates that survive a lost reply.
//!
//! A sequential create whose reply is lost may have made a node whose name nobody knows. So the name
//! gets a mark that is unique: `_c_<uuid>-` in front, exactly as Curator does it, by which the node is
//! found again. Before the search the server is asked to catch up (`sync`): after a reconnect to
//! another server an old list might not have the node yet, and it would be created twice.
//!
//! Steps: create; after a loss that leaves the outcome open: sync, list the parent's children, look for
//! the mark; found: that is the node; else create again.

use ironkeeper_proto::path;
use tokio::runtime::Handle;

use crate::client::{Client, Version};
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Happened, Result};
use crate::retry::{Retries, RetryPolicy};

/// What Curator puts in front of the mark.
const PREFIX: &str = "_c_";

impl Client {
    /// Creates a node exactly once, even if the connection breaks before the reply arrives. Its name
    /// gets a unique mark in front, as Curator's protected creates do: `/locks/n-` becomes something
    /// like `/locks/_c_<uuid>-n-0000000007`.
    ///
    /// If the future is dropped before it is done, the node is removed again in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let running = ironkeeper_testing::TestServer::start()?;
    /// # let server = running.connect_string();
    /// use std::time::Duration;
    /// use ironkeeper_client::{Client, CreateMode, RetryPolicy};
    ///
    /// let client = Client::connect(&server).await?;
    /// client.create("/locks", "", CreateMode::Container).await?;
    /// let policy = RetryPolicy::exponential(Duration::from_millis(100), 5);
    /// let mode = CreateMode::EphemeralSequential;
    /// let created = client.create_protected("/locks/n-", "", mode, &policy).await?;
    /// assert!(created.path.starts_with("/locks/_c_"));
    /// assert!(created.path.ends_with("-n-0000000000"));
    /// # Ok(()) }
    /// ```
    pub async fn create_protected(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
        policy: &RetryPolicy,
    ) -> Result<Created> {
        let (data, options) = (data.as_ref(), options.into());
        options.check(path)?;
        let Some(parent) = path::parent(path) else {
            return Err(Error::at(ErrorKind::InvalidArgument, path).with_detail("the root"));
        };
        let mark = format!("{PREFIX}{}-", self.random_uuid());
        let slash = if parent == "/" { "" } else { "/" };
        let marked = format!("{parent}{slash}{mark}{}", path::name(path));
        let runtime = Handle::try_current().ok();
        let mut cleanup = Cleanup { client: self, parent, mark: &mark, armed: false, runtime };
        let mut retries = Retries::new(self, policy);
        // Whether a node may be there whose name is not known.
        let mut in_doubt = false;
        loop {
            let attempt = if in_doubt {
                self.find_marked(parent, &mark).await
            } else {
                cleanup.armed = true;
                self.create_with(&marked, data, &options).await.map(Some)
            };
            let error = match attempt {
                Ok(Some(created)) => {
                    cleanup.armed = false;
                    return Ok(created);
                }
                Ok(None) => {
                    in_doubt = false;
                    continue;
                }
                Err(error) => error,
            };
            in_doubt |= error.happened() == Happened::Maybe;
            if !error.is_retriable() {
                cleanup.armed = in_doubt && !error.is_session_over();
                return Err(error);
            }
            // If the policy gives up while in doubt, the clean-up removes what may be there.
            cleanup.armed = in_doubt;
            retries.pause(error).await?;
        }
    }

    /// The node with the mark, if there is one.
    async fn find_marked(&self, parent: &str, mark: &str) -> Result<Option<Created>> {
        // Both take their place in line now, so the list is at least as new as the sync.
        let (synced, children) = (self.sync(parent), self.children(parent));
        synced.await?;
        let children = match children.await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            other => other?,
        };
        let Some(name) = children.iter().find(|name| name.starts_with(mark)) else {
            return Ok(None);
        };
        let slash = if parent == "/" { "" } else { "/" };
        let path = format!("{parent}{slash}{name}");
        Ok(self.exists(&path).await?.map(|stat| Created { path, stat }))
    }
}

/// Removes the node of a create that nobody waits for any more.
struct Cleanup<'a> {
    client: &'a Client,
    parent: &'a str,
    mark: &'a str,
    armed: bool,
    /// The future may be dropped outside of the runtime it was polled in.
    runtime: Option<Handle>,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Without a runtime there is nobody to do it. The driver's ends with it, the session with the
        // driver, and ephemeral nodes with the session.
        let Some(runtime) = self.runtime.take() else { return };
        let (client, parent, mark) =
            (self.client.clone(), self.parent.to_owned(), self.mark.to_owned());
        runtime.spawn(async move {
            let forever = RetryPolicy::forever(std::time::Duration::from_millis(200));
            let removed = client
                .retry(&forever, async || match client.find_marked(&parent, &mark).await? {
                    Some(created) => client.delete(&created.path, Version::Any).await,
                    None => Ok(()),
                })
                .await;
            if let Err(error) = removed
                && error.kind() != ErrorKind::NoNode
            {
                tracing::debug!(%error, "an abandoned protected create could not be cleaned up");
            }
        });
    }
}
