//! Creates that are applied exactly once despite a lost reply.
//!
//! A sequential create whose reply is lost may have created a node with an unknown name. So the
//! name begins with a unique mark, `_c_<uuid>-`, exactly as in Curator, by which the client finds
//! the node. Before the search the client sends a `sync`: after a reconnect, the list of children
//! on another server might not contain the node yet, and the client would create a second one.
//!
//! Steps: create; after a loss with an unknown outcome: sync, list the children of the parent,
//! search for the mark. If it is found, the node is ours; otherwise create again.

use ironkeeper_proto::path;

use crate::client::{Client, Version};
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Happened, Result};
use crate::reply::Reply;
use crate::retry::{Retries, RetryPolicy};

/// Curator's prefix of the mark.
const PREFIX: &str = "_c_";

impl Client {
    /// Creates a node exactly once, even if the connection breaks before the reply arrives. The
    /// name begins with a unique mark, as with Curator's protection: `/locks/n-` becomes, for
    /// example, `/locks/_c_<uuid>-n-0000000007`.
    ///
    /// The first attempt is queued when this method is called. If the future is dropped before it
    /// completes, the node is deleted in the background.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{Client, CreateMode, RetryPolicy};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/locks", "", CreateMode::Container).await?;
    ///     let policy = RetryPolicy::exponential(Duration::from_millis(100), 5);
    ///     let mode = CreateMode::EphemeralSequential;
    ///     let created = client.create_protected("/locks/n-", "", mode, &policy).await?;
    ///     assert!(created.path.starts_with("/locks/_c_"));
    ///     assert!(created.path.ends_with("-n-0000000000"));
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "withProtection")]
    pub fn create_protected<'a>(
        &'a self,
        path: &'a str,
        data: impl AsRef<[u8]> + 'a,
        options: impl Into<CreateOptions>,
        policy: &RetryPolicy,
    ) -> impl Future<Output = Result<Created>> + 'a {
        let options = options.into();
        let retries = Retries::new(self, policy);
        // The first attempt is queued now, not when the future is first polled.
        let begun = options.check(path).and_then(|()| {
            let mark = Mark::new(self, path)?;
            let first = self.create_with(&mark.path, data.as_ref(), &options);
            Ok((mark, first))
        });
        async move {
            let (mark, first) = begun?;
            mark.create(first, data.as_ref(), &options, retries).await
        }
    }

    /// Returns the node with the mark, if it exists.
    async fn find_marked(&self, parent: &str, mark: &str) -> Result<Option<Created>> {
        // Both requests are queued now, so the list is at least as new as the sync.
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

/// A node that is found by its name even if the reply is lost. If the node may exist and was not
/// returned to the caller, dropping the `Mark` deletes it in the background.
struct Mark<'a> {
    client: &'a Client,
    parent: &'a str,
    /// The prefix of the node's name.
    mark: String,
    /// The path in the create request.
    path: String,
    armed: bool,
}

impl<'a> Mark<'a> {
    /// Creates the mark for a create that follows at once.
    fn new(client: &'a Client, path: &'a str) -> Result<Mark<'a>> {
        let Some(parent) = path::parent(path) else {
            return Err(Error::at(ErrorKind::InvalidArgument, path).with_detail("the root"));
        };
        let mark = format!("{PREFIX}{}-", client.random_uuid());
        let slash = if parent == "/" { "" } else { "/" };
        let path = format!("{parent}{slash}{mark}{}", path::name(path));
        Ok(Mark { client, parent, mark, path, armed: true })
    }

    /// Waits for the first attempt, and retries as needed.
    async fn create(
        mut self,
        first: Reply<Created>,
        data: &[u8],
        options: &CreateOptions,
        mut retries: Retries<'_>,
    ) -> Result<Created> {
        let mut attempt = first.await.map(Some);
        // Whether a node with an unknown name may exist.
        let mut in_doubt = false;
        loop {
            match attempt {
                Ok(Some(created)) => {
                    self.armed = false;
                    return Ok(created);
                }
                Ok(None) => in_doubt = false,
                Err(error) => {
                    in_doubt |= error.happened() == Happened::Maybe;
                    if !error.is_retriable() {
                        self.armed = in_doubt && !error.is_session_over();
                        return Err(error);
                    }
                    // If the policy gives up while in doubt, the drop deletes a node that may
                    // exist.
                    self.armed = in_doubt;
                    retries.pause(error).await?;
                }
            }
            attempt = if in_doubt {
                self.client.find_marked(self.parent, &self.mark).await
            } else {
                self.armed = true;
                self.client.create_with(&self.path, data, options).await.map(Some)
            };
        }
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (client, parent, mark) =
            (self.client.clone(), self.parent.to_owned(), std::mem::take(&mut self.mark));
        self.client.runtime().spawn(async move {
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
                tracing::debug!(path = parent, %error, "abandoned protected node not deleted");
            }
        });
    }
}
