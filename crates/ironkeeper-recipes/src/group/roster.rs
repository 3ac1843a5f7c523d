//! The known participants and which of them are alive. Heartbeats and progress reports use it.
//!
//! ```text
//! /path                      container
//!   known/anna               persistent: the last data of anna; stays after her session
//!   alive/anna               ephemeral: anna's session is open
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version, Zxid};

use crate::cache::TreeCache;
use crate::error::{RecipeError, Result};
use crate::escape::{from_name, to_name};
use crate::node::PersistentNode;
use crate::place::{join, name_of, patient};

/// The entry of this participant. Dropping it keeps the persistent node, as the end of the session
/// does.
#[derive(Debug)]
pub(super) struct OwnEntry {
    id: String,
    alive: PersistentNode,
    known: PersistentNode,
}

impl OwnEntry {
    /// Creates both nodes for a name. If the name is in use, waits until it is free; an existing
    /// persistent node is reused.
    pub(super) async fn enter(
        client: &Client,
        path: &str,
        id: &str,
        said: Bytes,
        sign: &'static str,
    ) -> Result<OwnEntry> {
        if id.is_empty() {
            return Err(RecipeError::Misuse(format!("{path}: nobody can have an empty name")));
        }
        let name = to_name(id);
        let alive = PersistentNode::builder(client, join(&join(path, "alive"), &name));
        let alive = alive.data(sign).start();
        // `alive` is created first: a name with only a `known` node counts as dead.
        alive.created().await?;
        let known = PersistentNode::builder(client, join(&join(path, "known"), &name))
            .data(said)
            .mode(CreateMode::Persistent)
            .left_behind()
            .start();
        known.created().await?;
        Ok(OwnEntry { id: id.to_owned(), alive, known })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the ephemeral node.
    pub(super) fn alive(&self) -> &PersistentNode {
        &self.alive
    }

    /// Returns the persistent node.
    pub(super) fn known(&self) -> &PersistentNode {
        &self.known
    }

    /// Deletes the ephemeral node and keeps the persistent one.
    pub(super) async fn end(self) -> Result<()> {
        self.known.close().await?;
        self.alive.close().await
    }

    /// Deletes the persistent node, then the ephemeral one, so that the participant never counts as
    /// dead.
    pub(super) async fn sign_off(self) -> Result<()> {
        let (client, known) = (self.known.client().clone(), self.known.path().to_owned());
        self.known.close().await?;
        match client.retry(&patient(), || client.delete(&known, Version::Any)).await {
            Err(error) if error.kind() != ErrorKind::NoNode => return Err(error.into()),
            _ => {}
        }
        self.alive.close().await
    }
}

/// The entry of a participant, as seen by other clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The data of the persistent node, if it exists.
    pub(super) known: Option<Bytes>,
    /// The ephemeral node, if it exists.
    pub(super) alive: Option<Life>,
}

/// The ephemeral node of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) sign: Bytes,
    /// The czxid, which differs between successive nodes with the same data.
    pub(super) since: Zxid,
}

/// Returns all entries in a cache, by their names.
pub(super) fn entries(cache: &TreeCache) -> BTreeMap<String, Entry> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for (part, is_alive) in [("known", false), ("alive", true)] {
        for node in cache.children(&join(cache.path(), part)) {
            let Some(id) = from_name(name_of(&node.path)) else { continue };
            let entry = entries.entry(id).or_insert(Entry { known: None, alive: None });
            if is_alive {
                entry.alive = Some(Life { sign: node.data.clone(), since: node.stat.czxid });
            } else {
                entry.known = Some(node.data.clone());
            }
        }
    }
    entries
}
