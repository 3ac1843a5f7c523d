//! Writes snapshots in the background, and removes files that are no longer needed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_engine::{Database, Input};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};

use crate::core::Core;
use crate::metrics::Metrics;

/// At most one job at a time, by the engine's rule, and the wish to end or to hold still.
#[derive(Debug, Default)]
pub struct SnapshotQueue {
    queue: Mutex<Queue>,
    /// Anything in the queue has changed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    job: Option<Box<SnapshotJob>>,
    closed: bool,
    /// The thread is at work.
    busy: bool,
    /// How many want the thread to keep away from the files.
    pauses: usize,
}

/// While this lives the snapshot thread touches no file.
#[derive(Debug)]
pub struct Pause<'q> {
    queue: &'q SnapshotQueue,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.queue.lock().pauses -= 1;
        self.queue.changed.notify_all();
    }
}

/// What the thread should do next.
enum Work {
    Snapshot(Box<SnapshotJob>),
    Purge,
    End,
}

impl SnapshotQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, job: Box<SnapshotJob>) {
        self.lock().job = Some(job);
        self.changed.notify_all();
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Has the thread give up what it is at, and waits until it has. A snapshot that was not begun
    /// is handed out: it is of a tree that is about to go.
    pub fn pause(&self) -> (Pause<'_>, Option<Box<SnapshotJob>>) {
        let mut queue = self.lock();
        queue.pauses += 1;
        while queue.busy {
            queue = self.wait(queue);
        }
        (Pause { queue: self }, queue.job.take())
    }

    /// Whether the thread may go on with what it is at.
    fn may_go_on(&self) -> bool {
        self.lock().pauses == 0
    }

    /// Takes the job for somebody who writes it at once and without a thread.
    pub fn take(&self) -> Option<Box<SnapshotJob>> {
        self.lock().job.take()
    }

    fn done(&self) {
        self.lock().busy = false;
        self.changed.notify_all();
    }

    /// Waits for work. What it hands out is to be followed by [`SnapshotQueue::done`].
    fn next(&self, purge_at: Option<Instant>) -> Work {
        let mut queue = self.lock();
        loop {
            if queue.pauses > 0 {
                queue = self.wait(queue);
                continue;
            }
            if let Some(job) = queue.job.take() {
                queue.busy = true;
                return Work::Snapshot(job);
            }
            if queue.closed {
                return Work::End;
            }
            let left = purge_at.map(|at| at.saturating_duration_since(Instant::now()));
            queue = match left {
                Some(Duration::ZERO) => {
                    queue.busy = true;
                    return Work::Purge;
                }
                Some(left) => {
                    let waited = self.changed.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wait(queue),
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
                match write(store, &core.db, &mut job, || core.snapshots.may_go_on()) {
                    Ok(true) => {
                        metrics.note_snapshot(began.elapsed());
                        tracing::info!(
                            "snapshot at {} taken in {} ms",
                            job.zxid(),
                            began.elapsed().as_millis()
                        );
                    }
                    Ok(false) => {
                        tracing::info!("the snapshot at {} was given up", job.zxid());
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
        core.snapshots.done();
    }
}

/// Writes one snapshot: to the side, synced, then renamed. False if it was given up: because `go_on`
/// said so, or because the tree has been exchanged.
pub fn write<D: Disk>(
    store: &Store<D>,
    db: &Database,
    job: &mut SnapshotJob,
    go_on: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    let mut writer = store.snapshot_writer(job.zxid())?;
    let mut buffer = Vec::new();
    job.encode_head(&mut buffer);
    writer.write(&buffer)?;
    loop {
        buffer.clear();
        let slice = job.next_slice(db, &mut buffer);
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
