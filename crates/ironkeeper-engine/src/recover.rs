//! Recovery of the state from a snapshot and the transactions after it.
//!
//! The records come from files, which this crate does not access; the reader of the files calls the
//! methods in the order of the records.

use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::{FullTxn, TxnDigest};
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_tree::{LoadError, Loader, NoChanges, TreeConfig};

use crate::database::Hasher;
use crate::session_table::SessionTable;
use crate::state::{DigestCheck, State};

/// The state that a server starts from.
#[derive(Debug)]
pub struct Recovered {
    pub state: State,
    /// Transactions or snapshots whose digest differs from the digest of the resulting tree.
    pub digest_mismatches: u64,
}

impl Recovered {
    /// Creates the state before the first transaction.
    pub fn new(config: TreeConfig) -> Recovered {
        Recovered { state: State::new(config), digest_mismatches: 0 }
    }

    /// Applies the next transaction of the log.
    pub fn apply(&mut self, full: &FullTxn<'_>) {
        let effects = self.state.apply(full, |_| NoChanges);
        self.digest_mismatches += u64::from(effects.digest_differs);
    }
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct SnapshotLoader {
    config: TreeConfig,
    sessions: SessionTable,
    loader: Loader,
}

impl SnapshotLoader {
    pub fn new(config: TreeConfig) -> SnapshotLoader {
        let sessions = SessionTable::new(Hasher::with_seed(config.hash_seed));
        SnapshotLoader { config, sessions, loader: Loader::new(config) }
    }

    pub fn session(&mut self, session: SessionId, timeout_ms: i32) {
        self.sessions.open(session, timeout_ms);
    }

    pub fn acl(&mut self, id: i64, list: AclVec<'_>) {
        self.loader.add_acl(id, list);
    }

    pub fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), LoadError> {
        self.loader.add_node(node)
    }

    /// Ends the snapshot, which contains every transaction up to `zxid`.
    pub fn finish(
        self,
        zxid: Zxid,
        digest: Option<SnapshotDigest>,
    ) -> Result<Recovered, LoadError> {
        let SnapshotLoader { config, sessions, loader } = self;
        let tree = loader.finish(zxid)?;
        let mut digest_mismatches = 0;
        let digest_check = match digest.filter(|digest| digest.version == TxnDigest::VERSION) {
            Some(digest) if digest.zxid > zxid => DigestCheck::FuzzyUntil(digest),
            _ if zxid == Zxid::ZERO => DigestCheck::EveryTxn,
            Some(digest) if digest.zxid == zxid => {
                digest_mismatches += u64::from(digest.digest != tree.digest());
                DigestCheck::EveryTxn
            }
            // Without a usable digest the end of the fuzzy snapshot is unknown.
            _ => DigestCheck::AwaitsMatch,
        };
        let state = State::loaded(config, tree, sessions, digest_check);
        Ok(Recovered { state, digest_mismatches })
    }
}
