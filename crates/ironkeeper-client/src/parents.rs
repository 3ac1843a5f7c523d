//! Operations on a node and its ancestors or descendants, and on nodes that may or may not exist.

use std::collections::VecDeque;

use ironkeeper_proto::{Stat, path};

use crate::chroot::Chroot;
use crate::client::{Client, Version};
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Result};
use crate::reply::Reply;

/// The number of requests in flight while a subtree is deleted.
const WINDOW: usize = 256;

impl Client {
    /// Creates all missing ancestors of `path`.
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

    /// Does the same as [`Client::create_parents`] with options for the ancestors: the server
    /// deletes containers after their last child.
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
            // Bottom-up: usually all ancestors, or all but one, exist.
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
                    // An ancestor that existed was deleted meanwhile, for example an empty
                    // container.
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

    /// Creates the node at this handle's chroot, and its ancestors.
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
        // All ancestors of a child of the chroot.
        outside.create_parents(&self.chroot.to_server("/child")).await
    }

    /// Creates a node and its missing ancestors.
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
                // In a loop, because another client may delete a parent in between.
                Err(error) if error.kind() == ErrorKind::NoNode && !is_child_of_root(path) => {
                    self.create_parents(path).await?;
                }
                other => return other,
            }
        }
    }

    /// Deletes a node and all its descendants, and returns the number of deleted nodes. This is not
    /// one atomic change: other clients may see a part of the subtree. Nodes that other clients
    /// create meanwhile are deleted too.
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
                // Another client has deleted the node itself.
                Err(error) if error.kind() == ErrorKind::NoNode && deleted > 0 => {
                    return Ok(deleted);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes all descendants of a node, and returns the number of deleted nodes.
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
            // A breadth-first walk returns parents before children; the first item is the node
            // itself.
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

    /// Rejects the root of the tree, which contains nodes that the server needs.
    fn refuse_root(&self, path: &str) -> Result<()> {
        Client::check_path(path)?;
        if self.chroot.to_server(path) == "/" {
            let error = Error::at(ErrorKind::InvalidArgument, path);
            return Err(error.with_detail("the root cannot be deleted"));
        }
        Ok(())
    }

    /// Creates a node, or sets its data if it exists.
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

    /// Sets the data of a node, or creates it if it does not exist: like [`Client::create_or_set`],
    /// but faster if the node usually exists.
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

/// Returns whether there is no ancestor to create. If the parent of such a node is missing, the
/// parent is the chroot.
fn is_child_of_root(path: &str) -> bool {
    path::parent(path).is_none_or(|parent| parent == "/")
}

/// Counts a deletion. A node that does not exist or has new children is left to the next pass.
fn gone(deleted: Result<()>) -> Result<u64> {
    match deleted {
        Ok(()) => Ok(1),
        Err(error) if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NotEmpty) => Ok(0),
        Err(error) => Err(error),
    }
}
