//! The work of the log thread: appends, one sync for many of them, other durable steps in between.
//!
//! It uses no thread, no clock and no wait; [`LogDriver`] is what it needs of the threads around
//! it.

use ironkeeper_engine::Input;
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{LogWriter, SnapshotWriter};
use ironkeeper_zab::{Durable, DurableStep};

use crate::durable_steps::DurableSteps;

/// An item of the log thread: the engine's item, with the file of the snapshot to install.
pub type LogItem<D = RealDisk> = ironkeeper_engine::LogItem<Box<SnapshotWriter<D>>>;

/// Whether a batch is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// The disk is full. The caller passes the rest of the batch again later.
    NoRoom,
}

/// The threads around the log work: the driver syncs, receives the reports, and keeps snapshots
/// from being written while files are replaced.
pub trait LogDriver<D: Disk> {
    /// Syncs the writer, which has this number of unsynced transactions, or returns
    /// [`Progress::NoRoom`]. The error is the reason to stop the server.
    fn commit(&mut self, writer: &mut LogWriter<D>, txns: u64) -> Result<Progress, String>;

    /// Receives an input for the engine, as soon as its step is complete.
    fn report(&mut self, input: Input);

    /// Calls `change`, which replaces files, while no snapshot is being written. A snapshot that
    /// was not begun is dropped, and [`Input::SnapshotDone`] is reported for it first: its tree is
    /// about to be replaced.
    fn without_snapshots<T>(&mut self, change: impl FnOnce() -> T) -> T;
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

    /// Executes a batch in order. The error is the reason to stop the server.
    pub fn perform(
        &mut self,
        batch: &mut Vec<LogItem<D>>,
        driver: &mut impl LogDriver<D>,
    ) -> Result<Progress, String> {
        for at in 0..batch.len() {
            let joins_batch =
                matches!(batch[at], LogItem::Step(DurableStep::Append { .. }) | LogItem::Roll);
            if !joins_batch && self.sync(driver)? == Progress::NoRoom {
                batch.drain(..at);
                return Ok(Progress::NoRoom);
            }
            match std::mem::replace(&mut batch[at], LogItem::Roll) {
                LogItem::Step(step) => self.step(step, driver)?,
                LogItem::Roll => self.writer.roll(),
            }
        }
        batch.clear();
        self.sync(driver)
    }

    /// Executes one step. Before a step other than an append, the caller has synced all appends.
    fn step(
        &mut self,
        step: DurableStep<Box<SnapshotWriter<D>>>,
        driver: &mut impl LogDriver<D>,
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
            DurableStep::Truncate(zxid) => steps.truncate(zxid, writer, driver)?,
            DurableStep::InstallSnapshot { zxid, snapshot } => {
                steps.install_snapshot(zxid, *snapshot, writer, driver)?
            }
        };
        driver.report(Input::Durable(done));
        Ok(())
    }

    fn sync(&mut self, driver: &mut impl LogDriver<D>) -> Result<Progress, String> {
        let Some(last) = self.unsynced.last else { return Ok(Progress::Done) };
        if driver.commit(&mut self.writer, self.unsynced.txns)? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        self.unsynced = Unsynced::default();
        if self.file_bytes_max.is_some_and(|max| self.writer.bytes_in_file() > max) {
            self.writer.roll();
        }
        driver.report(Input::Durable(Durable::Flushed(last)));
        Ok(Progress::Done)
    }
}
