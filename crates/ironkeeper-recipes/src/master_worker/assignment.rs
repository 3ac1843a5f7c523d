//! A task in the hands of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bytes::Bytes;
use ironkeeper_client::{Client, Error, ErrorKind, Happened, OpResult, Transaction, Version};

use crate::error::{RecipeError, Result};
use crate::lost::Lost;
use crate::master_worker::status::{Record, State};
use crate::master_worker::worker::Shared;
use crate::place::patient;

/// Where a transaction writes the status: behind the proofs that worker and assignment are there.
const STATUS_AT: usize = 2;

/// A task that this worker has. End it with [`Assignment::done`] or [`Assignment::give_back`]; dropping it
/// gives it back in the background.
#[derive(Debug)]
#[must_use = "an assignment that is dropped is given back"]
pub struct Assignment {
    shared: Arc<Shared>,
    task: String,
    work: Bytes,
    attempt: u32,
    /// The version of the status, as far as we know. Whoever else writes there changes it: the paths are
    /// the same when the same worker has the task once more.
    version: AtomicI32,
    /// Whether it is still to be given back.
    is_open: bool,
}

impl Assignment {
    /// `None` if it was taken away meanwhile.
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

    /// The name of the task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// What is to be done.
    pub fn work(&self) -> &Bytes {
        &self.work
    }

    /// The how-manieth worker has this task: 1 for the first. An earlier one may have done a part.
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

    /// A transaction that takes place only as long as the worker is there and has this task, by checks
    /// that the server makes.
    pub fn transaction(&self) -> Transaction {
        self.shared.guard.transaction().check(&self.path(), Version::Any)
    }

    /// Resolves when the task is not this worker's any more: it was taken away or cancelled, or the
    /// worker counts as gone.
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

    /// Tells how far it is: [`Status::Assigned`](super::Status::Assigned) has it.
    pub async fn report(&self, progress: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path();
        let check = |all: Transaction| all.check(&path, Version::Any);
        self.write(State::Assigned, progress.as_ref(), check, |all| all).await
    }

    /// Ends it: the task is done, and this came of it.
    pub async fn done(self, result: impl AsRef<[u8]>) -> Result<()> {
        self.done_with(result, |transaction| transaction).await
    }

    /// Ends it, together with other writes: all of them take place, or none. [`RecipeError::Lost`] says
    /// that somebody else has the task now, and that nothing was written.
    pub async fn done_with(
        mut self,
        result: impl AsRef<[u8]>,
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let task = self.shared.layout.task(&self.task);
        let more = |all: Transaction| more(all.delete(&task, Version::Any));
        self.end(State::Done, result.as_ref(), more).await
    }

    /// Gives it back, to be done by somebody else, or by the same worker once more.
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
        // Whatever the server had against other writes, the task is still ours then.
        let is_ours = matches!(&ended, Err(error) if !matches!(error, RecipeError::Lost { .. }));
        self.is_open = is_ours;
        ended
    }

    /// Writes the status once, if the task is still ours by this very attempt. `touch` adds what proves that
    /// it is, or ends it.
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
                    // Finished, and forgotten by whoever submitted it.
                    return Err(doubt.map_or_else(|| self.lost_to_others(), Into::into));
                }
                Err(error) => return Err(error.into()),
            };
            // An earlier try took place if the status is ours: nobody else writes these words.
            if doubt.is_some() && found.data == record {
                self.version.store(found.stat.version, Ordering::Relaxed);
                return Ok(());
            }
            let now = Record::decode(&status, &found.data)?;
            let is_ours = now.state == State::Assigned
                && (now.attempt, &*now.worker) == (self.attempt, self.shared.guard.node_name());
            if is_ours && is_outdated {
                // By a report whose answer nobody waited for.
                self.version.store(found.stat.version, Ordering::Relaxed);
            } else if is_ours {
                return Err(self.refused(error));
            } else if doubt.is_some() && state == State::Returned && now.attempt > self.attempt {
                // Given back it was, and it has been handed out since: a worker that is there has no
                // task taken away from it.
                return Ok(());
            } else {
                return Err(self.lost_to_others());
            }
        }
    }

    fn lost_to_others(&self) -> RecipeError {
        RecipeError::Lost { path: self.path(), why: Lost::NodeDeleted }
    }

    /// The first two operations are the proofs that the task is ours.
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
        // If the worker is gone, the master takes the task from it.
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
                Err(error) => tracing::warn!(task, %error, "a dropped task is not given back"),
            }
            // Not given back a second time.
            again.is_open = false;
        });
    }
}
