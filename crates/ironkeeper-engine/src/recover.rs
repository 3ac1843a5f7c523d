//! Recovery of the state from a snapshot and the transactions after it.
//!
//! The records come from files, which this crate does not access; the reader of the files calls the
//! methods in the order of the records.

use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::{FullTxn, TxnDigest};
use ironkeeper_proto::{AclVec, SessionId, Txn, Zxid};
use ironkeeper_tree::{Loader, NoChanges, Tree, TreeConfig};

use crate::database::{Digests, Hasher};
use crate::session_table::SessionTable;

/// The value of `fuzzy_until` for a snapshot whose end is unknown.
const FOR_EVER: Zxid = Zxid(i64::MAX);

/// The state that a server starts from.
#[derive(Debug)]
pub struct Recovered {
    pub tree: Tree,
    pub sessions: SessionTable,
    /// Transactions or snapshots whose digest differs from the digest of the resulting tree.
    pub digest_mismatches: u64,
    /// Digests of the tree at every 128th zxid, as far as transactions were replayed.
    pub digests: Digests,
    /// Fuzzy snapshot with unknown end, and no replayed transaction has matched its recorded digest
    /// yet: digests are not verified until one does.
    pub awaits_digest: bool,
}

/// A recovery in progress.
#[derive(Debug)]
pub struct Recovery {
    config: TreeConfig,
    sessions: SessionTable,
    loader: Option<Loader>,
    tree: Option<Tree>,
    /// Up to this zxid the tree may contain effects of later transactions (Apache's snapshots are
    /// fuzzy), so digests are not compared.
    fuzzy_until: Zxid,
    /// The digest that must match when `fuzzy_until` is reached.
    awaited: Option<SnapshotDigest>,
    mismatches: u64,
    digests: Digests,
}

impl Recovery {
    /// Starts with the empty tree.
    pub fn new(config: TreeConfig) -> Recovery {
        Recovery {
            config,
            sessions: SessionTable::new(Hasher::with_seed(config.hash_seed)),
            loader: None,
            tree: Some(Tree::new(config)),
            fuzzy_until: Zxid::ZERO,
            awaited: None,
            mismatches: 0,
            digests: Digests::default(),
        }
    }

    /// Starts a snapshot and drops all earlier state.
    pub fn begin_snapshot(&mut self) {
        *self = Recovery::new(self.config);
        self.tree = None;
        self.loader = Some(Loader::new(self.config));
    }

    pub fn session(&mut self, session: SessionId, timeout_ms: i32) {
        self.sessions.open(session, timeout_ms);
    }

    pub fn acl(&mut self, id: i64, list: AclVec<'_>) {
        if let Some(loader) = &mut self.loader {
            loader.add_acl(id, list);
        }
    }

    pub fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        let loader = self.loader.as_mut().ok_or("a node outside of a snapshot")?;
        loader.add_node(node).map_err(|error| error.to_string())
    }

    pub fn end_snapshot(
        &mut self,
        zxid: Zxid,
        digest: Option<SnapshotDigest>,
    ) -> Result<(), String> {
        let loader = self.loader.take().ok_or("the end of a snapshot that never began")?;
        let tree = loader.finish(zxid).map_err(|error| error.to_string())?;
        self.fuzzy_until = zxid;
        match digest.filter(|digest| digest.version == TxnDigest::VERSION) {
            Some(digest) if digest.zxid > zxid => {
                self.fuzzy_until = digest.zxid;
                self.awaited = Some(digest);
            }
            Some(digest) if digest.zxid == zxid && zxid != Zxid::ZERO => {
                self.mismatches += u64::from(digest.digest != tree.digest());
            }
            // Without a usable digest the end of the fuzzy snapshot is unknown, so digests of
            // transactions are not verified until one of them matches.
            _ if zxid != Zxid::ZERO => self.fuzzy_until = FOR_EVER,
            _ => {}
        }
        self.tree = Some(tree);
        Ok(())
    }

    pub fn txn(&mut self, full: &FullTxn<'_>) -> Result<(), String> {
        let tree = self.tree.as_mut().ok_or("a transaction inside of a snapshot")?;
        let header = &full.header;
        match &full.txn {
            Txn::CreateSession { timeout_ms } => self.sessions.open(header.session, *timeout_ms),
            Txn::CloseSession { .. } => drop(self.sessions.close(header.session)),
            _ => {}
        }
        tree.apply(header, &full.txn, &mut NoChanges);
        self.digests.keep(tree);
        let digest = full.digest.filter(|digest| digest.version == TxnDigest::VERSION);
        if header.zxid > self.fuzzy_until {
            if let Some(digest) = digest {
                self.mismatches += u64::from(digest.tree_digest != tree.digest());
            }
        } else if self.fuzzy_until == FOR_EVER {
            if digest.is_some_and(|digest| digest.tree_digest == tree.digest()) {
                self.fuzzy_until = header.zxid;
            }
        } else if let Some(awaited) = self.awaited
            && awaited.zxid == header.zxid
        {
            self.mismatches += u64::from(awaited.digest != tree.digest());
        }
        Ok(())
    }

    /// Finishes the recovery of a standalone server. Deletes ephemerals of sessions that no longer
    /// exist, which needs no transaction here.
    pub fn finish(self) -> Result<Recovered, String> {
        let mut recovered = self.finish_member()?;
        let Recovered { tree, sessions, .. } = &mut recovered;
        tree.remove_orphans(|session| sessions.contains(session));
        Ok(recovered)
    }

    /// Finishes the recovery of a member of an ensemble, which must not change its tree on its own.
    pub fn finish_member(self) -> Result<Recovered, String> {
        let tree = self.tree.ok_or("the snapshot ended too early")?;
        Ok(Recovered {
            tree,
            sessions: self.sessions,
            digest_mismatches: self.mismatches,
            digests: self.digests,
            awaits_digest: self.fuzzy_until == FOR_EVER,
        })
    }
}
