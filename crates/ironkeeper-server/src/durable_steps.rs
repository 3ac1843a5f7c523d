//! What a member of an ensemble makes durable besides the log: its promises, the members, and a history
//! that goes back or is replaced.
//!
//! The log thread does these in order with what it appends.

use std::fmt;
use std::io;

use ironkeeper_engine::Input;
use ironkeeper_engine::io::DurableStep;
use ironkeeper_proto::{Membership, Zxid};
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{LogWriter, SnapshotWriter, Store, StoreError};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::Durable;

use crate::recovery::{self, For};
use crate::snapshot_thread::{Pause, SnapshotQueue};

/// A step, with what it needs at hand.
#[derive(Debug)]
pub enum Step<D: Disk = RealDisk> {
    Plain(DurableStep),
    /// A leader's tree is to become ours.
    Install {
        zxid: Zxid,
        tree: Box<SnapshotWriter<D>>,
    },
}

/// Where changed members are written down. Each returns when what it was told will be found again.
pub trait MemberFiles: fmt::Debug + Send {
    /// These members are proposed.
    fn write_proposed(&self, next: &Membership) -> io::Result<()>;
    /// These members are in force, whatever was proposed before.
    fn write_committed(&self, committed: &Membership) -> io::Result<()>;
    /// Members that were proposed have never come to be.
    fn withdraw_proposed(&self) -> io::Result<()>;
}

/// See the head of this file.
#[derive(Debug)]
pub struct DurableSteps<D: Disk = RealDisk> {
    pub store: Store<D>,
    pub tree: TreeConfig,
    pub whom: For,
    /// Where changed members are written down, if there is a place for them.
    pub files: Option<Box<dyn MemberFiles>>,
}

impl<D: Disk> DurableSteps<D> {
    /// Does one step. `writer` has committed everything it was given. What is reported goes to the
    /// engine; an error is the end of the server.
    pub fn perform(
        &self,
        step: Step<D>,
        writer: &mut LogWriter<D>,
        snapshots: &SnapshotQueue,
        report: &mut impl FnMut(Input),
    ) -> Result<(), String> {
        let done = |done| Input::Peer(ironkeeper_zab::Input::Done(done));
        match step {
            Step::Plain(DurableStep::WriteAcceptedEpoch(epoch)) => {
                let written = self.store.write_accepted_epoch(epoch);
                written.map_err(|error| format!("a promise cannot be written down: {error}"))?;
                report(done(Durable::AcceptedEpoch(epoch)));
            }
            Step::Plain(DurableStep::WriteCurrentEpoch(epoch)) => {
                let written = self.store.write_current_epoch(epoch);
                written.map_err(|error| format!("the epoch cannot be written down: {error}"))?;
                report(done(Durable::CurrentEpoch(epoch)));
            }
            Step::Plain(DurableStep::Truncate(zxid)) => {
                let _pause = hold_snapshots(snapshots, report);
                *writer = self.store.log_writer();
                match self.store.truncate_log(zxid) {
                    Ok(()) => {
                        tracing::info!("the log was cut behind {zxid}, as the leader asked");
                        report(self.rebuilt(Durable::Truncated(zxid))?);
                    }
                    Err(error @ StoreError::CannotTruncate { .. }) => {
                        tracing::info!("the leader's whole tree is needed: {error}");
                        report(done(Durable::CannotTruncate(zxid)));
                    }
                    Err(error) => return Err(format!("the log cannot be cut: {error}")),
                }
            }
            Step::Plain(DurableStep::InstallSnapshot { .. }) => {
                return Err("a leader's tree got lost on its way to the disk".to_owned());
            }
            Step::Install { zxid, tree } => {
                let _pause = hold_snapshots(snapshots, report);
                *writer = self.store.log_writer();
                let installed = self.store.install_snapshot(zxid, *tree);
                installed.map_err(|error| format!("the leader's tree cannot be kept: {error}"))?;
                tracing::info!("took over the leader's tree at {zxid}");
                report(self.rebuilt(Durable::Installed(zxid))?);
            }
            Step::Plain(DurableStep::ConfigProposed(next)) => {
                self.write_members(|files| files.write_proposed(&next))?;
            }
            Step::Plain(DurableStep::ConfigCommitted(committed)) => {
                self.write_members(|files| files.write_committed(&committed))?;
            }
            Step::Plain(DurableStep::ConfigWithdrawn) => {
                self.write_members(|files| files.withdraw_proposed())?;
            }
        }
        Ok(())
    }

    /// What the files hold now.
    fn rebuilt(&self, done: Durable) -> Result<Input, String> {
        let (state, _, _) = recovery::recover(&self.store, self.tree, self.whom)
            .map_err(|error| error.to_string())?;
        Ok(Input::Rebuilt { state: Box::new(state), done })
    }

    fn write_members(
        &self,
        write: impl FnOnce(&dyn MemberFiles) -> io::Result<()>,
    ) -> Result<(), String> {
        match &self.files {
            None => Ok(()),
            Some(files) => write(&**files)
                .map_err(|error| format!("the members cannot be written down: {error}")),
        }
    }
}

/// Keeps the snapshot thread away from files that are about to change.
fn hold_snapshots<'q>(snapshots: &'q SnapshotQueue, report: &mut impl FnMut(Input)) -> Pause<'q> {
    let (pause, unbegun) = snapshots.pause();
    if let Some(job) = unbegun {
        report(Input::SnapshotDone(job.into_walk()));
    }
    pause
}
