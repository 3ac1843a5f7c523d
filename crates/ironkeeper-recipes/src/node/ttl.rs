//! A TTL node that its owner renews. Curator's `PersistentTtlNode`.
//!
//! # On the tree
//! ```text
//! /announcements/anna                          TTL node: the node itself
//!   touch                                      TTL node, written periodically
//! ```
//!
//! # Steps
//! 1. Maintain the node as [`PersistentNode`] does.
//! 2. Write the child `touch` twice per TTL. As long as the child exists, the node does not expire,
//!    because the server expires nodes without children only.
//!
//! # Guarantees
//! The node, unlike an ephemeral node, outlives the session of its owner by one to two TTLs after
//! the last renewal, so that a restart has no effect on it. The same holds after [`TtlNode`] is
//! dropped. Several owners may renew one node. Renewals cost no watch event; a change of the node
//! itself costs one for each owner.
//!
//! # When things break
//! - The connection is lost: no renewals, and one immediately after the reconnect; a node that has
//!   expired meanwhile is created again.
//! - The session has ended: the renewals end, and the node expires later.
//! - The server must allow TTL nodes (`extendedTypesEnabled=true`); otherwise [`TtlNode::created`]
//!   fails with [`ErrorKind::Unimplemented`].

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, CreateOptions, ErrorKind, Version};
use tokio::time::MissedTickBehavior;

use crate::cache::Task;
use crate::error::{RecipeError, Result};
use crate::node::persistent::{Creations, PersistentNode};
use crate::place::{join, patient};

/// The child that is written to renew the node.
const TOUCH: &str = "touch";

/// The number of renewals per TTL.
const RENEWALS: u32 = 2;

/// A TTL node that is renewed in the background.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::node::TtlNode;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let node = TtlNode::start(&client, "/announcements/anna", Duration::from_secs(60), "here")?;
///     node.created().await?;
///     drop(node);
///     // It is there for a minute or two.
///     assert_eq!(client.get("/announcements/anna").await?.data, "here");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "PersistentTtlNode")]
pub struct TtlNode {
    node: PersistentNode,
    _renewals: Task,
}

impl TtlNode {
    /// Starts to maintain and to renew a node in the background.
    pub fn start(
        client: &Client,
        path: impl Into<String>,
        ttl: Duration,
        data: impl Into<Bytes>,
    ) -> Result<TtlNode> {
        let path = path.into();
        if ttl < Duration::from_millis(RENEWALS.into()) {
            return Err(RecipeError::Misuse(format!(
                "{path}: {ttl:?} is too short a time to live"
            )));
        }
        let node = PersistentNode::builder(client, &path)
            .mode(CreateMode::PersistentWithTtl)
            .ttl(ttl)
            .data(data)
            .left_behind()
            .start();
        let renewals = Task::spawn({
            let (client, creations) = (client.clone(), node.creations());
            async move {
                let Err(why) = renew(&client, &path, ttl, creations).await;
                tracing::debug!(path, error = %why, "node no longer renewed");
            }
        });
        Ok(TtlNode { node, _renewals: renewals })
    }

    /// Returns the path of the node.
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// Waits until the node exists. Returns an error if it cannot be created.
    pub async fn created(&self) -> Result<()> {
        self.node.created().await.map(drop)
    }

    /// Returns the wanted data of the node.
    pub fn data(&self) -> Bytes {
        self.node.data()
    }

    /// Changes the data of the node, and waits until it is written.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(data).await
    }
}

/// Writes the child periodically, and immediately after each creation of the node.
async fn renew(
    client: &Client,
    path: &str,
    ttl: Duration,
    mut creations: Creations,
) -> Result<std::convert::Infallible> {
    let touch = join(path, TOUCH);
    let options = CreateOptions::new(CreateMode::PersistentWithTtl).ttl(ttl);
    let mut ticks = tokio::time::interval(ttl / RENEWALS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    creations.next().await?;
    loop {
        match client.retry(&patient(), || client.set(&touch, "", Version::Any)).await {
            Err(error) if error.kind() == ErrorKind::NoNode => {
                match client.retry(&patient(), || client.create_with(&touch, "", &options)).await {
                    // The node itself was deleted, and will be created again; or another owner
                    // created the child first.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NodeExists) => {}
                    other => drop(other?),
                }
            }
            other => drop(other?),
        }
        tokio::select! {
            // The tick has priority: the renewal is on time however often other clients delete the
            // node.
            biased;
            _ = ticks.tick() => {}
            created = creations.next() => drop(created?),
        }
    }
}
