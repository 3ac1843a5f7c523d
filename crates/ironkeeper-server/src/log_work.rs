//! The work of the log thread: appends, one sync for many of them, other durable steps in between.
//!
//! It uses no thread, no clock and no wait, so that the simulator runs it on a simulated disk.

use ironkeeper_engine::Input;
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{LogWriter, SnapshotWriter};
use ironkeeper_zab::{Durable, DurableStep};

use crate::durable_steps::DurableSteps;
use crate::snapshot_thread::SnapshotQueue;

/// An item of the log thread: the engine's item, with the file of the snapshot to install.
pub type LogItem<D = RealDisk> = ironkeeper_engine::LogItem<Box<SnapshotWriter<D>>>;

/// Whether a batch is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// The disk is full. The caller passes the rest of the batch again later.
    NoRoom,
}

/// The log writer and the executor of the other durable steps. One thread owns them.
#[derive(Debug)]
pub struct LogWork<D: Disk = RealDisk> {
    writer: LogWriter<D>,
    steps: DurableSteps<D>,
    /// The size above which a new file begins, if set.
    file_bytes_max: Option<u64>,
    unsynced: Unsynced,
}

/// The transactions appended since the last sync.
#[derive(Debug, Default)]
struct Unsynced {
    last: Option<Zxid>,
    txns: u64,
}

impl<D: Disk> LogWork<D> {
    pub fn new(steps: DurableSteps<D>, file_bytes_max: Option<u64>) -> LogWork<D> {
        let writer = steps.store.log_writer();
        LogWork { writer, steps, file_bytes_max, unsynced: Unsynced::default() }
    }

    /// Executes a batch in order. `commit` syncs the writer, which has this number of transactions,
    /// or returns [`Progress::NoRoom`]. `report` receives the inputs for the engine, each as soon
    /// as its step is complete. The error is the reason to stop the server.
    pub fn perform(
        &mut self,
        batch: &mut Vec<LogItem<D>>,
        snapshots: &SnapshotQueue,
        mut commit: impl FnMut(&mut LogWriter<D>, u64) -> Result<Progress, String>,
        mut report: impl FnMut(Input),
    ) -> Result<Progress, String> {
        for at in 0..batch.len() {
            let joins_batch =
                matches!(batch[at], LogItem::Step(DurableStep::Append { .. }) | LogItem::Roll);
            if !joins_batch && self.sync(&mut commit, &mut report)? == Progress::NoRoom {
                batch.drain(..at);
                return Ok(Progress::NoRoom);
            }
            match std::mem::replace(&mut batch[at], LogItem::Roll) {
                LogItem::Step(step) => self.step(step, snapshots, &mut report)?,
                LogItem::Roll => self.writer.roll(),
            }
        }
        batch.clear();
        self.sync(&mut commit, &mut report)
    }

    /// Executes one step. Before a step other than an append, the caller has synced all appends.
    fn step(
        &mut self,
        step: DurableStep<Box<SnapshotWriter<D>>>,
        snapshots: &SnapshotQueue,
        report: &mut impl FnMut(Input),
    ) -> Result<(), String> {
        let LogWork { steps, writer, .. } = self;
        let done = match step {
            DurableStep::Append { zxid, txn } => {
                let appended = writer.append(zxid, &txn);
                appended.map_err(|error| format!("the log cannot be written: {error}"))?;
                self.unsynced.last = Some(zxid);
                self.unsynced.txns += 1;
                return Ok(());
            }
            DurableStep::WriteMembers(change) => return steps.write_members(&change),
            DurableStep::WriteAcceptedEpoch(epoch) => steps.write_accepted_epoch(epoch)?,
            DurableStep::WriteCurrentEpoch(epoch) => steps.write_current_epoch(epoch)?,
            DurableStep::Truncate(zxid) => steps.truncate(zxid, writer, snapshots, report)?,
            DurableStep::InstallSnapshot { zxid, snapshot } => {
                steps.install_snapshot(zxid, *snapshot, writer, snapshots, report)?
            }
        };
        report(Input::Durable(done));
        Ok(())
    }

    fn sync(
        &mut self,
        commit: &mut impl FnMut(&mut LogWriter<D>, u64) -> Result<Progress, String>,
        report: &mut impl FnMut(Input),
    ) -> Result<Progress, String> {
        let Some(last) = self.unsynced.last else { return Ok(Progress::Done) };
        if commit(&mut self.writer, self.unsynced.txns)? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        self.unsynced = Unsynced::default();
        if self.file_bytes_max.is_some_and(|max| self.writer.bytes_in_file() > max) {
            self.writer.roll();
        }
        report(Input::Durable(Durable::Flushed(last)));
        Ok(Progress::Done)
    }
}
