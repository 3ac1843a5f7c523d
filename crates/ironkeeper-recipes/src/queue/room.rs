//! Puts items into a queue, which may have a limit.
//!
//! With a limit, the transaction of a producer also writes the queue's node, conditional on the
//! version at which the producer read the number of items: of two producers that see the last free
//! slot, the server rejects one, which reads again. Producers that wait for room form a wait queue,
//! and only the first of them watches the queue.

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind};
use tokio::time::Instant;

use super::line::stand;
use crate::error::{RecipeError, Result};
use crate::place::{Place, ensure_persistent, join, patient};
use crate::reads::get_or_none;
use crate::receipt::{Receipts, refusal};

#[derive(Debug)]
pub(super) struct Door<'a> {
    pub(super) client: &'a Client,
    /// The queue's node is persistent, as in Curator: producers are serialized by its version.
    pub(super) path: &'a str,
    pub(super) putters: &'a str,
    pub(super) limit: Option<usize>,
    pub(super) receipts: &'a Receipts,
}

impl Door<'_> {
    /// Puts nodes in, in one transaction and in this order. Returns `false` if there was no room
    /// for all of them before the deadline.
    pub(super) async fn put(
        &self,
        base: &str,
        nodes: &[Bytes],
        deadline: Option<Instant>,
    ) -> Result<bool> {
        let (client, path) = (self.client, self.path);
        let item = join(path, base);
        let mode = CreateMode::PersistentSequential;
        let mut first_in_line: Option<Place> = None;
        loop {
            let mut unchanged = None;
            if let Some(limit) = self.limit {
                let Some(node) = get_or_none(client, path).await? else {
                    ensure_persistent(client, path).await?;
                    continue;
                };
                let count = usize::try_from(node.stat.num_children).unwrap_or(0);
                if count.saturating_add(nodes.len()) > limit {
                    let waiting = async {
                        if first_in_line.is_none() {
                            first_in_line = Some(stand(client, self.putters).await?);
                        } else {
                            self.wait_for_room(limit, nodes.len()).await?;
                        }
                        Ok::<_, RecipeError>(())
                    };
                    match deadline {
                        None => waiting.await?,
                        Some(deadline) => match tokio::time::timeout_at(deadline, waiting).await {
                            Ok(waited) => waited?,
                            Err(_) => return Ok(false),
                        },
                    }
                    continue;
                }
                unchanged = Some(node);
            }
            let put = self
                .receipts
                .commit(client, |mut once| {
                    if let Some(node) = &unchanged {
                        once = once.set(path, &node.data, node.stat.version);
                    }
                    nodes.iter().fold(once, |once, data| once.create(&item, data, mode))
                })
                .await;
            match put {
                Ok(()) => return Ok(true),
                Err(error) => match refusal(&error) {
                    Some(ErrorKind::NoNode) => ensure_persistent(client, path).await?,
                    // Another producer has changed the queue: read again.
                    Some(ErrorKind::BadVersion) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    async fn wait_for_room(&self, limit: usize, needed: usize) -> Result<()> {
        let client = self.client;
        match client.retry(&patient(), || client.children_and_watch(self.path)).await {
            Ok((names, _, watch)) if names.len().saturating_add(needed) > limit => {
                drop(watch.await?);
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NoNode => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
