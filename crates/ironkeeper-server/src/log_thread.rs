//! The log thread: appends transactions, syncs many of them at once, reports to the engine.
//!
//! The transactions that arrive during a sync are the next batch: group commit without timers. The
//! other durable steps of a member are executed in order with the appends.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::Input;
use ironkeeper_engine::planted::Place;
use ironkeeper_node::{LogDriver, LogItem, LogWork, Progress};
use ironkeeper_store::LogWriter;
use ironkeeper_store::disk::{self, RealDisk};

use crate::engine_driver::EngineDriver;
use crate::metrics::Metrics;

/// The wait between two attempts to write to a full disk.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);

/// The time between two log lines about a full disk.
const DISK_FULL_REPORT: Duration = Duration::from_secs(60);

/// The queue of the log thread. Bounded by the limit on outstanding requests.
#[derive(Debug, Default)]
pub struct LogQueue {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    items: Vec<LogItem>,
    closed: bool,
    /// Whether the thread is parked. A wake-up costs a system call, so a running thread gets none.
    waiting: bool,
}

impl LogQueue {
    /// Moves all of `items` to the end of the queue, in order.
    pub fn push(&self, items: &mut Vec<LogItem>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.items.append(items);
        if std::mem::take(&mut queue.waiting) {
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// Closes the queue: the thread writes the remaining items and ends.
    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.arrived.notify_one();
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).items.is_empty()
    }

    /// Waits for items and takes up to `max` of them. Returns false if the queue is closed and
    /// empty.
    fn take(&self, batch: &mut Vec<LogItem>, max: usize) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.items.is_empty() && !queue.closed {
            queue.waiting = true;
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.waiting = false;
        queue.move_to(batch, max);
        !batch.is_empty()
    }

    /// Adds items to the batch until `until`, until no item arrives for `quiet`, or until the batch
    /// has `max` items.
    fn gather(&self, batch: &mut Vec<LogItem>, max: usize, until: Instant, quiet: Duration) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while batch.len() < max {
            if queue.items.is_empty() {
                let left = until.saturating_duration_since(Instant::now()).min(quiet);
                if left.is_zero() || queue.closed {
                    return;
                }
                queue.waiting = true;
                let waited = self.arrived.wait_timeout(queue, left);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                queue.waiting = false;
                if queue.items.is_empty() {
                    return;
                }
            }
            queue.move_to(batch, max);
        }
    }
}

impl Queue {
    /// Moves items to the batch until it has `max`.
    fn move_to(&mut self, batch: &mut Vec<LogItem>, max: usize) {
        let room = max.saturating_sub(batch.len());
        if batch.is_empty() && self.items.len() <= room {
            std::mem::swap(&mut self.items, batch);
        } else {
            batch.extend(self.items.drain(..self.items.len().min(room)));
        }
    }
}

/// The settings of the log thread.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// The minimum time between two syncs, in which more writes are gathered.
    pub flush_delay: Duration,
    /// The gathering ends early when no write arrives for this long.
    pub flush_quiet: Duration,
    /// The maximum number of items in one batch.
    pub batch_max: usize,
    pub warn_after: Duration,
}

/// The log thread.
#[derive(Debug)]
pub struct LogThread {
    pub work: LogWork,
    pub settings: LogSettings,
    pub core: Arc<EngineDriver>,
    pub metrics: Arc<Metrics>,
}

impl LogThread {
    /// Runs the thread until the queue is closed. On a failure it stops the server.
    pub fn run(mut self) {
        // Otherwise, on a machine with few processors, this thread preempts after its sync the I/O
        // thread that is receiving the next writes, and the next sync covers fewer of them: 64
        // clients with one write in flight each lose a fifth of their rate.
        disk::let_others_finish();
        let mut batch = Vec::new();
        let mut synced_at: Option<Instant> = None;
        let settings = self.settings;
        while self.core.log.take(&mut batch, settings.batch_max) {
            // After a pause the first write is synced at once: no other writes can share the sync.
            if !settings.flush_delay.is_zero()
                && let Some(until) = synced_at.and_then(|at| at.checked_add(settings.flush_delay))
            {
                self.core.log.gather(&mut batch, settings.batch_max, until, settings.flush_quiet);
            }
            if let Err(reason) = self.write(&mut batch) {
                return self.core.shutdown.fail(reason);
            }
            if !settings.flush_delay.is_zero() {
                synced_at = Some(Instant::now());
            }
            if self.core.member.is_some() || self.core.log.is_empty() {
                // If the queue is empty, applying the batch on this thread saves a wake-up. On a
                // member, other servers wait for the ACK or COMMIT: it is sent before the next
                // batch.
                self.core.run_and_send_events();
            } else {
                // An I/O thread applies the batch, so that the disk is not idle meanwhile.
                self.core.io[0].run_engine();
            }
        }
    }

    fn write(&mut self, batch: &mut Vec<LogItem>) -> Result<(), String> {
        let (settings, core, metrics) = (self.settings, &self.core, &self.metrics);
        core.db.planted_panic.strike(Place::Log);
        self.work.perform(batch, &mut Threads { settings, core, metrics })?;
        Ok(())
    }
}

/// The threads around the log thread.
struct Threads<'a> {
    settings: LogSettings,
    core: &'a EngineDriver,
    metrics: &'a Metrics,
}

impl LogDriver<RealDisk> for Threads<'_> {
    fn commit(&mut self, writer: &mut LogWriter<RealDisk>, txns: u64) -> Result<Progress, String> {
        let Threads { settings, core, metrics } = *self;
        commit(writer, txns, settings, core, metrics).map(|()| Progress::Done)
    }

    fn report(&mut self, input: Input) {
        self.core.enqueue([input]);
    }

    fn without_snapshots<T>(&mut self, change: impl FnOnce() -> T) -> T {
        let (_pause, unbegun) = self.core.snapshots.pause();
        if let Some(job) = unbegun {
            self.report(Input::SnapshotDone(job.into_walk()));
        }
        change()
    }
}

/// Returns whether a sync took so long that it is logged (`fsync.warningthresholdms`).
fn is_slow(took: Duration, warn_after: Duration) -> bool {
    took.as_millis() > warn_after.as_millis()
}

/// Syncs the batch, and retries while the disk is full. The error is the reason to stop the server.
fn commit(
    writer: &mut LogWriter<RealDisk>,
    txns: u64,
    settings: LogSettings,
    core: &EngineDriver,
    metrics: &Metrics,
) -> Result<(), String> {
    let mut reported: Option<Instant> = None;
    loop {
        let began = Instant::now();
        match writer.commit() {
            Ok(()) => {
                let took = began.elapsed();
                metrics.note_batch(txns, took);
                if is_slow(took, settings.warn_after) {
                    let (took_ms, limit_ms) = (took.as_millis(), settings.warn_after.as_millis());
                    let dir = writer.dir().display();
                    tracing::warn!(%dir, took_ms, limit_ms, "slow sync of the log");
                }
                if reported.is_some() {
                    core.db.disk_full.store(false, Relaxed);
                    tracing::warn!("disk has room again, writes continue");
                }
                return Ok(());
            }
            Err(error) if error.is_disk_full() => {
                core.db.disk_full.store(true, Relaxed);
                if reported.is_none_or(|at| at.elapsed() >= DISK_FULL_REPORT) {
                    reported = Some(Instant::now());
                    tracing::error!(%error, "disk full, writes wait for room");
                }
                if core.shutdown.has_begun() {
                    return Err(format!("the disk is full: {error}"));
                }
                std::thread::sleep(DISK_FULL_PAUSE);
            }
            Err(error) => return Err(format!("the log cannot be made durable: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn queue(count: usize) -> Arc<LogQueue> {
        let queue = Arc::new(LogQueue::default());
        push(&queue, count);
        queue
    }

    fn push(queue: &LogQueue, count: usize) {
        queue.push(&mut (0..count).map(|_| LogItem::Roll).collect());
    }

    #[test]
    fn a_sync_is_slow_from_the_configured_time_on() {
        let after = Duration::from_millis(20);
        assert!(!is_slow(Duration::from_micros(20_900), after));
        assert!(is_slow(Duration::from_millis(21), after));
    }

    #[test]
    fn a_batch_is_no_longer_than_it_may_be() {
        let queue = queue(5);
        let mut sizes = Vec::new();
        for _ in 0..3 {
            let mut batch = Vec::new();
            assert!(queue.take(&mut batch, 2));
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [2, 2, 1]);
        queue.close();
        assert!(!queue.take(&mut Vec::new(), 2));
    }

    #[test]
    fn gathering_ends_when_the_batch_is_full() {
        let queue = queue(1);
        let (arrived, told) = std::sync::mpsc::channel();
        let late = Arc::clone(&queue);
        let writer = std::thread::spawn(move || {
            told.recv().expect("the batch was begun");
            push(&late, 2);
            push(&late, 2);
        });
        let mut batch = Vec::new();
        queue.take(&mut batch, 4);
        arrived.send(()).expect("the writer waits");
        queue.gather(&mut batch, 4, Instant::now() + LONG, LONG);
        assert_eq!(batch.len(), 4);
        writer.join().expect("nothing to fail at");
        assert!(queue.take(&mut batch, 5) && batch.len() == 5, "the rest stays for the next batch");
    }

    #[test]
    fn gathering_ends_with_its_time_or_when_nothing_comes() {
        let queue = queue(0);
        let mut batch = vec![LogItem::Roll];
        queue.gather(&mut batch, 100, Instant::now(), LONG);
        queue.gather(&mut batch, 100, Instant::now() + LONG, Duration::from_millis(1));
        assert_eq!(batch.len(), 1);
    }
}
