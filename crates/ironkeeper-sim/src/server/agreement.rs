//! One history: all servers that have applied a transaction have the same tree after it, and an
//! established leader has every transaction that a client received a reply about.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_engine::Database;
use ironkeeper_proto::{Epoch, ServerId, Zxid};

#[derive(Debug, Default)]
pub struct Agreement {
    /// The digest of the tree after a transaction, and the first server that had it.
    digests: BTreeMap<Zxid, (u64, ServerId)>,
}

impl Agreement {
    /// Returns the number of distinct states.
    pub fn states(&self) -> u64 {
        self.digests.len() as u64
    }

    /// Checks the state that a server has applied. Uncommitted states must agree as well: no zxid
    /// is used twice.
    pub fn applied(&mut self, who: ServerId, db: &Database) -> Result<(), String> {
        let mismatches = db.stats.digest_mismatches.load(Relaxed);
        if mismatches > 0 {
            return Err(format!("agreement: {mismatches} transactions led server {who} elsewhere"));
        }
        let state = db.read();
        let (zxid, digest) = (state.applied(), state.tree.digest());
        let (known, first) = *self.digests.entry(zxid).or_insert((digest, who));
        match known == digest {
            true => Ok(()),
            false => Err(format!(
                "agreement: after {zxid} server {who} has the digest {digest:x}, server {first} {known:x}"
            )),
        }
    }

    /// Checks that a new leader has the transactions of earlier epochs that clients have received.
    pub fn established(
        &self,
        who: ServerId,
        epoch: Epoch,
        db: &Database,
        told: Zxid,
    ) -> Result<(), String> {
        let applied = db.read().applied();
        match told.epoch() < epoch && applied < told {
            false => Ok(()),
            true => Err(format!(
                "durability: server {who} leads epoch {epoch} from {applied}, clients know of {told}"
            )),
        }
    }
}
