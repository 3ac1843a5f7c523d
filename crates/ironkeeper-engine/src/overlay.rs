//! The state of the tree after all proposed transactions are applied.
//!
//! A write is prepared against the overlay, not against the tree alone, because many proposals may
//! be in flight to the disk. An entry holds the latest pending change record of one path and is
//! removed when the transaction that set it is applied.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ironkeeper_proto::stat::StatPersisted;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::{AclList, Node, Tree, digest};

use crate::database::Hasher;

/// The change record of a node: everything that the preparation of a request may depend on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub stat: StatPersisted,
    pub children: u32,
    pub acl: Arc<AclList>,
    pub prefix_crc: u32,
    pub data_len: usize,
}

impl Facts {
    /// Returns the node's share of the tree's digest.
    pub fn digest(&self) -> u64 {
        // Digests treat the root's path as the empty string; its prefix is stored accordingly.
        u64::from(digest::node_digest(self.prefix_crc, &self.stat))
    }
}

#[derive(Clone, Debug)]
struct Pending {
    zxid: Zxid,
    /// `None`: the node will be deleted.
    facts: Option<Facts>,
}

/// The pending change records; see the module documentation.
#[derive(Debug)]
pub(crate) struct Overlay {
    nodes: HashMap<Arc<str>, Pending, Hasher>,
    /// The pending nodes that will have an owner, by owner.
    owned: BTreeSet<(i64, Arc<str>)>,
    /// The paths that each transaction changes, oldest first.
    touched: VecDeque<(Zxid, Arc<str>)>,
    /// The digest of the tree after all proposed transactions.
    digest: u64,
    /// While a multi is prepared: the entries to restore if it fails, one for each path.
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
            owned: BTreeSet::new(),
            touched: VecDeque::new(),
            digest: tree_digest,
            undo: None,
        }
    }

    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the node as it will be.
    pub fn find(&self, tree: &Tree, path: &str) -> Option<Facts> {
        self.find_at(path, || tree.find(path))
    }

    /// Does the same as [`Overlay::find`], with another way to find the node in the tree.
    pub fn find_at<'t>(
        &self,
        path: &str,
        in_tree: impl FnOnce() -> Option<Node<'t>>,
    ) -> Option<Facts> {
        if let Some(pending) = self.nodes.get(path) {
            return pending.facts.clone();
        }
        in_tree().map(|node| Facts {
            stat: node.persisted(),
            children: node.child_count(),
            acl: Arc::clone(node.acl()),
            prefix_crc: node.prefix_crc(),
            data_len: node.data().map_or(0, <[u8]>::len),
        })
    }

    /// Records the result of `zxid` for a node. `before` is [`Facts::digest`] of the result of
    /// [`Overlay::find`], 0 if that was `None`.
    pub fn put(&mut self, path: &str, zxid: Zxid, before: u64, after: Option<Facts>) {
        if digest::counts(path) {
            let after = after.as_ref().map_or(0, Facts::digest);
            self.digest = self.digest.wrapping_sub(before).wrapping_add(after);
        }
        let owner = after.as_ref().map_or(0, owner);
        let pending = Pending { zxid, facts: after };
        let (key, old) = match self.nodes.get_key_value_mut(path) {
            Some((key, slot)) => (Arc::clone(key), Some(std::mem::replace(slot, pending))),
            None => {
                let key: Arc<str> = Arc::from(path);
                self.nodes.insert(Arc::clone(&key), pending);
                (key, None)
            }
        };
        self.disown(&key, old.as_ref());
        if owner != 0 {
            self.owned.insert((owner, Arc::clone(&key)));
        }
        if old.as_ref().is_some_and(|old| old.zxid == zxid) {
            // An earlier part of the same multi has recorded the previous state.
            return;
        }
        if let Some(undo) = &mut self.undo {
            undo.nodes.push((Arc::clone(&key), old));
        }
        self.touched.push_back((zxid, key));
    }

    /// Starts to record changes so that they can be reverted.
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
            let owner = old.as_ref().and_then(|old| old.facts.as_ref()).map_or(0, owner);
            let undone = match old {
                Some(pending) => self.nodes.insert(Arc::clone(&path), pending),
                None => self.nodes.remove(&path),
            };
            self.disown(&path, undone.as_ref());
            if owner != 0 {
                self.owned.insert((owner, path));
            }
        }
        self.touched.truncate(undo.touched);
        self.digest = undo.digest;
    }

    /// Removes the entries of all transactions up to `zxid`, which are in the tree now.
    pub fn applied(&mut self, zxid: Zxid) {
        while let Some((first, _)) = self.touched.front() {
            if *first > zxid {
                break;
            }
            let (_, path) = self.touched.pop_front().expect("front was just seen");
            if let Entry::Occupied(entry) = self.nodes.entry(path)
                && entry.get().zxid <= zxid
            {
                let (path, done) = entry.remove_entry();
                self.disown(&path, Some(&done));
            }
        }
    }

    /// Removes a former pending state of a node from `owned`.
    fn disown(&mut self, path: &Arc<str>, was: Option<&Pending>) {
        let owner = was.and_then(|was| was.facts.as_ref()).map_or(0, owner);
        if owner != 0 {
            self.owned.remove(&(owner, Arc::clone(path)));
        }
    }

    /// Returns the plain ephemerals a session will own once all pending transactions are applied.
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
        let own = self.owned.range((session.0, Arc::from(""))..);
        let own = own.take_while(|(owner, _)| *owner == session.0);
        paths.extend(own.filter(|(_, path)| !in_tree(path)).map(|(_, path)| path.to_string()));
        paths
    }
}

fn owner(facts: &Facts) -> i64 {
    facts.stat.ephemeral_owner
}

fn is_owner(pending: &Pending, session: SessionId) -> bool {
    pending.facts.as_ref().is_some_and(|facts| owner(facts) == session.0)
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::AclVec;
    use ironkeeper_tree::TreeConfig;

    use super::*;

    fn facts(owner: i64) -> Facts {
        let stat = StatPersisted { ephemeral_owner: owner, ..StatPersisted::default() };
        let acl = Arc::new(AclList::new(AclVec::OPEN));
        Facts { stat, children: 0, acl, prefix_crc: 0, data_len: 0 }
    }

    fn overlay() -> (Overlay, Tree) {
        let tree = Tree::new(TreeConfig::default());
        (Overlay::new(tree.digest(), Hasher::with_seed(7)), tree)
    }

    #[test]
    fn a_session_has_the_pending_nodes_that_it_will_own() {
        let (mut overlay, tree) = overlay();
        let of = |overlay: &Overlay, session| overlay.ephemerals(&tree, SessionId(session));
        for (zxid, path, owner) in [(1, "/b", 5), (2, "/a", 5), (3, "/c", -6), (4, "/d", 0)] {
            overlay.put(path, Zxid(zxid), 0, Some(facts(owner)));
        }
        assert_eq!(of(&overlay, 5), ["/a", "/b"]);
        overlay.begin();
        overlay.put("/a", Zxid(5), facts(5).digest(), None);
        overlay.put("/e", Zxid(5), 0, Some(facts(-6)));
        assert_eq!(
            (of(&overlay, 5), of(&overlay, -6)),
            (vec!["/b".into()], vec!["/c".into(), "/e".into()])
        );
        overlay.take_back();
        assert_eq!((of(&overlay, 5).len(), of(&overlay, -6).len()), (2, 1));
        overlay.applied(Zxid(1));
        assert_eq!(of(&overlay, 5), ["/a"], "the other is in the tree now");
        overlay.applied(Zxid(4));
        assert!(overlay.owned.is_empty());
    }

    #[test]
    fn a_failed_multi_restores_a_path_that_several_parts_changed() {
        let (mut overlay, tree) = overlay();
        overlay.put("/a", Zxid(1), 0, Some(facts(5)));
        let digest = overlay.digest();
        overlay.begin();
        for (before, after) in [(5, Some(6)), (6, None), (0, Some(7)), (7, Some(8))] {
            let before = if before == 0 { 0 } else { facts(before).digest() };
            overlay.put("/a", Zxid(2), before, after.map(facts));
        }
        assert_eq!(overlay.undo.as_ref().map(|undo| undo.nodes.len()), Some(1));
        overlay.take_back();
        assert_eq!(overlay.digest(), digest);
        assert_eq!(overlay.find(&tree, "/a").unwrap().stat.ephemeral_owner, 5);
        assert_eq!(overlay.ephemerals(&tree, SessionId(5)), ["/a"]);
        overlay.applied(Zxid(1));
        assert!(overlay.find(&tree, "/a").is_none() && overlay.owned.is_empty());
    }

    #[test]
    fn a_path_stays_pending_until_its_last_transaction_is_applied() {
        let (mut overlay, tree) = overlay();
        overlay.begin();
        overlay.put("/a", Zxid(1), 0, Some(facts(5)));
        overlay.put("/a", Zxid(1), facts(5).digest(), Some(facts(6)));
        overlay.keep();
        overlay.put("/a", Zxid(2), facts(6).digest(), Some(facts(7)));
        overlay.applied(Zxid(1));
        assert_eq!(overlay.find(&tree, "/a").unwrap().stat.ephemeral_owner, 7);
        overlay.applied(Zxid(2));
        assert!(overlay.find(&tree, "/a").is_none() && overlay.touched.is_empty());
    }

    #[test]
    fn the_end_of_a_session_does_not_look_at_what_others_have_pending() {
        let (mut overlay, tree) = overlay();
        for n in 0..100_000 {
            overlay.put(&format!("/{n}"), Zxid(1), 0, Some(facts(1)));
        }
        // Scanning the whole overlay for each session would take ten thousand million steps.
        for session in 2..100_000 {
            assert!(overlay.ephemerals(&tree, SessionId(session)).is_empty());
        }
    }
}
