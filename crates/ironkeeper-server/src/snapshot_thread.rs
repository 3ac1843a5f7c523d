//! Writes snapshots in the background, and deletes files that are no longer needed.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::Input;
use ironkeeper_engine::snapshot::SnapshotJob;
use ironkeeper_node::write_snapshot;
use ironkeeper_store::Store;
use ironkeeper_store::disk::Disk;

use crate::engine_driver::EngineDriver;
use crate::metrics::Metrics;

/// The maximum number of files named in a log line.
const NAMED_MAX: usize = 8;

/// The snapshot thread's queue: at most one job, by the engine's rule, and the requests to stop or
/// to pause.
#[derive(Debug, Default)]
pub struct SnapshotQueue {
    queue: Mutex<Queue>,
    /// Notified when anything in the queue has changed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    job: Option<Box<SnapshotJob>>,
    closed: bool,
    /// The thread is working.
    busy: bool,
    /// The number of pauses that keep the thread from accessing files.
    pauses: usize,
}

/// A guard during which the snapshot thread accesses no file.
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

/// A guard that resets `busy` when the thread's work ends, even by a panic: the log thread may be
/// waiting for it.
struct Busy<'q>(&'q SnapshotQueue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.changed.notify_all();
    }
}

/// The next work of the thread.
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

    /// Has the thread abandon its work, and waits until it has. Returns a snapshot job that was not
    /// begun: its tree is about to be replaced.
    pub fn pause(&self) -> (Pause<'_>, Option<Box<SnapshotJob>>) {
        let mut queue = self.lock();
        queue.pauses += 1;
        while queue.busy {
            queue = self.wait(queue);
        }
        (Pause { queue: self }, queue.job.take())
    }

    /// Returns whether the thread may continue its work.
    fn may_go_on(&self) -> bool {
        self.lock().pauses == 0
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

/// When old files are deleted, and how many snapshots are kept.
#[derive(Clone, Copy, Debug)]
pub struct PurgeSettings {
    pub interval: Option<Duration>,
    /// Whether each snapshot is followed by a purge.
    pub after_snapshot: bool,
    pub retain: usize,
}

/// Runs the main loop of the thread.
pub fn run<D: Disk>(
    store: &Store<D>,
    purge: PurgeSettings,
    core: &Arc<EngineDriver>,
    metrics: &Metrics,
) {
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
                let written =
                    write_snapshot(store, &core.db, &mut job, || core.snapshots.may_go_on());
                match &written {
                    Ok(true) => {
                        metrics.note_snapshot(began.elapsed());
                        let took_ms = began.elapsed().as_millis();
                        let bytes = store.newest_snapshot_bytes().unwrap_or(0);
                        tracing::info!(%zxid, bytes, took_ms, "snapshot taken");
                    }
                    Ok(false) => tracing::info!(%zxid, "snapshot abandoned"),
                    // Everything is in the log; the next snapshot may succeed.
                    Err(error) => {
                        metrics.note_snapshot_error();
                        tracing::error!(%zxid, %error, "snapshot failed");
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
            let (files, names) = (removed.len(), names.join(", "));
            tracing::info!(files, names, "old files removed");
        }
        Err(error) => tracing::warn!(%error, "old files cannot be removed"),
    }
}
