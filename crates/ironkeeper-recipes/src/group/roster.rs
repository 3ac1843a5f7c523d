//! Those who are known, and which of them live. What heartbeats and progress reports have in common.
//!
//! ```text
//! /path                      container
//!   known/anna               persistent: what anna has said last; stays when she dies
//!   alive/anna               ephemeral: she lives
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version, Zxid};

use crate::cache::TreeCache;
use crate::error::{RecipeError, Result};
use crate::escape::{from_name, to_name};
use crate::node::PersistentNode;
use crate::place::{join, name_of, patient};

/// Our own entry. Dropping it leaves what we have said last, as our death would.
#[derive(Debug)]
pub(super) struct OwnEntry {
    id: String,
    alive: PersistentNode,
    known: PersistentNode,
}

impl OwnEntry {
    /// Enters a name, which need not be new, and waits until it is free.
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
        // In this order: whoever is known and not alive counts as dead.
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

    /// What the living node holds.
    pub(super) fn alive(&self) -> &PersistentNode {
        &self.alive
    }

    /// What stays.
    pub(super) fn known(&self) -> &PersistentNode {
        &self.known
    }

    /// Ends our life and leaves what we have said.
    pub(super) async fn end(self) -> Result<()> {
        self.known.close().await?;
        self.alive.close().await
    }

    /// Ends our life and removes what we have said, so that nobody takes us for dead.
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

/// Somebody's entry, as seen by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What it has said last, if it is known.
    pub(super) known: Option<Bytes>,
    /// If it lives.
    pub(super) alive: Option<Life>,
}

/// The node that says that somebody lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) sign: Bytes,
    /// Tells one life from the next, whose node may look the same.
    pub(super) since: Zxid,
}

/// All entries in a cache, by their names.
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
