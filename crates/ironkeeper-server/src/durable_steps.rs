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
            // A history of its own is not cut, but set aside when the leader's whole tree comes.
            Step::Plain(DurableStep::Truncate(zxid)) if self.was_standalone()? => {
                report(done(Durable::CannotTruncate(zxid)));
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
                if self.was_standalone()? {
                    self.set_aside()?;
                }
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

    fn was_standalone(&self) -> Result<bool, String> {
        let looked = self.store.has_standalone_history();
        looked.map_err(|error| format!("the own history cannot be looked at: {error}"))
    }

    /// The leader's history takes the place of ours, which perhaps nobody else has.
    fn set_aside(&self) -> Result<(), String> {
        tracing::info!("this server was standalone: what it has is copied before it joins");
        let dir = self.store.set_aside().map_err(|error| {
            format!("this server was standalone, and what it has cannot be copied before it joins: {error}")
        })?;
        tracing::warn!(
            "this server was standalone, and the leader's tree takes the place of what it had, of which there is \
             a copy in {0}; to see it, start a server with dataDir={0}",
            dir.display()
        );
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
            Some(files) => match write(&**files) {
                // Administrators who keep the configuration where the server cannot write keep it up to
                // date themselves, as with Apache's servers.
                Err(error) if is_for_others_to_write(error.kind()) => {
                    tracing::warn!(
                        "the members cannot be written down beside the configuration file ({error}): a \
                         restart begins with those that it names now"
                    );
                    Ok(())
                }
                written => {
                    written.map_err(|error| format!("the members cannot be written down: {error}"))
                }
            },
        }
    }
}

/// Whether a file, or its directory, is not ours to change. A mounted one cannot be replaced.
fn is_for_others_to_write(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error, PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

/// Members are written down before the transaction that proposes them. If that never came to be, then nobody has
/// promised anything about it, and they must not count: neither now nor when the log has got further. What is
/// left of the proposal comes back.
pub fn withdraw_unlogged(
    files: Option<&dyn MemberFiles>,
    proposed: Option<Membership>,
    last_logged: Zxid,
) -> io::Result<Option<Membership>> {
    let is_logged = |next: &Membership| {
        let zxid = Zxid(next.version);
        // The first leader gives the members a version by itself.
        zxid.counter() == 0 || zxid <= last_logged
    };
    match proposed {
        Some(next) if !is_logged(&next) => {
            tracing::info!("the members proposed by {} were never logged", Zxid(next.version));
            files.map_or(Ok(()), |files| files.withdraw_proposed())?;
            Ok(None)
        }
        kept => Ok(kept),
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

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_store::disk::sim::SimDisk;
    use ironkeeper_store::{Dirs, StoreOptions};
    use std::sync::Mutex;

    /// A place for members that takes none.
    #[derive(Debug)]
    struct Refusing(io::ErrorKind);

    impl MemberFiles for Refusing {
        fn write_proposed(&self, _: &Membership) -> io::Result<()> {
            Err(self.0.into())
        }

        fn write_committed(&self, _: &Membership) -> io::Result<()> {
            Err(self.0.into())
        }

        fn withdraw_proposed(&self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    /// Notes that something was withdrawn.
    #[derive(Debug, Default)]
    struct Noting(Mutex<bool>);

    impl MemberFiles for Noting {
        fn write_proposed(&self, _: &Membership) -> io::Result<()> {
            Ok(())
        }

        fn write_committed(&self, _: &Membership) -> io::Result<()> {
            Ok(())
        }

        fn withdraw_proposed(&self) -> io::Result<()> {
            *self.0.lock().expect("nobody panics") = true;
            Ok(())
        }
    }

    fn committed(files: Refusing) -> Result<(), String> {
        let dirs = Dirs::single("/data");
        let store = Store::open(SimDisk::new(7), dirs, StoreOptions::default()).expect("it is new");
        let mut writer = store.log_writer();
        let (tree, whom) = (TreeConfig::default(), For::Standalone);
        let steps = DurableSteps { store, tree, whom, files: Some(Box::new(files)) };
        let step = Step::Plain(DurableStep::ConfigCommitted(Box::default()));
        steps.perform(step, &mut writer, &SnapshotQueue::default(), &mut |_| {})
    }

    #[test]
    fn a_configuration_that_only_others_may_write_does_not_stop_the_server() {
        assert_eq!(committed(Refusing(io::ErrorKind::ReadOnlyFilesystem)), Ok(()));
        assert_eq!(committed(Refusing(io::ErrorKind::PermissionDenied)), Ok(()));
        assert!(committed(Refusing(io::ErrorKind::StorageFull)).is_err());
    }

    #[test]
    fn members_whose_proposal_was_never_logged_are_withdrawn_at_the_start() {
        for (version, last, is_kept) in [
            (0x2_0000_0005, 0x2_0000_0004, false),
            (0x2_0000_0005, 0x2_0000_0005, true),
            (0x2_0000_0005, 0x2_0000_0009, true),
            // Of the first leader.
            (0x2_0000_0000, 0x1_0000_0009, true),
        ] {
            let files = Noting::default();
            let next = Membership { version, ..Membership::default() };
            let left = withdraw_unlogged(Some(&files), Some(next.clone()), Zxid(last));
            assert_eq!(left.expect("it was withdrawn"), is_kept.then_some(next));
            assert_eq!(*files.0.lock().expect("nobody panics"), !is_kept);
        }
    }
}
