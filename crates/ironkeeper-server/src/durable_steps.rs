//! What a member of an ensemble makes durable besides the log: its promises, the members, and a history
//! that goes back or is replaced.
//!
//! The log thread does these in order with what it appends.

use ironkeeper_engine::Input;
use ironkeeper_engine::io::DurableStep;
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{LogWriter, SnapshotWriter, Store, StoreError};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::Durable;

use crate::config::dynamic_files::DynamicFiles;
use crate::core::Core;
use crate::recovery::{self, For};

/// A step, with what it needs at hand.
#[derive(Debug)]
pub enum Step {
    Plain(DurableStep),
    /// A leader's tree is to become ours.
    Install {
        zxid: Zxid,
        tree: Box<SnapshotWriter<RealDisk>>,
    },
}

/// See the head of this file.
#[derive(Debug)]
pub struct DurableSteps {
    pub store: Store<RealDisk>,
    pub tree: TreeConfig,
    pub whom: For,
    /// Where changed members are written down, if there is a place for them.
    pub files: Option<DynamicFiles>,
}

impl DurableSteps {
    /// Does one step. `writer` has committed everything it was given. The answer goes to the engine;
    /// an error is the end of the server.
    pub fn perform(
        &self,
        step: Step,
        writer: &mut LogWriter<RealDisk>,
        core: &Core,
    ) -> Result<Option<Input>, String> {
        let done = |done| Ok(Some(Input::Peer(ironkeeper_zab::Input::Done(done))));
        match step {
            Step::Plain(DurableStep::WriteAcceptedEpoch(epoch)) => {
                let written = self.store.write_accepted_epoch(epoch);
                written.map_err(|error| format!("a promise cannot be written down: {error}"))?;
                done(Durable::AcceptedEpoch(epoch))
            }
            Step::Plain(DurableStep::WriteCurrentEpoch(epoch)) => {
                let written = self.store.write_current_epoch(epoch);
                written.map_err(|error| format!("the epoch cannot be written down: {error}"))?;
                done(Durable::CurrentEpoch(epoch))
            }
            Step::Plain(DurableStep::Truncate(zxid)) => {
                let _pause = hold_snapshots(core);
                *writer = self.store.log_writer();
                match self.store.truncate_log(zxid) {
                    Ok(()) => {
                        tracing::info!("the log was cut behind {zxid}, as the leader asked");
                        self.rebuilt(Durable::Truncated(zxid)).map(Some)
                    }
                    Err(error @ StoreError::CannotTruncate { .. }) => {
                        tracing::info!("the leader's whole tree is needed: {error}");
                        done(Durable::CannotTruncate(zxid))
                    }
                    Err(error) => Err(format!("the log cannot be cut: {error}")),
                }
            }
            Step::Plain(DurableStep::InstallSnapshot { .. }) => {
                Err("a leader's tree got lost on its way to the disk".to_owned())
            }
            Step::Install { zxid, tree } => {
                let _pause = hold_snapshots(core);
                *writer = self.store.log_writer();
                let installed = self.store.install_snapshot(zxid, *tree);
                installed.map_err(|error| format!("the leader's tree cannot be kept: {error}"))?;
                tracing::info!("took over the leader's tree at {zxid}");
                self.rebuilt(Durable::Installed(zxid)).map(Some)
            }
            Step::Plain(DurableStep::ConfigProposed(next)) => {
                self.write_members(|files| files.write_proposed(&next))
            }
            Step::Plain(DurableStep::ConfigCommitted(committed)) => {
                self.write_members(|files| files.write_committed(&committed))
            }
            Step::Plain(DurableStep::ConfigWithdrawn) => {
                self.write_members(DynamicFiles::withdraw_proposed)
            }
        }
    }

    /// What the files hold now.
    fn rebuilt(&self, done: Durable) -> Result<Input, String> {
        let (state, _, _) = recovery::recover(&self.store, self.tree, self.whom)
            .map_err(|error| error.to_string())?;
        Ok(Input::Rebuilt { state: Box::new(state), done })
    }

    fn write_members(
        &self,
        write: impl FnOnce(&DynamicFiles) -> std::io::Result<()>,
    ) -> Result<Option<Input>, String> {
        if let Some(files) = &self.files {
            write(files).map_err(|error| format!("the members cannot be written down: {error}"))?;
        }
        Ok(None)
    }
}

/// Keeps the snapshot thread away from files that are about to change.
fn hold_snapshots(core: &Core) -> crate::snapshot_thread::Pause<'_> {
    let (pause, unbegun) = core.snapshots.pause();
    if let Some(job) = unbegun {
        core.leave([Input::SnapshotDone(job.into_walk())]);
    }
    pause
}
