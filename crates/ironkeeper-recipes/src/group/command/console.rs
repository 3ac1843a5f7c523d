//! The sender of commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode, ErrorKind};

use super::broadcast::{Broadcast, delete_all};
use super::{MARK, Paths};
use crate::error::{RecipeError, Result};
use crate::escape::from_name;
use crate::place::{create_containers, ensure_persistent, join};
use crate::reads::{children_or_none, get_children, get_or_none};
use crate::receipt::{Receipts, refusal};

/// A sender of commands.
#[derive(Clone, Debug)]
pub struct Console {
    client: Client,
    path: String,
    paths: Paths,
    receipts: Arc<Receipts>,
}

impl Console {
    /// Opens a console, and deletes the boxes that consoles with an ended session have left.
    pub async fn open(client: &Client, path: impl Into<String>) -> Result<Console> {
        let path = path.into();
        let paths = Paths::below(&path);
        let receipts = Arc::new(Receipts::new(join(&path, "receipts")));
        let console = Console { client: client.clone(), path, paths, receipts };
        console.sweep().await?;
        Ok(console)
    }

    /// Returns the path of the commands.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the names of the listeners, sorted.
    pub async fn listeners(&self) -> Result<Vec<String>> {
        let names = children_or_none(&self.client, &self.paths.listeners).await?;
        let mut ids: Vec<String> = names.iter().filter_map(|name| from_name(name)).collect();
        ids.sort();
        Ok(ids)
    }

    /// Sends a command to all listeners. The command stays until the [`Broadcast`] is closed or
    /// dropped.
    pub async fn send(&self, command: impl AsRef<[u8]>) -> Result<Broadcast> {
        let (client, command, mark) = (&self.client, command.as_ref(), self.client.random_uuid());
        let node = join(&self.paths.commands, &format!("{mark}{MARK}"));
        // From here on, dropping this future withdraws the command.
        let mut sent = Broadcast::new(client, &self.paths, mark);
        loop {
            let sending = self.receipts.commit(client, |once| {
                let once = once.create(&sent.answers, "", CreateMode::Persistent);
                once.create(&node, command, CreateMode::EphemeralSequential)
            });
            match sending.await {
                Ok(()) => break,
                Err(error) if refusal(&error) == Some(ErrorKind::NoNode) => {
                    ensure_persistent(client, &self.paths.answers).await?;
                    create_containers(client, &node).await?;
                }
                Err(error) => return Err(error),
            }
        }
        sent.expected = self.older_listeners(&sent).await?;
        Ok(sent)
    }

    /// Returns the listeners that had joined when the command was sent, and have not left.
    async fn older_listeners(&self, sent: &Broadcast) -> Result<BTreeSet<String>> {
        let client = &self.client;
        let gone = || RecipeError::NodeGone { path: sent.answers.clone() };
        // One transaction created the box and the command, so both have this czxid.
        let sent_at = get_or_none(client, &sent.answers).await?.ok_or_else(gone)?.stat.czxid;
        let names = children_or_none(client, &self.paths.listeners).await?;
        let read = names.iter().map(String::as_str);
        let nodes = get_children(client, &self.paths.listeners, read).await?;
        let listeners = names.iter().zip(nodes);
        let older = listeners.filter_map(|(name, node)| {
            node.filter(|node| node.stat.czxid < sent_at).and_then(|_| from_name(name))
        });
        Ok(older.collect())
    }

    /// Deletes boxes without a command. The boxes are listed before the commands: if the command of
    /// a listed box is not in the second list, it was deleted.
    async fn sweep(&self) -> Result<()> {
        let boxes = children_or_none(&self.client, &self.paths.answers).await?;
        if boxes.is_empty() {
            return Ok(());
        }
        let commands = children_or_none(&self.client, &self.paths.commands).await?;
        for left in boxes {
            if !commands.iter().any(|command| command.starts_with(&left)) {
                delete_all(&self.client, &join(&self.paths.answers, &left)).await?;
            }
        }
        Ok(())
    }
}
