//! A task that is assigned to a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bytes::Bytes;
use ironkeeper_client::{Client, Error, ErrorKind, Happened, OpResult, Transaction, Version};

use crate::error::{RecipeError, Result};
use crate::lost::Lost;
use crate::master_worker::status::{Record, State};
use crate::master_worker::worker::Shared;
use crate::place::patient;

/// The index of the operation that writes the status: after the checks of the worker's node and of
/// the assignment.
const STATUS_AT: usize = 2;

/// A task that is assigned to this worker. End it with [`Assignment::done`] or
/// [`Assignment::give_back`]; dropping it returns the task in the background.
#[derive(Debug)]
#[must_use = "an assignment that is dropped is given back"]
pub struct Assignment {
    shared: Arc<Shared>,
    task: String,
    work: Bytes,
    attempt: u32,
    /// The last known version of the status. The write is conditional on it, because a later
    /// attempt of the same worker has the same paths.
    version: AtomicI32,
    /// Whether `drop` has to return the task.
    is_open: bool,
}

impl Assignment {
    /// Returns `None` if the task is not assigned to this worker any more.
    pub(super) async fn begin(shared: &Arc<Shared>, task: &str) -> Result<Option<Assignment>> {
        let (client, layout) = (shared.guard.client(), &shared.layout);
        let worker = shared.guard.node_name();
        let (task_path, status_path) = (layout.task(task), layout.status(task));
        let read = async || {
            let (task, status) = (client.get(&task_path), client.get(&status_path));
            Ok::<_, Error>((task.await?, status.await?))
        };
        let (work, status) = match client.retry(&patient(), read).await {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = Record::decode(&status_path, &status.data)?;
        if record.state != State::Assigned || record.worker != worker {
            return Ok(None);
        }
        Ok(Some(Assignment {
            shared: shared.clone(),
            task: task.to_owned(),
            work: work.data,
            attempt: record.attempt,
            version: AtomicI32::new(status.stat.version),
            is_open: true,
        }))
    }

    /// Returns the name of the task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the work: the data of the task.
    pub fn work(&self) -> &Bytes {
        &self.work
    }

    /// Returns the number of this attempt, from 1. An earlier worker may have executed a part of
    /// the task.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    fn client(&self) -> &Client {
        self.shared.guard.client()
    }

    fn path(&self) -> String {
        self.shared.layout.assignment(self.shared.guard.node_name(), &self.task)
    }

    fn record(&self, state: State, said: &[u8]) -> Vec<u8> {
        Record::new(state, self.attempt, self.shared.guard.node_name(), said).encode()
    }

    /// Returns a transaction that the server applies only while the worker's node and this
    /// assignment exist.
    pub fn transaction(&self) -> Transaction {
        self.shared.guard.transaction().check(&self.path(), Version::Any)
    }

    /// Resolves when this worker does not have the task any more: it was reassigned or cancelled,
    /// or the worker is lost.
    pub async fn lost(&self) -> Lost {
        let (client, path) = (self.client(), self.path());
        let taken_away = async {
            loop {
                match client.retry(&patient(), || client.get_and_watch(&path)).await {
                    Ok((_, watch)) => {
                        if watch.await.is_err() {
                            return Lost::SessionEnded;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::NoNode => return Lost::NodeDeleted,
                    Err(_) => return Lost::SessionEnded,
                }
            }
        };
        tokio::select! {
            biased;
            lost = taken_away => lost,
            lost = self.shared.guard.lost() => lost,
        }
    }

    /// Writes the progress into the status, where [`Status::Assigned`](super::Status::Assigned)
    /// contains it.
    pub async fn report(&self, progress: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path();
        let check = |all: Transaction| all.check(&path, Version::Any);
        self.write(State::Assigned, progress.as_ref(), check, |all| all).await
    }

    /// Finishes the task with `result`.
    pub async fn done(self, result: impl AsRef<[u8]>) -> Result<()> {
        self.done_with(result, |transaction| transaction).await
    }

    /// Finishes the task together with other writes, in one transaction. [`RecipeError::Lost`]
    /// means that this worker does not have the task any more, and that nothing was written.
    pub async fn done_with(
        mut self,
        result: impl AsRef<[u8]>,
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let task = self.shared.layout.task(&self.task);
        let more = |all: Transaction| more(all.delete(&task, Version::Any));
        self.end(State::Done, result.as_ref(), more).await
    }

    /// Returns the task, to be assigned to another worker or to the same worker again.
    pub async fn give_back(mut self, reason: impl AsRef<[u8]>) -> Result<()> {
        self.end(State::Returned, reason.as_ref(), |all| all).await
    }

    async fn end(
        &mut self,
        state: State,
        said: &[u8],
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let path = self.path();
        let ended = self.write(state, said, |all| all.delete(&path, Version::Any), more).await;
        // With any other error, such as one of `more`, this worker still has the task.
        let is_ours = matches!(&ended, Err(error) if !matches!(error, RecipeError::Lost { .. }));
        self.is_open = is_ours;
        ended
    }

    /// Writes the status once, if this attempt still has the task. `touch` adds the operation that
    /// checks or deletes the assignment.
    async fn write(
        &self,
        state: State,
        said: &[u8],
        touch: impl Fn(Transaction) -> Transaction,
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let (client, record) = (self.client(), self.record(state, said));
        let status = self.shared.layout.status(&self.task);
        let mut doubt: Option<Error> = None;
        loop {
            let version = self.version.load(Ordering::Relaxed);
            let all = touch(self.shared.guard.transaction()).set(&status, &record, version);
            let error = match more(all).commit().await {
                Ok(results) => {
                    if let Some(OpResult::Set(stat)) = results.get(STATUS_AT) {
                        self.version.store(stat.version, Ordering::Relaxed);
                    }
                    return Ok(());
                }
                Err(error) if error.is_retriable() => {
                    if error.happened() == Happened::Maybe {
                        doubt = Some(error);
                    }
                    // Waits for the next connection.
                    client.retry(&patient(), || client.sync(&status)).await?;
                    continue;
                }
                Err(error) => error,
            };
            let is_outdated = error.kind() == ErrorKind::BadVersion
                && error.failed_operation() == Some(STATUS_AT);
            if doubt.is_none() && !is_outdated {
                return Err(self.refused(error));
            }
            let found = match client.retry(&patient(), || client.get(&status)).await {
                Ok(found) => found,
                Err(gone) if gone.kind() == ErrorKind::NoNode => {
                    // Finished, and forgotten by the client that submitted it.
                    return Err(doubt.map_or_else(|| self.lost_to_others(), Into::into));
                }
                Err(error) => return Err(error.into()),
            };
            // An earlier try was applied if the status has our data: only this attempt writes it.
            if doubt.is_some() && found.data == record {
                self.version.store(found.stat.version, Ordering::Relaxed);
                return Ok(());
            }
            let now = Record::decode(&status, &found.data)?;
            let is_ours = now.state == State::Assigned
                && (now.attempt, &*now.worker) == (self.attempt, self.shared.guard.node_name());
            if is_ours && is_outdated {
                // A report of this attempt, whose future was dropped, has changed the version.
                self.version.store(found.stat.version, Ordering::Relaxed);
            } else if is_ours {
                return Err(self.refused(error));
            } else if doubt.is_some() && state == State::Returned && now.attempt > self.attempt {
                // The task was returned and has been assigned since: the master does not reassign a
                // task whose worker's node exists.
                return Ok(());
            } else {
                return Err(self.lost_to_others());
            }
        }
    }

    fn lost_to_others(&self) -> RecipeError {
        RecipeError::Lost { path: self.path(), why: Lost::NodeDeleted }
    }

    /// Maps a rejection to an error. The first two operations are the checks of the worker's node
    /// and of the assignment.
    fn refused(&self, error: Error) -> RecipeError {
        if error.is_session_over() {
            return RecipeError::Lost { path: self.path(), why: Lost::SessionEnded };
        }
        match error.failed_operation() {
            Some(0 | 1) if error.kind() == ErrorKind::NoNode => self.lost_to_others(),
            _ => error.into(),
        }
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        // If the session has ended, the master reassigns the task.
        if !self.is_open || self.client().state().is_final() {
            return;
        }
        self.is_open = false;
        let again = Assignment {
            shared: self.shared.clone(),
            task: self.task.clone(),
            work: Bytes::new(),
            attempt: self.attempt,
            version: AtomicI32::new(self.version.load(Ordering::Relaxed)),
            is_open: false,
        };
        self.client().runtime().spawn(async move {
            let task = again.task.clone();
            let mut again = again;
            match again.end(State::Returned, b"dropped", |all| all).await {
                Ok(()) | Err(RecipeError::Lost { .. }) => {}
                Err(error) => tracing::warn!(task, %error, "dropped task not returned"),
            }
            // Prevents `drop` from returning the task a second time.
            again.is_open = false;
        });
    }
}
