//! The state that transactions change: the fold of the log.
//!
//! [`State::apply`] is the only function that applies a transaction. A live server calls it for
//! committed transactions, recovery for those that it reads from the log.

use std::collections::VecDeque;

use ironkeeper_proto::snapshot_record::SnapshotDigest;
use ironkeeper_proto::txn::{FullTxn, TxnDigest};
use ironkeeper_proto::{Txn, Zxid};
use ironkeeper_tree::{Applied, Changes, Tree, TreeConfig};

use crate::database::Hasher;
use crate::long_lists::LongLists;
use crate::session_table::SessionTable;
use crate::snapshot::SnapshotJob;
use crate::watch::WatchTable;

/// The number of digests that `hash` shows, and the number of transactions between two of them.
const DIGESTS_KEPT: usize = 1024;
const DIGEST_INTERVAL: i64 = 128;

/// All state that transactions change.
#[derive(Debug)]
pub struct State {
    pub tree: Tree,
    pub sessions: SessionTable,
    /// Readers add to it under the shared gate, so it has locks of its own.
    pub watches: WatchTable,
    pub digests: Digests,
    pub long_lists: LongLists,
    digest_check: DigestCheck,
}

/// The effects of one transaction.
#[derive(Debug)]
pub struct Effects {
    pub applied: Applied,
    /// Set by closeSession.
    pub closed: Option<ClosedSession>,
    /// Whether the digest in the transaction differs from the digest of the tree.
    pub digest_differs: bool,
}

/// A session that a transaction has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSession {
    /// `None` if the session was not in the table.
    pub timeout_ms: Option<i32>,
    /// The number of ephemeral nodes that were deleted with the session.
    pub ephemerals: usize,
}

impl State {
    /// Creates the state before the first transaction.
    pub fn new(config: TreeConfig) -> State {
        let sessions = SessionTable::new(Hasher::with_seed(config.hash_seed));
        State::loaded(config, Tree::new(config), sessions, DigestCheck::EveryTxn)
    }

    /// Creates the state of a snapshot.
    pub(crate) fn loaded(
        config: TreeConfig,
        tree: Tree,
        sessions: SessionTable,
        digest_check: DigestCheck,
    ) -> State {
        State {
            tree,
            sessions,
            watches: WatchTable::new(config.hash_seed),
            digests: Digests::default(),
            long_lists: LongLists::new(Hasher::with_seed(config.hash_seed)),
            digest_check,
        }
    }

    /// Returns the zxid of the last transaction that readers can see.
    pub fn applied(&self) -> Zxid {
        self.tree.last_zxid()
    }

    /// Applies a committed transaction. `changes` creates the visitor of the tree's changes, which
    /// may fire watches.
    pub fn apply<'s, C: Changes>(
        &'s mut self,
        full: &FullTxn<'_>,
        changes: impl FnOnce(&'s WatchTable) -> C,
    ) -> Effects {
        let State { tree, sessions, watches, digests, digest_check, .. } = self;
        let header = &full.header;
        let mut closed = None;
        match &full.txn {
            Txn::CreateSession { timeout_ms } => sessions.open(header.session, *timeout_ms),
            Txn::CloseSession { .. } => {
                let timeout_ms = sessions.timeout_ms(header.session);
                sessions.close(header.session);
                closed = Some(ClosedSession { timeout_ms, ephemerals: tree.ephemeral_count() });
            }
            _ => {}
        }
        let applied = tree.apply(header, &full.txn, &mut changes(watches));
        if let Some(closed) = &mut closed {
            closed.ephemerals = closed.ephemerals.saturating_sub(tree.ephemeral_count());
        }
        digests.keep(tree);
        let digest_differs = digest_check.differs(header.zxid, full.digest, tree);
        Effects { applied, closed, digest_differs }
    }

    /// Deletes the ephemeral nodes of sessions that do not exist. Only for a standalone server: a
    /// member must not change its tree on its own.
    pub fn remove_orphans(&mut self) {
        let State { tree, sessions, .. } = self;
        tree.remove_orphans(|session| sessions.contains(session));
    }

    /// Starts a snapshot of the present state. The walk of the job has to be returned to
    /// [`Tree::end_snapshot`].
    pub fn begin_snapshot(&mut self) -> SnapshotJob {
        SnapshotJob::new(self.tree.begin_snapshot(), self.sessions.sorted())
    }

    /// Replaces the state by one that was recovered, and returns the old one. The watch table
    /// remains: connections that are being closed remove their watches from it.
    pub(crate) fn replace(&mut self, recovered: State) -> State {
        let mut old = std::mem::replace(self, recovered);
        std::mem::swap(&mut self.watches, &mut old.watches);
        old
    }
}

/// Digests of the tree at every 128th zxid, newest last. Bounded.
#[derive(Debug, Default)]
pub struct Digests {
    kept: VecDeque<(Zxid, u64)>,
}

impl Digests {
    /// Records the digest if one is due; must be called after every transaction.
    fn keep(&mut self, tree: &Tree) {
        let zxid = tree.last_zxid();
        if zxid.0 % DIGEST_INTERVAL == 0 {
            if self.kept.len() == DIGESTS_KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back((zxid, tree.digest()));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Zxid, u64)> {
        self.kept.iter().copied()
    }
}

/// Which digests can be compared with the tree. Apache's snapshots are fuzzy: such a tree may
/// contain effects of transactions after the zxid of its snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DigestCheck {
    /// The digest of every transaction.
    EveryTxn,
    /// A fuzzy snapshot that ends with this digest: the digests of transactions up to its zxid are
    /// not compared, then the digest of the snapshot is.
    FuzzyUntil(SnapshotDigest),
    /// A fuzzy snapshot whose end is unknown: nothing is compared until a transaction has led to
    /// its own digest.
    AwaitsMatch,
}

impl DigestCheck {
    /// Returns whether the tree differs from the digest that it must have after this transaction.
    fn differs(&mut self, zxid: Zxid, recorded: Option<TxnDigest>, tree: &Tree) -> bool {
        let recorded = recorded
            .filter(|digest| digest.version == TxnDigest::VERSION)
            .map(|digest| digest.tree_digest);
        let differs_from_recorded = recorded.is_some_and(|digest| digest != tree.digest());
        match *self {
            DigestCheck::EveryTxn => differs_from_recorded,
            DigestCheck::FuzzyUntil(end) if zxid < end.zxid => false,
            DigestCheck::FuzzyUntil(end) => {
                *self = DigestCheck::EveryTxn;
                if zxid == end.zxid { end.digest != tree.digest() } else { differs_from_recorded }
            }
            DigestCheck::AwaitsMatch => {
                if recorded.is_some() && !differs_from_recorded {
                    *self = DigestCheck::EveryTxn;
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZXID: Zxid = Zxid(5);

    fn txn_digest(tree_digest: u64) -> Option<TxnDigest> {
        Some(TxnDigest { version: TxnDigest::VERSION, tree_digest })
    }

    #[test]
    fn every_digest_is_compared_unless_it_is_missing_or_of_another_version() {
        let tree = Tree::new(TreeConfig::default());
        let mut check = DigestCheck::EveryTxn;
        let other_version = TxnDigest { version: TxnDigest::VERSION + 1, tree_digest: 0 };
        assert!(!check.differs(ZXID, None, &tree));
        assert!(!check.differs(ZXID, Some(other_version), &tree));
        assert!(!check.differs(ZXID, txn_digest(tree.digest()), &tree));
        assert!(check.differs(ZXID, txn_digest(tree.digest() ^ 1), &tree));
    }

    #[test]
    fn after_a_snapshot_without_a_digest_the_first_match_begins_the_comparison() {
        let tree = Tree::new(TreeConfig::default());
        let mut check = DigestCheck::AwaitsMatch;
        assert!(!check.differs(ZXID, txn_digest(tree.digest() ^ 1), &tree));
        assert!(!check.differs(ZXID, txn_digest(tree.digest()), &tree));
        assert!(check.differs(ZXID, txn_digest(tree.digest() ^ 1), &tree));
    }

    #[test]
    fn up_to_the_end_of_a_fuzzy_snapshot_only_its_own_digest_is_compared() {
        let tree = Tree::new(TreeConfig::default());
        let wrong = txn_digest(tree.digest() ^ 1);
        let end = |digest| SnapshotDigest { zxid: ZXID, version: TxnDigest::VERSION, digest };
        let mut check = DigestCheck::FuzzyUntil(end(tree.digest()));
        assert!(!check.differs(Zxid(4), wrong, &tree));
        assert!(!check.differs(ZXID, wrong, &tree));
        assert!(check.differs(Zxid(6), wrong, &tree));

        let mut check = DigestCheck::FuzzyUntil(end(tree.digest() ^ 1));
        assert!(check.differs(ZXID, txn_digest(tree.digest()), &tree));
        // The log may have no transaction with the zxid of the digest.
        let mut check = DigestCheck::FuzzyUntil(end(tree.digest() ^ 1));
        assert!(!check.differs(Zxid(6), txn_digest(tree.digest()), &tree));
        assert!(check.differs(Zxid(7), wrong, &tree));
    }
}
