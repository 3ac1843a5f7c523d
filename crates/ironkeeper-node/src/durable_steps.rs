//! The durable steps of a member other than appends: its epochs, the membership, truncation of the
//! log and installation of a snapshot.
//!
//! [`LogWork`](crate::log_work::LogWork) executes them in order with its appends. An error of a
//! step ends the server.

use std::fmt;
use std::io;

use ironkeeper_engine::recover::Recovered;
use ironkeeper_proto::{Epoch, Membership, Zxid};
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{LogWriter, SnapshotWriter, Store, StoreError};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::{Durable, MembersChange};

use crate::log_work::LogDriver;
use crate::recovery::{self, ServerKind};

/// The report of a step. After a truncation or an installation it contains the state recovered from
/// the files.
pub type Done = Durable<Box<Recovered>>;

/// The files of the membership. Each function returns when the change is durable.
pub trait MemberFiles: fmt::Debug + Send {
    /// Writes a proposed membership.
    fn write_proposed(&self, next: &Membership) -> io::Result<()>;
    /// Writes the membership in force, which replaces earlier proposals.
    fn write_committed(&self, committed: &Membership) -> io::Result<()>;
    /// Deletes a proposed membership that was not committed.
    fn withdraw_proposed(&self) -> io::Result<()>;
}

/// The executor of durable steps, see the head of this file.
#[derive(Debug)]
pub struct DurableSteps<D: Disk = RealDisk> {
    pub store: Store<D>,
    pub tree: TreeConfig,
    pub kind: ServerKind,
    /// The files of the membership; without them, changes of the membership are not written.
    pub files: Option<Box<dyn MemberFiles>>,
}

impl<D: Disk> DurableSteps<D> {
    pub fn write_accepted_epoch(&self, epoch: Epoch) -> Result<Done, String> {
        let written = self.store.write_accepted_epoch(epoch);
        written.map_err(|error| format!("a promise cannot be written down: {error}"))?;
        Ok(Durable::AcceptedEpoch(epoch))
    }

    pub fn write_current_epoch(&self, epoch: Epoch) -> Result<Done, String> {
        let written = self.store.write_current_epoch(epoch);
        written.map_err(|error| format!("the epoch cannot be written down: {error}"))?;
        Ok(Durable::CurrentEpoch(epoch))
    }

    /// Truncates the log after `zxid`. `writer` must have committed all of its transactions.
    pub fn truncate(
        &self,
        zxid: Zxid,
        writer: &mut LogWriter<D>,
        driver: &mut impl LogDriver<D>,
    ) -> Result<Done, String> {
        // The history of a standalone server is not truncated: `install_snapshot` copies it before
        // the leader's snapshot replaces it.
        if self.was_standalone()? {
            return Ok(Durable::CannotTruncate(zxid));
        }
        driver.without_snapshots(|| {
            *writer = self.store.log_writer();
            match self.store.truncate_log(zxid) {
                Ok(()) => {
                    tracing::info!(%zxid, "log truncated to the leader's history");
                    Ok(Durable::Truncated { zxid, state: self.recover()? })
                }
                Err(error @ StoreError::CannotTruncate { .. }) => {
                    tracing::info!(%error, "log cannot be truncated, snapshot required");
                    Ok(Durable::CannotTruncate(zxid))
                }
                Err(error) => Err(format!("the log cannot be cut: {error}")),
            }
        })
    }

    /// Replaces the history by a leader's snapshot. `writer` must have committed all of its
    /// transactions.
    pub fn install_snapshot(
        &self,
        zxid: Zxid,
        snapshot: SnapshotWriter<D>,
        writer: &mut LogWriter<D>,
        driver: &mut impl LogDriver<D>,
    ) -> Result<Done, String> {
        driver.without_snapshots(|| {
            *writer = self.store.log_writer();
            if self.was_standalone()? {
                self.set_aside()?;
            }
            let installed = self.store.install_snapshot(zxid, snapshot);
            installed.map_err(|error| format!("the leader's tree cannot be kept: {error}"))?;
            tracing::info!(%zxid, "leader's snapshot installed");
            Ok(Durable::Installed { zxid, state: self.recover()? })
        })
    }

    pub fn write_members(&self, change: &MembersChange) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        let written = match change {
            MembersChange::Proposed(next) => files.write_proposed(next),
            MembersChange::Committed(committed) => files.write_committed(committed),
            MembersChange::Withdrawn => files.withdraw_proposed(),
        };
        match written {
            // If the server may not write the configuration, the administrator keeps it up to date,
            // as with Apache's servers.
            Err(error) if is_for_others_to_write(error.kind()) => {
                tracing::warn!(
                    %error,
                    "membership file not writable, a restart uses the configuration file"
                );
                Ok(())
            }
            written => {
                written.map_err(|error| format!("the members cannot be written down: {error}"))
            }
        }
    }

    fn was_standalone(&self) -> Result<bool, String> {
        let looked = self.store.has_standalone_history();
        looked.map_err(|error| format!("the own history cannot be looked at: {error}"))
    }

    /// Copies the history of a standalone server, before the leader's snapshot replaces it:
    /// possibly no other server has it.
    fn set_aside(&self) -> Result<(), String> {
        tracing::info!("copying the standalone history before joining the ensemble");
        let dir = self.store.set_aside().map_err(|error| {
            format!("this server was standalone, and what it has cannot be copied before it joins: {error}")
        })?;
        tracing::warn!(
            dir = %dir.display(),
            "standalone history replaced by the leader's, copy kept"
        );
        Ok(())
    }

    /// Recovers the state from the files.
    fn recover(&self) -> Result<Box<Recovered>, String> {
        let recovery = recovery::recover(&self.store, self.tree, self.kind, || {})
            .map_err(|error| error.to_string())?;
        Ok(Box::new(recovery.recovered))
    }
}

/// Returns whether the error shows that the server may not write the file or its directory.
/// Replacing a file that is a mount point fails with `ResourceBusy`.
fn is_for_others_to_write(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error, PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

/// Withdraws a proposed membership whose transaction is not in the log, and returns the proposal if
/// it remains.
///
/// A membership is written to its file before its transaction is appended. Without the transaction
/// this server has acknowledged nothing, so the proposal must not count: neither now nor when the
/// log has reached a higher zxid.
pub fn withdraw_unlogged(
    files: Option<&dyn MemberFiles>,
    proposed: Option<Membership>,
    last_logged: Zxid,
) -> io::Result<Option<Membership>> {
    let is_logged = |next: &Membership| {
        let zxid = Zxid(next.version);
        // The first leader assigns the version `(epoch, 0)` without a transaction.
        zxid.counter() == 0 || zxid <= last_logged
    };
    match proposed {
        Some(next) if !is_logged(&next) => {
            let zxid = Zxid(next.version);
            tracing::info!(%zxid, "proposed membership withdrawn, it was never logged");
            files.map_or(Ok(()), |files| files.withdraw_proposed())?;
            Ok(None)
        }
        kept => Ok(kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_simdisk::SimDisk;
    use ironkeeper_store::{Dirs, StoreOptions};
    use std::sync::Mutex;

    /// Membership files on which every write fails.
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

    /// Membership files that record a withdrawal.
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
            *self.0.lock().expect("no holder of the lock panics") = true;
            Ok(())
        }
    }

    fn committed(files: Refusing) -> Result<(), String> {
        let dirs = Dirs::single("/data");
        let store = Store::open(SimDisk::new(7), dirs, StoreOptions::default()).expect("it is new");
        let (tree, kind) = (TreeConfig::default(), ServerKind::Standalone);
        let steps = DurableSteps { store, tree, kind, files: Some(Box::new(files)) };
        steps.write_members(&MembersChange::Committed(Box::default()))
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
            // The version that the first leader assigns.
            (0x2_0000_0000, 0x1_0000_0009, true),
        ] {
            let files = Noting::default();
            let next = Membership { version, ..Membership::default() };
            let left = withdraw_unlogged(Some(&files), Some(next.clone()), Zxid(last));
            assert_eq!(left.expect("it was withdrawn"), is_kept.then_some(next));
            assert_eq!(*files.0.lock().expect("no holder of the lock panics"), !is_kept);
        }
    }
}
