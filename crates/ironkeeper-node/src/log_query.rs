//! Reads the log for learners that are further behind than the history in memory.

use bytes::Bytes;
use ironkeeper_engine::Database;
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};
use ironkeeper_zab::LogRead;

/// The maximum number of bytes read for one learner, regardless of the size of the tree.
const BYTES_MAX: u64 = 64 << 20;

/// Returns the transactions after a zxid, up to `size_factor` times the size of the newest
/// snapshot. Finds nothing if `size_factor` is `None`.
pub fn read_log<D: Disk>(
    store: &Store<D>,
    after: Zxid,
    size_factor: Option<f64>,
    db: &Database,
) -> Result<LogRead, StoreError> {
    let Some(factor) = size_factor else { return Ok(LogRead::default()) };
    let bytes_max = (store.newest_snapshot_bytes()? as f64 * factor) as u64;
    let applied = || db.read().applied();
    let tail = store.read_tail(after, bytes_max.min(BYTES_MAX), applied)?;
    let txns = tail.txns.into_iter().map(|(zxid, txn)| (zxid, Bytes::from(txn)));
    Ok(LogRead { found: tail.found, txns: txns.collect() })
}
