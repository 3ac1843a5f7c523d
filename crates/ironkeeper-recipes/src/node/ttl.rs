//! A node that lives as long as somebody renews it. Curator's `PersistentTtlNode`.
//!
//! # On the tree
//! ```text
//! /announcements/anna                          persistent with a time to live: the node
//!   touch                                      persistent with a time to live: written again and again
//! ```
//!
//! # Steps
//! 1. Keep the node as [`PersistentNode`] does.
//! 2. Write the child `touch` twice in its time to live. As long as it is there, the node has a child,
//!    and a node with children does not expire.
//!
//! # Guarantees
//! Unlike an ephemeral node it outlives the session of its owner: for one to two times to live after the
//! last renewal, so that a restart goes unnoticed. It does so after [`TtlNode`] is dropped, too. Several
//! owners may renew one node. Renewals cost no watch event; a change of the node itself costs one at each
//! owner.
//!
//! # When things break
//! - Disconnected: no renewal, and after the reconnect one at once; a node that has expired meanwhile is
//!   created again.
//! - Session over: renewals end, and with them, later, the node.
//! - The server must allow such nodes (`extendedTypesEnabled=true`); else [`TtlNode::created`] fails
//!   with [`ErrorKind::Unimplemented`].

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

/// Renewals in one time to live.
const RENEWALS: u32 = 2;

/// A node with a time to live that is renewed.
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
    /// Begins to keep and to renew a node in the background.
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
                tracing::debug!(path, %why, "node is not renewed any more");
            }
        });
        Ok(TtlNode { node, _renewals: renewals })
    }

    /// The path of the node.
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// Waits until the node is there. An error if that will never be.
    pub async fn created(&self) -> Result<()> {
        self.node.created().await.map(drop)
    }

    /// What the node is to hold.
    pub fn data(&self) -> Bytes {
        self.node.data()
    }

    /// Changes what the node is to hold, and waits until it does.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(data).await
    }
}

/// Writes the child again and again, and at once whenever the node was created.
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
                    // The node itself is gone, and will be created again; or another owner was first.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NodeExists) => {}
                    other => drop(other?),
                }
            }
            other => drop(other?),
        }
        tokio::select! {
            // However often others delete and create the node, it is written in time.
            biased;
            _ = ticks.tick() => {}
            created = creations.next() => drop(created?),
        }
    }
}
