//! Disk operations of servers, by the product's own code, and their interruption.

use ironkeeper_engine::Input;
use ironkeeper_engine::snapshot::SnapshotJob;
use ironkeeper_node::{LogDriver, Progress, read_log, write_snapshot};
use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::LogWriter;
use ironkeeper_zab::{Input as ZabInput, LinkId};

use super::node::Process;
use super::world::{Event, World};

/// The pause before a full disk is tried again.
const NO_ROOM_PAUSE_US: u64 = 1_000_000;
/// The approximate number of disk calls of a batch of the log.
const BATCH_CALLS: u64 = 10;
/// A learner receives the log instead of a snapshot up to this fraction of the snapshot's size.
const SNAPSHOT_SIZE_FACTOR: f64 = 0.33;

impl World {
    pub(super) fn disk_us(&mut self, node: usize) -> u64 {
        let (low, high) = self.nodes[node].disk_us;
        self.random.between(low, high)
    }

    /// Starts the next batch of the log, unless one is in progress.
    pub(super) fn begin_batch(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.is_writing || process.has_log_ended || process.queue.is_empty() {
            return;
        }
        process.is_writing = true;
        std::mem::swap(&mut process.queue, &mut process.batch);
        let in_us = self.disk_us(node);
        self.after(in_us, Event::DiskDone { node, boot });
    }

    pub(super) fn on_disk_done(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut done = Vec::new();
        let outcome = write_batch(process, &mut done);
        match outcome {
            Ok(Progress::Done) => process.is_writing = false,
            Ok(Progress::NoRoom) => {
                self.after(NO_ROOM_PAUSE_US, Event::DiskDone { node, boot });
            }
            Err(reason) => {
                process.has_log_ended = true;
                self.say(|| format!("{} ends: {reason}", node + 1));
                let may_fail = self.nodes[node].disk_may_fail();
                if !may_fail {
                    self.fail(Err(format!("disk: server {} ends: {reason}", node + 1)));
                }
                // Earlier results of the batch may or may not have been reported.
                if self.random.chance(500) {
                    self.input(node, done);
                }
                let how = self.end_of_failed_process();
                return self.stop(node, how);
            }
        }
        self.input(node, done);
        self.note_epochs(node);
    }

    /// Stops a server whose disk may be busy: a part of the batch or of the snapshot is executed.
    pub(super) fn interrupt_disk(&mut self, node: usize) {
        let disk = self.nodes[node].disk.clone();
        let begins = self.random.chance(500);
        let calls = self.random.below(BATCH_CALLS);
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.is_writing && !process.has_log_ended && begins {
            disk.fail_call(disk.calls() + calls, Fault::Stop);
            // The process has ended, so the results are dropped.
            let _ = write_batch(process, &mut Vec::new());
        } else if let Some(mut job) = process.snapshot.take().filter(|_| begins) {
            disk.fail_call(disk.calls() + calls, Fault::Stop);
            let _ = write_snapshot(&process.store, &process.db, &mut job, || true);
        }
    }

    pub(super) fn on_write_snapshot(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(mut job) = process.snapshot.take() else { return };
        let written = write_snapshot(&process.store, &process.db, &mut job, || true);
        let purged = process.store.purge(self.plan.snapshots_retained);
        process.inbox.push(Input::SnapshotDone(job.into_walk()));
        if let Err(error) = written.map(|_| ()).and(purged.map(|_| ()))
            && !self.nodes[node].disk_may_fail()
        {
            self.fail(Err(format!("disk: server {} takes no snapshot: {error}", node + 1)));
        }
        self.run_engine(node);
    }

    pub(super) fn on_log_read(&mut self, node: usize, link: LinkId, after: Zxid) {
        let Some(process) = &self.nodes[node].process else { return };
        let read = read_log(&process.store, after, Some(SNAPSHOT_SIZE_FACTOR), &process.db)
            .unwrap_or_default();
        self.input(node, [Input::Peer(ZabInput::LogRead { link, read })]);
    }
}

fn write_batch(process: &mut Process, done: &mut Vec<Input>) -> Result<Progress, String> {
    let Process { log, batch, snapshot, .. } = process;
    log.perform(batch, &mut Batch { snapshot, done })
}

/// The driver of the log work: reports are collected, and a snapshot is written in one event.
struct Batch<'a> {
    /// The snapshot that is not begun.
    snapshot: &'a mut Option<Box<SnapshotJob>>,
    done: &'a mut Vec<Input>,
}

impl LogDriver<SimDisk> for Batch<'_> {
    fn commit(&mut self, writer: &mut LogWriter<SimDisk>, _: u64) -> Result<Progress, String> {
        match writer.commit() {
            Ok(()) => Ok(Progress::Done),
            Err(error) if error.is_disk_full() => Ok(Progress::NoRoom),
            Err(error) => Err(format!("the log cannot be made durable: {error}")),
        }
    }

    fn report(&mut self, input: Input) {
        self.done.push(input);
    }

    fn without_snapshots<T>(&mut self, change: impl FnOnce() -> T) -> T {
        if let Some(job) = self.snapshot.take() {
            self.report(Input::SnapshotDone(job.into_walk()));
        }
        change()
    }
}
