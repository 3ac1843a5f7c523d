//! Writes a snapshot of the state to a file.

use ironkeeper_engine::Database;
use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};

/// Writes one snapshot: under another name, synced, then renamed. Returns false if it was
/// abandoned: because `go_on` returned false, or because the tree was replaced.
pub fn write_snapshot<D: Disk>(
    store: &Store<D>,
    db: &Database,
    job: &mut SnapshotJob,
    go_on: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    write_slices(store, job, |job, out| job.next_slice(db, out), go_on)
}

/// Does the same for a snapshot whose slices come from `next_slice`.
pub(crate) fn write_slices<D: Disk>(
    store: &Store<D>,
    job: &mut SnapshotJob,
    mut next_slice: impl FnMut(&mut SnapshotJob, &mut Vec<u8>) -> Slice,
    go_on: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    let mut writer = store.snapshot_writer(job.zxid())?;
    let mut buffer = Vec::new();
    job.encode_head(&mut buffer);
    writer.write(&buffer)?;
    loop {
        buffer.clear();
        let slice = next_slice(job, &mut buffer);
        writer.write(&buffer)?;
        if slice == Slice::Lost || !go_on() {
            return Ok(false);
        }
        if slice == Slice::Done {
            break;
        }
    }
    writer.finish_with(job.digest(), job.zxid())?;
    Ok(true)
}
