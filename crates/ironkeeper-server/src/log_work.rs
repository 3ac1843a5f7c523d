//! What the log thread does with its work: append, one sync for many writes, durable steps in between.
//!
//! Without a thread, a clock or a wait, so that the simulator does the same to a disk of its own.

use bytes::Bytes;
use ironkeeper_engine::Input;
use ironkeeper_proto::Zxid;
use ironkeeper_store::LogWriter;
use ironkeeper_store::disk::{Disk, RealDisk};

use crate::durable_steps::{DurableSteps, Step};
use crate::snapshot_thread::SnapshotQueue;

/// Work for the log thread.
#[derive(Debug)]
pub enum LogItem<D: Disk = RealDisk> {
    Append { zxid: Zxid, txn: Bytes },
    Roll,
    Step(Box<Step<D>>),
}

/// Whether a batch is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// The disk is full. What is left of the batch is to be given again when there may be room.
    NoRoom,
}

/// The log with what is written to it. One thread owns it.
#[derive(Debug)]
pub struct LogWork<D: Disk = RealDisk> {
    writer: LogWriter<D>,
    steps: DurableSteps<D>,
    /// Begin a new file above this size, if set.
    file_bytes_max: Option<u64>,
    unsynced: Unsynced,
}

/// What was appended since the last sync.
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

    /// Does a batch, in order. `commit` syncs the writer's so many transactions, or says that there is
    /// no room for them. `report` hears what the engine is to be told, as soon as it is so. An error is
    /// why the server has to stop.
    pub fn perform(
        &mut self,
        batch: &mut Vec<LogItem<D>>,
        snapshots: &SnapshotQueue,
        mut commit: impl FnMut(&mut LogWriter<D>, u64) -> Result<Progress, String>,
        mut report: impl FnMut(Input),
    ) -> Result<Progress, String> {
        for at in 0..batch.len() {
            if matches!(batch[at], LogItem::Step(_))
                && self.sync(&mut commit, &mut report)? == Progress::NoRoom
            {
                batch.drain(..at);
                return Ok(Progress::NoRoom);
            }
            match std::mem::replace(&mut batch[at], LogItem::Roll) {
                LogItem::Append { zxid, txn } => {
                    let appended = self.writer.append(zxid, &txn);
                    appended.map_err(|error| format!("the log cannot be written: {error}"))?;
                    self.unsynced.last = Some(zxid);
                    self.unsynced.txns += 1;
                }
                LogItem::Roll => self.writer.roll(),
                LogItem::Step(step) => {
                    self.steps.perform(*step, &mut self.writer, snapshots, &mut report)?;
                }
            }
        }
        batch.clear();
        self.sync(&mut commit, &mut report)
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
        report(Input::Flushed(last));
        Ok(Progress::Done)
    }
}
