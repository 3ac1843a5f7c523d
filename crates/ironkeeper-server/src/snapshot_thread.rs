//! Writes snapshots in the background, and removes files that are no longer needed.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_engine::{Database, Input};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};

use crate::core::Core;
use crate::metrics::Metrics;

/// Files that a line of the log names.
const NAMED_MAX: usize = 8;

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

/// What the thread is at, which ends with this even by a panic: the log thread may be waiting for
/// it.
struct Busy<'q>(&'q SnapshotQueue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.changed.notify_all();
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

    /// Waits for work. The thread counts as busy until a [`Busy`] is dropped.
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
    /// Whether each snapshot is followed by a purge.
    pub after_snapshot: bool,
    pub retain: usize,
}

/// The thread's life.
pub fn run<D: Disk>(store: &Store<D>, purge: PurgeSettings, core: &Arc<Core>, metrics: &Metrics) {
    let mut purge_at = purge.interval.map(|_| Instant::now());
    loop {
        let work = core.snapshots.next(purge_at);
        let _busy = Busy(&core.snapshots);
        match work {
            Work::End => return,
            Work::Purge => {
                purge_at = purge.interval.map(|interval| Instant::now() + interval);
                remove_old_files(store, purge.retain);
            }
            Work::Snapshot(mut job) => {
                let began = Instant::now();
                let zxid = job.zxid();
                let written = write(store, &core.db, &mut job, || core.snapshots.may_go_on());
                match &written {
                    Ok(true) => {
                        metrics.note_snapshot(began.elapsed());
                        let took_ms = began.elapsed().as_millis();
                        let bytes = store.newest_snapshot_bytes().unwrap_or(0);
                        tracing::info!(%zxid, bytes, took_ms, "snapshot taken");
                    }
                    Ok(false) => tracing::info!(%zxid, "the snapshot was given up"),
                    // Everything is in the log; the next snapshot may fare better.
                    Err(error) => {
                        metrics.note_snapshot_error();
                        tracing::error!("the snapshot was given up: {error}");
                    }
                }
                core.submit([Input::SnapshotDone(job.into_walk())]);
                if purge.after_snapshot && matches!(written, Ok(true)) {
                    remove_old_files(store, purge.retain);
                }
            }
        }
    }
}

fn remove_old_files<D: Disk>(store: &Store<D>, retain: usize) {
    match store.purge(retain) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
            let names: Vec<String> = removed.iter().take(NAMED_MAX).filter_map(name).collect();
            let more = if removed.len() > NAMED_MAX { ", ..." } else { "" };
            let (files, names) = (removed.len(), names.join(", "));
            tracing::info!(files, "old files removed: {names}{more}");
        }
        Err(error) => tracing::warn!("old files could not be removed: {error}"),
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
