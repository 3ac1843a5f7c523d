//! Building a tree from a snapshot.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use ironkeeper_proto::snapshot_record::{OPEN_ACL_ID, SnapshotNode};
use ironkeeper_proto::{AclVec, Zxid, path};
use thiserror::Error;

use crate::acl_table::AclHandle;
use crate::arena::Slot;
use crate::tree::{Tree, TreeConfig};

/// The reason why records do not form a tree.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The first node is not the root.
    #[error("the first node of the snapshot is {0:?}, it should be the root")]
    RootNotFirst(String),
    /// There are no nodes.
    #[error("the snapshot has no nodes")]
    Empty,
    /// The path of a node is not a path below the root.
    #[error("the snapshot has a node with the impossible path {0:?}")]
    BadPath(String),
    /// A node precedes its parent.
    #[error("the parent of {0:?} does not come before it in the snapshot")]
    MissingParent(String),
    /// Two nodes have the same path.
    #[error("the snapshot has {0:?} twice")]
    Duplicate(String),
}

/// A builder that receives the parts of a snapshot in the order of the file.
///
/// A fuzzy snapshot of Apache ZooKeeper may refer to access control lists that are not in its
/// table. Their nodes grant no permissions until a replayed transaction supplies the list;
/// [`Tree::nodes_without_acl`] counts the nodes that are left.
#[derive(Debug)]
pub struct Loader {
    tree: Tree,
    has_root: bool,
    acls: HashMap<i64, AclHandle, FixedState>,
    /// Handles from the table. The loader counts one use of each until `finish`.
    held: Vec<AclHandle>,
    /// The parent of the last node: in Apache's order and in ours, siblings often follow each
    /// other.
    parent: Slot,
    parent_path: String,
}

impl Loader {
    /// Creates a loader for one snapshot.
    pub fn new(config: TreeConfig) -> Loader {
        let root = Default::default();
        Loader {
            tree: Tree::with_root(config, &root, None, AclHandle::OPEN),
            has_root: false,
            acls: HashMap::with_hasher(FixedState::with_seed(config.hash_seed)),
            held: Vec::new(),
            parent: Slot::ROOT,
            parent_path: String::new(),
        }
    }

    /// Adds an entry of the table of access control lists. A later entry with the same id replaces
    /// an earlier one.
    pub fn add_acl(&mut self, id: i64, list: AclVec<'_>) {
        let handle = self.tree.acls.acquire(list);
        self.held.push(handle);
        self.acls.insert(id, handle);
    }

    /// Adds a node. Its parent must have been added before.
    pub fn add_node(&mut self, node: &SnapshotNode<'_>) -> Result<(), LoadError> {
        let path = &*node.path;
        if !self.has_root {
            return self.add_root(node);
        }
        let bad = || LoadError::BadPath(path.to_owned());
        // Differs from `path::parent`: here the parent of `/a` is the empty path, as in the file.
        let (parent_path, name) = path.rsplit_once('/').ok_or_else(bad)?;
        if name.is_empty() || path::parent(path).is_none() || parent_path == "/" {
            return Err(bad());
        }
        if parent_path != self.parent_path {
            let parent = self.tree.slot_of(parent_path);
            self.parent = parent.ok_or_else(|| LoadError::MissingParent(path.to_owned()))?;
            self.parent_path.clear();
            self.parent_path.push_str(parent_path);
        }
        if self.tree.child(self.parent, name).is_some() {
            return Err(LoadError::Duplicate(path.to_owned()));
        }
        let acl = self.acl(node.acl);
        self.tree.in_order_after = self.tree.in_order_after.max(node.stat.czxid);
        self.tree.attach(self.parent, path, node.data, acl, &node.stat);
        Ok(())
    }

    fn add_root(&mut self, node: &SnapshotNode<'_>) -> Result<(), LoadError> {
        if !node.path.is_empty() {
            return Err(LoadError::RootNotFirst(node.path.to_string()));
        }
        self.has_root = true;
        let acl = self.acl(node.acl);
        self.tree.replace_data(Slot::ROOT, "", node.data, |root| {
            root.acl = acl;
            root.czxid = node.stat.czxid;
            root.mzxid = node.stat.mzxid;
            root.pzxid = node.stat.pzxid;
            root.ctime = node.stat.ctime;
            root.mtime = node.stat.mtime;
            root.version = node.stat.version;
            root.cversion = node.stat.cversion;
            root.aversion = node.stat.aversion;
            root.owner = node.stat.ephemeral_owner;
        });
        Ok(())
    }

    /// Returns the list with this id in the snapshot and counts one more use.
    fn acl(&mut self, id: i64) -> AclHandle {
        if id == OPEN_ACL_ID {
            return AclHandle::OPEN;
        }
        let tree = &mut self.tree;
        let held = &mut self.held;
        let handle = *self.acls.entry(id).or_insert_with(|| {
            let handle = tree.acls.add_missing();
            tree.acls.use_again(handle);
            held.push(handle);
            handle
        });
        if handle != AclHandle::OPEN {
            self.tree.acls.use_again(handle);
        }
        handle
    }

    /// Returns the tree as of the given zxid, without lists that no node uses, and with quotas
    /// counted.
    pub fn finish(self, last_zxid: Zxid) -> Result<Tree, LoadError> {
        let Loader { mut tree, has_root, held, .. } = self;
        if !has_root {
            return Err(LoadError::Empty);
        }
        for handle in held {
            tree.acls.release(handle);
        }
        // Snapshots of versions before 3.5 lack this node. It is not part of the digest.
        if let Some(zookeeper) = tree.slot_of("/zookeeper")
            && tree.child(zookeeper, "config").is_none()
        {
            tree.add_config_node(zookeeper);
        }
        tree.find_quotas();
        tree.last_zxid = last_zxid;
        Ok(tree)
    }
}
