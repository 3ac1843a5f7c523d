//! What the tree will be once all proposed transactions are applied.
//!
//! A write is judged against this, not against the tree, because many proposals may be on their way
//! to the disk at once. An entry holds the latest pending facts of one path and leaves when the
//! transaction that set it is applied.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use ironkeeper_proto::stat::StatPersisted;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::{AclList, Tree, digest};

use crate::database::Hasher;

/// Everything a decision about a node may depend on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub stat: StatPersisted,
    pub children: u32,
    pub acl: Arc<AclList>,
    pub prefix_crc: u32,
    pub data_len: usize,
}

#[derive(Clone, Debug)]
struct Pending {
    zxid: Zxid,
    /// `None`: the node will be gone.
    facts: Option<Facts>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Overlay {
    nodes: HashMap<Arc<str>, Pending, Hasher>,
    /// Which paths each transaction touched, oldest first.
    touched: VecDeque<(Zxid, Arc<str>)>,
    /// The digest of the tree after everything proposed.
    digest: u64,
    /// While a multi is judged: what to restore if it fails.
    undo: Option<Undo>,
}

#[derive(Debug)]
struct Undo {
    nodes: Vec<(Arc<str>, Option<Pending>)>,
    touched: usize,
    digest: u64,
}

impl Overlay {
    pub fn new(tree_digest: u64, hasher: Hasher) -> Overlay {
        Overlay {
            nodes: HashMap::with_hasher(hasher),
            touched: VecDeque::new(),
            digest: tree_digest,
            undo: None,
        }
    }

    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The node as it will be.
    pub fn find(&self, tree: &Tree, path: &str) -> Option<Facts> {
        if let Some(pending) = self.nodes.get(path) {
            return pending.facts.clone();
        }
        tree.find(path).map(|node| Facts {
            stat: node.persisted(),
            children: node.child_count(),
            acl: Arc::clone(node.acl()),
            prefix_crc: node.prefix_crc(),
            data_len: node.data().map_or(0, <[u8]>::len),
        })
    }

    /// Records what `zxid` makes of a node; `before` is what [`Overlay::find`] said.
    pub fn put(&mut self, path: &str, zxid: Zxid, before: Option<&Facts>, after: Option<Facts>) {
        if digest::counts(path) {
            // The root's path is the empty string as far as digests go; its prefix is kept so.
            let of = |facts: &Facts| u64::from(digest::node_digest(facts.prefix_crc, &facts.stat));
            self.digest = self
                .digest
                .wrapping_sub(before.map_or(0, of))
                .wrapping_add(after.as_ref().map_or(0, of));
        }
        let pending = Pending { zxid, facts: after };
        let (key, old) = match self.nodes.get_key_value_mut(path) {
            Some((key, slot)) => (Arc::clone(key), Some(std::mem::replace(slot, pending))),
            None => {
                let key: Arc<str> = Arc::from(path);
                self.nodes.insert(Arc::clone(&key), pending);
                (key, None)
            }
        };
        if let Some(undo) = &mut self.undo {
            undo.nodes.push((Arc::clone(&key), old));
        }
        self.touched.push_back((zxid, key));
    }

    /// From here on changes can be taken back.
    pub fn begin(&mut self) {
        let undo = Undo { nodes: Vec::new(), touched: self.touched.len(), digest: self.digest };
        self.undo = Some(undo);
    }

    pub fn keep(&mut self) {
        self.undo = None;
    }

    pub fn take_back(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        for (path, old) in undo.nodes.into_iter().rev() {
            match old {
                Some(pending) => drop(self.nodes.insert(path, pending)),
                None => drop(self.nodes.remove(&path)),
            }
        }
        self.touched.truncate(undo.touched);
        self.digest = undo.digest;
    }

    /// Everything up to `zxid` is in the tree now.
    pub fn applied(&mut self, zxid: Zxid) {
        while let Some((first, _)) = self.touched.front() {
            if *first > zxid {
                break;
            }
            let (_, path) = self.touched.pop_front().expect("front was just seen");
            if self.nodes.get(&path).is_some_and(|pending| pending.zxid <= zxid) {
                self.nodes.remove(&path);
            }
        }
    }

    /// The plain ephemerals a session will own once all pending transactions are applied.
    pub fn ephemerals(&self, tree: &Tree, session: SessionId) -> Vec<String> {
        let mut paths: Vec<String> = tree
            .ephemerals(session)
            .filter(|path| match self.nodes.get(path.as_str()) {
                None => true,
                Some(pending) => is_owner(pending, session),
            })
            .collect();
        let in_tree = |path: &str| {
            tree.find(path).is_some_and(|node| node.persisted().ephemeral_owner == session.0)
        };
        let mut added: Vec<String> = self
            .nodes
            .iter()
            .filter(|(path, pending)| is_owner(pending, session) && !in_tree(path))
            .map(|(path, _)| path.to_string())
            .collect();
        added.sort_unstable();
        paths.append(&mut added);
        paths
    }
}

fn is_owner(pending: &Pending, session: SessionId) -> bool {
    pending.facts.as_ref().is_some_and(|facts| facts.stat.ephemeral_owner == session.0)
}
