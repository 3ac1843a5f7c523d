//! Applying transactions.
//!
//! A transaction carries outcomes: final names, versions, times. So applying a transaction cannot
//! fail, checks no permissions and reads no clock. It can find that its change is already applied
//! or that the parent node does not exist: a fuzzy snapshot of Apache ZooKeeper contains effects of
//! transactions after its zxid, and replay applies those transactions again. All rules here are
//! idempotent under that replay: values are assigned, counters are only raised, and a change that
//! does not fit is ignored.

use std::sync::Arc;

use ironkeeper_proto::jute::StrVec;
use ironkeeper_proto::path;
use ironkeeper_proto::stat::{CONTAINER_OWNER, Stat, StatPersisted, ttl_owner};
use ironkeeper_proto::txn::{CreateKind, CreateTxn, MultiTxn};
use ironkeeper_proto::{AclVec, ErrorCode, OpCode, SessionId, Txn, TxnHeader, Zxid};

use crate::acl_list::AclList;
use crate::arena::Slot;
use crate::node::Node;
use crate::tree::Tree;

/// A visitor that is called for every change while it is applied, in the order in which watches
/// fire. Paths are full paths; the ACLs are those in force at the change (for a deleted node, its
/// last ACL).
pub trait Changes {
    /// A node was created.
    fn created(&mut self, path: &str, acl: &Arc<AclList>, parent: &str, parent_acl: &Arc<AclList>);
    /// A node was deleted. `oldest` is the czxid of the parent's oldest remaining child, or `None`
    /// if it is unknown.
    fn deleted(
        &mut self,
        path: &str,
        acl: &Arc<AclList>,
        parent: &str,
        parent_acl: &Arc<AclList>,
        oldest: Option<Zxid>,
    );
    /// The data of a node was set.
    fn data_changed(&mut self, path: &str, acl: &Arc<AclList>);
}

/// The visitor for replay, when there are no watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChanges;

impl Changes for NoChanges {
    fn created(&mut self, _: &str, _: &Arc<AclList>, _: &str, _: &Arc<AclList>) {}
    fn deleted(&mut self, _: &str, _: &Arc<AclList>, _: &str, _: &Arc<AclList>, _: Option<Zxid>) {}
    fn data_changed(&mut self, _: &str, _: &Arc<AclList>) {}
}

/// The visitor for a transaction of several changes. A later change can delete the child that is
/// the oldest after an earlier one, so `oldest` is always `None`.
struct WithoutOldest<'a>(&'a mut dyn Changes);

impl Changes for WithoutOldest<'_> {
    fn created(&mut self, path: &str, acl: &Arc<AclList>, parent: &str, parent_acl: &Arc<AclList>) {
        self.0.created(path, acl, parent, parent_acl);
    }

    fn deleted(
        &mut self,
        path: &str,
        acl: &Arc<AclList>,
        parent: &str,
        parent_acl: &Arc<AclList>,
        _oldest: Option<Zxid>,
    ) {
        self.0.deleted(path, acl, parent, parent_acl, None);
    }

    fn data_changed(&mut self, path: &str, acl: &Arc<AclList>) {
        self.0.data_changed(path, acl);
    }
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The changes are part of the tree.
    Done,
    /// The node or its parent was missing, or the node already existed. Normal only in replay over
    /// a fuzzy snapshot.
    Ignored,
    /// The transaction records a failure (or, inside a failed multi, one of its parts does). Parts
    /// of a failed multi that did not fail themselves carry 0 before the failure and -2 after it.
    Error(i32),
}

/// The result of one transaction, for the reply.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Whether the transaction changed the tree.
    pub outcome: Outcome,
    /// The node's stat after a create, setData, setACL or reconfig that was done.
    pub stat: Option<Stat>,
    /// The results of the parts of a multi.
    pub parts: Vec<Applied>,
}

impl Applied {
    fn done(stat: Option<Stat>) -> Applied {
        Applied { outcome: Outcome::Done, stat, parts: Vec::new() }
    }

    fn ignored() -> Applied {
        Applied { outcome: Outcome::Ignored, stat: None, parts: Vec::new() }
    }

    fn error(code: i32) -> Applied {
        Applied { outcome: Outcome::Error(code), stat: None, parts: Vec::new() }
    }
}

impl Tree {
    /// Applies a committed transaction. Deterministic: the same transactions produce the same tree
    /// and the same digest on every server.
    pub fn apply(
        &mut self,
        header: &TxnHeader,
        txn: &Txn<'_>,
        changes: &mut dyn Changes,
    ) -> Applied {
        self.snapshots.forget_abandoned();
        let applied = match txn {
            Txn::Multi(multi) => self.apply_multi(header, multi, &mut WithoutOldest(changes)),
            single => self.apply_single(header, single, changes),
        };
        // Assigned last, so that `last_zxid` never covers a transaction whose effects are missing.
        self.last_zxid = self.last_zxid.max(header.zxid);
        applied
    }

    fn apply_single(
        &mut self,
        header: &TxnHeader,
        txn: &Txn<'_>,
        changes: &mut dyn Changes,
    ) -> Applied {
        match txn {
            // The session table is outside of the tree; a session only affects its ephemerals here.
            Txn::CreateSession { .. } | Txn::Check { .. } => Applied::done(None),
            Txn::CloseSession { paths } => {
                self.close_session(header, *paths, &mut WithoutOldest(changes))
            }
            Txn::Error { code } => Applied::error(*code),
            Txn::Create(create) => self.create(header, create, changes),
            Txn::Delete { path } => self.delete(header.zxid, path, changes),
            Txn::SetData { path, data, version } | Txn::Reconfig { path, data, version } => {
                self.set_data(header, path, *data, *version, changes)
            }
            Txn::SetAcl { path, acl, version } => self.set_acl(path, *acl, *version),
            Txn::Multi(_) => unreachable!("multis are decoded without nesting"),
        }
    }

    /// Writes the membership into `/zookeeper/config`. Each server does this locally: it is no
    /// transaction, and the node is not part of the digest.
    pub fn set_config(&mut self, text: &[u8], version: Zxid, time: i64, changes: &mut dyn Changes) {
        let op = OpCode::Reconfig;
        let header = TxnHeader { session: SessionId::NONE, cxid: 0, zxid: version, time, op };
        self.set_data(&header, "/zookeeper/config", Some(text), -1, changes);
    }

    /// Applies all parts or, if one of them records an error, none.
    fn apply_multi(
        &mut self,
        header: &TxnHeader,
        multi: &MultiTxn<'_>,
        changes: &mut dyn Changes,
    ) -> Applied {
        if multi.failed() {
            return failed_multi(multi);
        }
        let parts = multi.iter().map(|(op, txn)| {
            let header = TxnHeader { op, ..*header };
            self.apply_single(&header, &txn, changes)
        });
        let parts = parts.collect();
        Applied { parts, ..Applied::done(None) }
    }

    /// Creates a node: all zxids and times are those of the transaction, versions are zero. The
    /// parent gets the transaction's cversion and zxid (as pzxid), but only if its cversion grows.
    fn create(
        &mut self,
        header: &TxnHeader,
        txn: &CreateTxn<'_>,
        changes: &mut dyn Changes,
    ) -> Applied {
        let path = &*txn.path;
        let Some((parent_path, name)) = split(path) else { return Applied::ignored() };
        let Some(parent) = self.slot_of(parent_path) else { return Applied::ignored() };
        self.raise_cversion(parent, parent_path, txn.parent_cversion, header.zxid);
        let hash = self.index.hash(parent, name);
        if let Some(there) = self.index.find(&self.arena, hash, parent, name) {
            // A fuzzy snapshot contained this node, but possibly not its ACL.
            self.point_to_acl(there, path, txn.acl);
            return Applied::ignored();
        }
        let stat = StatPersisted {
            czxid: header.zxid,
            mzxid: header.zxid,
            pzxid: header.zxid,
            ctime: header.time,
            mtime: header.time,
            ephemeral_owner: match txn.kind {
                CreateKind::Persistent => 0,
                CreateKind::Ephemeral => header.session.0,
                CreateKind::Container => CONTAINER_OWNER,
                CreateKind::Ttl { ttl_ms } => ttl_owner(ttl_ms),
            },
            ..StatPersisted::default()
        };
        let acl = self.acls.acquire(txn.acl);
        let slot = self.attach_hashed(hash, parent, path, txn.data, acl, &stat);
        // Read before the quotas change: a new statistics node gets other data than it was created
        // with, and the reply to its creator describes the data it sent.
        let stat = Node::new(self, slot).stat();
        self.quota_node_created(path, slot);
        self.count_for_quota(path, 1, txn.data.map_or(0, <[u8]>::len) as i64);
        let parent_acl = self.arena[parent].acl;
        changes.created(path, self.acls.list(acl), parent_path, self.acls.list(parent_acl));
        Applied::done(Some(stat))
    }

    /// Raises the parent's cversion and pzxid, never lowers them: in replay an old create must not
    /// undo a later one. At the largest cversion both stay as they are.
    fn raise_cversion(&mut self, parent: Slot, path: &str, cversion: i32, zxid: Zxid) {
        let current = self.arena[parent].cversion;
        let cversion = if cversion == -1 { current.wrapping_add(1) } else { cversion };
        if cversion > current {
            self.change(parent, path, |parent| {
                parent.cversion = cversion;
                parent.pzxid = zxid;
            });
        }
    }

    fn point_to_acl(&mut self, slot: Slot, path: &str, list: AclVec<'_>) {
        let new = self.acls.acquire(list);
        let old = self.arena[slot].acl;
        if new != old {
            self.change(slot, path, |record| record.acl = new);
        }
        self.acls.release(old);
    }

    /// Deletes a node. The parent's pzxid is raised even if the node does not exist: a fuzzy
    /// snapshot may lack the node and still contain the old pzxid.
    fn delete(&mut self, zxid: Zxid, path: &str, changes: &mut dyn Changes) -> Applied {
        let Some((parent_path, name)) = split(path) else { return Applied::ignored() };
        let Some(parent) = self.slot_of(parent_path) else { return Applied::ignored() };
        if zxid > self.arena[parent].pzxid {
            self.change(parent, parent_path, |parent| parent.pzxid = zxid);
        }
        let Some(slot) = self.child(parent, name) else { return Applied::ignored() };
        if self.arena[slot].child_count > 0 {
            self.delete_below(slot, changes);
        }
        self.delete_leaf(slot, path, parent, parent_path, changes);
        Applied::done(None)
    }

    /// Deletes all nodes below `top`. A node with children is deleted only in replay: it is a later
    /// node with the same path, and its children are later still. The rest of the log creates all
    /// of them again.
    fn delete_below(&mut self, top: Slot, changes: &mut dyn Changes) {
        let mut at = top;
        loop {
            while let Some(child) = self.arena[at].first_child.some() {
                at = child;
            }
            if at == top {
                return;
            }
            let parent = self.arena[at].parent;
            let (path, parent_path) = (self.path_of(at), self.path_of(parent));
            self.delete_leaf(at, &path, parent, &parent_path, changes);
            at = parent;
        }
    }

    fn delete_leaf(
        &mut self,
        slot: Slot,
        path: &str,
        parent: Slot,
        parent_path: &str,
        changes: &mut dyn Changes,
    ) {
        let data_len = self.arena[slot].block().data_len();
        self.quota_node_deleted(path);
        let oldest = self.oldest_without(slot);
        let acl = self.detach(slot, path);
        self.count_for_quota(path, -1, -(data_len as i64));
        let parent_acl = self.arena[parent].acl;
        let (acl_list, parent_list) = (self.acls.list(acl), self.acls.list(parent_acl));
        changes.deleted(path, acl_list, parent_path, parent_list, oldest);
        self.acls.release(acl);
    }

    fn set_data(
        &mut self,
        header: &TxnHeader,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        changes: &mut dyn Changes,
    ) -> Applied {
        let Some(slot) = self.slot_of(path) else { return Applied::ignored() };
        let old_len = self.replace_data(slot, path, data, |record| {
            record.version = version;
            record.mzxid = header.zxid;
            record.mtime = header.time;
        });
        let stat = Node::new(self, slot).stat();
        self.count_for_quota(path, 0, data.map_or(0, <[u8]>::len) as i64 - old_len as i64);
        changes.data_changed(path, self.acls.list(self.arena[slot].acl));
        Applied::done(Some(stat))
    }

    /// Replaces the ACL; mzxid and mtime stay as they are.
    fn set_acl(&mut self, path: &str, acl: AclVec<'_>, version: i32) -> Applied {
        let Some(slot) = self.slot_of(path) else { return Applied::ignored() };
        let new = self.acls.acquire(acl);
        let old = self.arena[slot].acl;
        self.change(slot, path, |record| {
            record.acl = new;
            record.aversion = version;
        });
        self.acls.release(old);
        Applied::done(Some(Node::new(self, slot).stat()))
    }

    /// Deletes the ephemerals of a session. The listed nodes are deleted first: the leader made the
    /// list, and every server follows it. Other nodes of the session can only come from a fuzzy
    /// snapshot or from a log of 3.5 or older, which has no lists.
    fn close_session(
        &mut self,
        header: &TxnHeader,
        paths: Option<StrVec<'_>>,
        changes: &mut dyn Changes,
    ) -> Applied {
        for path in paths.iter().flat_map(StrVec::iter) {
            self.delete(header.zxid, &path, changes);
        }
        let rest: Vec<String> = self.ephemerals(header.session).collect();
        for path in rest {
            self.delete(header.zxid, &path, changes);
        }
        Applied::done(None)
    }

    /// Deletes ephemerals whose session is not alive, as a leader or a standalone server does after
    /// recovery, and returns their paths.
    ///
    /// Two kinds of nodes stay although their owner resembles a session: nodes marked as TTL nodes
    /// while TTL nodes are not enabled, and nodes that have children.
    pub fn remove_orphans(&mut self, is_alive: impl Fn(SessionId) -> bool) -> Vec<String> {
        let mut orphans = Vec::new();
        for session in self.ephemeral_sessions().filter(|&session| !is_alive(session)) {
            if !has_ttl_mark(session.0) {
                let childless = |slot: &Slot| self.arena[*slot].child_count == 0;
                let slots = self.owners.ephemerals(session).filter(childless);
                orphans.extend(slots.map(|slot| self.path_of(slot)));
            }
        }
        for path in &orphans {
            self.delete(self.last_zxid, path, &mut NoChanges);
        }
        orphans
    }
}

/// Returns code 0 for the parts before the error and -2 after it, as Apache ZooKeeper does.
fn failed_multi(multi: &MultiTxn<'_>) -> Applied {
    let mut first = None;
    let parts = multi.iter().map(|(_, txn)| match txn {
        Txn::Error { code } => {
            first = first.or(Some(code));
            Applied::error(code)
        }
        _ if first.is_some() => Applied::error(ErrorCode::RuntimeInconsistency.code()),
        _ => Applied::error(0),
    });
    let parts: Vec<Applied> = parts.collect();
    let code = parts.iter().find_map(|part| match part.outcome {
        Outcome::Error(code) if code != 0 => Some(code),
        _ => None,
    });
    Applied { parts, ..Applied::error(code.unwrap_or_default()) }
}

/// Returns the parent and the name of a path; `None` for the root.
fn split(path: &str) -> Option<(&str, &str)> {
    let name = path::name(path);
    if name.is_empty() {
        return None;
    }
    Some((path::parent(path)?, name))
}

/// Returns whether an owner has the mark of a TTL node: 0xff, then the 16-bit feature code of TTLs,
/// which is zero.
fn has_ttl_mark(owner: i64) -> bool {
    owner as u64 >> 40 == 0xff_0000
}
