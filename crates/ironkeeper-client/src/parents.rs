//! Nodes together with those above or below them, and nodes that may or may not be there.

use std::collections::VecDeque;

use ironkeeper_proto::{Stat, path};

use crate::chroot::Chroot;
use crate::client::{Client, Version};
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Result};
use crate::reply::Reply;

/// Requests under way at a time while a subtree is deleted.
const WINDOW: usize = 256;

impl Client {
    /// Creates all nodes above `path` that are missing.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_parents("/a/b/c").await?;
    ///     assert!(client.exists("/a/b").await?.is_some());
    ///     assert!(client.exists("/a/b/c").await?.is_none());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "ensure_path")]
    #[doc(alias = "mkdirs")]
    #[doc(alias = "creatingParentsIfNeeded")]
    pub async fn create_parents(&self, path: &str) -> Result<()> {
        self.create_parents_with(path, &CreateOptions::default()).await
    }

    /// Like [`Client::create_parents`], with a choice of what they are: containers go away by
    /// themselves when their last child has gone.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_parents_with("/locks/report/1", &CreateMode::Container.into()).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "creatingParentContainersIfNeeded")]
    pub async fn create_parents_with(&self, path: &str, options: &CreateOptions) -> Result<()> {
        'again: loop {
            // From below: mostly all or all but one of them are there.
            let mut missing = Vec::new();
            let mut above = path::parent(path);
            while let Some(at) = above.filter(|at| *at != "/") {
                match self.create_with(at, "", options).await {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::NodeExists => break,
                    Err(error) if error.kind() == ErrorKind::NoNode => missing.push(at),
                    Err(error) => return Err(error),
                }
                above = path::parent(at);
            }
            for at in missing.into_iter().rev() {
                match self.create_with(at, "", options).await {
                    // One that was there a moment ago is gone, as an empty container goes.
                    Err(error) if error.kind() == ErrorKind::NoNode && !is_child_of_root(at) => {
                        continue 'again;
                    }
                    Err(error) if error.kind() != ErrorKind::NodeExists => return Err(error),
                    _ => {}
                }
            }
            return Ok(());
        }
    }

    /// Creates the node that this handle takes for the root, and those above it.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181/some/app").await?;
    ///     client.create_chroot().await?;
    ///     client.create("/x", "", CreateMode::Persistent).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn create_chroot(&self) -> Result<()> {
        let mut outside = self.clone();
        outside.chroot = Chroot::default();
        // Everything above a child of the chroot.
        outside.create_parents(&self.chroot.to_server("/child")).await
    }

    /// Creates a node, and the nodes above it that are missing.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_recursive("/a/b/c", "data", CreateMode::Ephemeral).await?;
    ///     assert_eq!(client.get("/a/b/c").await?.data, "data");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "creatingParentsIfNeeded")]
    #[doc(alias = "makepath")]
    #[doc(alias = "ensure_path")]
    pub async fn create_recursive(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> Result<Created> {
        let (data, options) = (data.as_ref(), options.into());
        loop {
            match self.create_with(path, data, &options).await {
                // In a loop: a parent may be deleted again in between.
                Err(error) if error.kind() == ErrorKind::NoNode && !is_child_of_root(path) => {
                    self.create_parents(path).await?;
                }
                other => return other,
            }
        }
    }

    /// Deletes a node and everything below it, and says how many nodes that were. Not one atomic
    /// change: others may see some of them gone and some not. Nodes that others create meanwhile are
    /// deleted too.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_recursive("/a/b/c", "", CreateMode::Persistent).await?;
    ///     assert_eq!(client.delete_recursive("/a").await?, 3);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "deletingChildrenIfNeeded")]
    #[doc(alias = "deleteall")]
    #[doc(alias = "rmr")]
    pub async fn delete_recursive(&self, path: &str) -> Result<u64> {
        self.refuse_root(path)?;
        let mut deleted = 0;
        loop {
            deleted += self.delete_children(path).await?;
            match self.delete(path, Version::Any).await {
                Ok(()) => return Ok(deleted + 1),
                Err(error) if error.kind() == ErrorKind::NotEmpty => {}
                // Somebody else was faster with the last one.
                Err(error) if error.kind() == ErrorKind::NoNode && deleted > 0 => {
                    return Ok(deleted);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes everything below a node, and says how many nodes that were.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_recursive("/a/b/c", "", CreateMode::Persistent).await?;
    ///     assert_eq!(client.delete_children("/a").await?, 2);
    ///     assert!(client.exists("/a").await?.is_some());
    ///     Ok(())
    /// }
    /// ```
    pub async fn delete_children(&self, path: &str) -> Result<u64> {
        self.refuse_root(path)?;
        let mut deleted = 0;
        loop {
            let mut below = Vec::new();
            let mut walk = self.walk(path);
            while let Some(node) = walk.next().await {
                below.push(node?.path);
            }
            if below.len() <= 1 {
                return Ok(deleted);
            }
            // A breadth-first walk has parents before children; the node itself comes first.
            let mut under_way: VecDeque<Reply<()>> = VecDeque::new();
            for victim in below[1..].iter().rev() {
                if under_way.len() == WINDOW
                    && let Some(reply) = under_way.pop_front()
                {
                    deleted += gone(reply.await)?;
                }
                under_way.push_back(self.delete(victim, Version::Any));
            }
            for reply in under_way {
                deleted += gone(reply.await)?;
            }
        }
    }

    /// The root of the whole tree holds what the server itself needs.
    fn refuse_root(&self, path: &str) -> Result<()> {
        Client::check_path(path)?;
        if self.chroot.to_server(path) == "/" {
            let error = Error::at(ErrorKind::InvalidArgument, path);
            return Err(error.with_detail("the root cannot be deleted"));
        }
        Ok(())
    }

    /// Creates a node, or sets its data if it is there.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.create_or_set("/n", "1", CreateMode::Persistent).await?.version, 0);
    ///     assert_eq!(client.create_or_set("/n", "2", CreateMode::Persistent).await?.version, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "orSetData")]
    #[doc(alias = "upsert")]
    pub async fn create_or_set(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> Result<Stat> {
        let (data, options) = (data.as_ref(), options.into());
        loop {
            match self.create_with(path, data, &options).await {
                Ok(created) => return Ok(created.stat),
                Err(error) if error.kind() == ErrorKind::NodeExists => {}
                Err(error) => return Err(error),
            }
            match self.set(path, data, Version::Any).await {
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                other => return other,
            }
        }
    }

    /// Sets the data of a node, or creates it if it is missing: like [`Client::create_or_set`], but
    /// faster where the node is mostly there.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.set_or_create("/n", "1", CreateMode::Persistent).await?;
    ///     assert_eq!(client.set_or_create("/n", "2", CreateMode::Persistent).await?.version, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "upsert")]
    pub async fn set_or_create(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> Result<Stat> {
        let data = data.as_ref();
        match self.set(path, data, Version::Any).await {
            Err(error) if error.kind() == ErrorKind::NoNode => {
                self.create_or_set(path, data, options).await
            }
            other => other,
        }
    }
}

/// Counts a deletion. A node that is gone already or that got new children is left to the next look.
/// Above it there is nothing to create: if its parent is missing, that is the chroot.
fn is_child_of_root(path: &str) -> bool {
    path::parent(path).is_none_or(|parent| parent == "/")
}

fn gone(deleted: Result<()>) -> Result<u64> {
    match deleted {
        Ok(()) => Ok(1),
        Err(error) if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NotEmpty) => Ok(0),
        Err(error) => Err(error),
    }
}
