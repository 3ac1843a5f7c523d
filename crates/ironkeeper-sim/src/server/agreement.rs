//! One history: whoever has applied a transaction has the same tree after it, and what a client was told
//! is never missing from an established leader.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_engine::Database;
use ironkeeper_proto::{Epoch, ServerId, Zxid};

#[derive(Debug, Default)]
pub struct Agreement {
    /// The digest of the tree after a transaction, and who was the first to have it.
    digests: BTreeMap<Zxid, (u64, ServerId)>,
}

impl Agreement {
    /// How many states have been seen.
    pub fn states(&self) -> u64 {
        self.digests.len() as u64
    }

    /// This is what a server has applied. Also what may be undone has to agree: no id is used twice.
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

    /// A leader is established. What clients were told in earlier epochs is in its tree.
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
