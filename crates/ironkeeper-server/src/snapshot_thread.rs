//! Writes snapshots in the background, and removes files that are no longer needed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::Input;
use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};

use crate::core::Core;
use crate::metrics::Metrics;

/// At most one job at a time, by the engine's rule, and the wish to end.
#[derive(Debug, Default)]
pub struct SnapshotQueue {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    job: Option<Box<SnapshotJob>>,
    closed: bool,
}

/// What the thread should do next.
enum Work {
    Snapshot(Box<SnapshotJob>),
    Purge,
    End,
}

impl SnapshotQueue {
    pub fn push(&self, job: Box<SnapshotJob>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).job = Some(job);
        self.arrived.notify_one();
    }

    /// The job, if there is one, for whoever cannot wait for the thread.
    pub fn take_now(&self) -> Option<Box<SnapshotJob>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).job.take()
    }

    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.arrived.notify_one();
    }

    fn next(&self, purge_at: Option<Instant>) -> Work {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.job.take() {
                return Work::Snapshot(job);
            }
            if queue.closed {
                return Work::End;
            }
            let left = purge_at.map(|at| at.saturating_duration_since(Instant::now()));
            queue = match left {
                Some(Duration::ZERO) => return Work::Purge,
                Some(left) => {
                    let waited = self.arrived.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// When old files are removed, and how many snapshots stay.
#[derive(Clone, Copy, Debug)]
pub struct PurgeSettings {
    pub interval: Option<Duration>,
    pub retain: usize,
}

/// The thread's life.
pub fn run<D: Disk>(store: &Store<D>, purge: PurgeSettings, core: &Arc<Core>, metrics: &Metrics) {
    let mut purge_at = purge.interval.map(|_| Instant::now());
    loop {
        match core.snapshots.next(purge_at) {
            Work::End => return,
            Work::Purge => {
                purge_at = purge.interval.map(|interval| Instant::now() + interval);
                match store.purge(purge.retain) {
                    Ok(removed) if removed.is_empty() => {}
                    Ok(removed) => tracing::info!("removed {} old files", removed.len()),
                    Err(error) => tracing::warn!("old files could not be removed: {error}"),
                }
            }
            Work::Snapshot(mut job) => {
                let began = Instant::now();
                match write(store, core, &mut job) {
                    Ok(()) => {
                        metrics.note_snapshot(began.elapsed());
                        tracing::info!(
                            "snapshot at {} taken in {} ms",
                            job.zxid(),
                            began.elapsed().as_millis()
                        );
                    }
                    // Everything is in the log; the next snapshot may fare better.
                    Err(error) => {
                        metrics.note_snapshot_error();
                        tracing::error!("the snapshot was given up: {error}");
                    }
                }
                core.submit([Input::SnapshotDone(job.into_walk())]);
            }
        }
    }
}

/// Writes one snapshot: to the side, synced, then renamed.
pub fn write<D: Disk>(
    store: &Store<D>,
    core: &Core,
    job: &mut SnapshotJob,
) -> Result<(), StoreError> {
    let mut writer = store.snapshot_writer(job.zxid())?;
    let mut buffer = Vec::new();
    job.encode_head(&mut buffer);
    writer.write(&buffer)?;
    loop {
        buffer.clear();
        let slice = job.next_slice(&core.db, &mut buffer);
        writer.write(&buffer)?;
        match slice {
            Slice::More => {}
            Slice::Done => break,
            Slice::Lost => unreachable!("the tree of a server of its own is never exchanged"),
        }
    }
    writer.finish_with(job.digest(), job.zxid())?;
    Ok(())
}
