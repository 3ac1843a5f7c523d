//! A task in the hands of a worker.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::{Client, Error, ErrorKind, Happened, Transaction, Version};
use tokio::runtime::Handle;

use crate::error::{RecipeError, Result};
use crate::lost::Lost;
use crate::master_worker::status::{Record, State};
use crate::master_worker::worker::Shared;
use crate::place::patient;

/// A task that this worker has. End it with [`Assignment::done`] or [`Assignment::give_back`]; dropping it
/// gives it back in the background.
#[derive(Debug)]
#[must_use = "an assignment that is dropped is given back"]
pub struct Assignment {
    shared: Arc<Shared>,
    task: String,
    work: Bytes,
    attempt: u32,
    /// Whether it is still to be given back.
    is_open: bool,
    runtime: Handle,
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
            is_open: true,
            runtime: Handle::current(),
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
        let record = self.record(State::Assigned, progress.as_ref());
        let status = self.shared.layout.status(&self.task);
        // Repeated after a lost reply, it writes the same once more.
        let report = || self.transaction().set(&status, &record, Version::Any).commit();
        match self.client().retry(&patient(), report).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(error)),
        }
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
        let record = self.record(State::Done, result.as_ref());
        let task = self.shared.layout.task(&self.task);
        self.end(&record, |all| more(all.delete(&task, Version::Any))).await
    }

    /// Gives it back, to be done by somebody else, or by the same worker once more.
    pub async fn give_back(mut self, reason: impl AsRef<[u8]>) -> Result<()> {
        let record = self.record(State::Returned, reason.as_ref());
        self.end(&record, |all| all).await
    }

    async fn end(
        &mut self,
        record: &[u8],
        more: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let (client, path) = (self.client().clone(), self.path());
        let status = self.shared.layout.status(&self.task);
        let mut doubt: Option<Error> = None;
        let ended = loop {
            let all = self.shared.guard.transaction().delete(&path, Version::Any);
            let all = more(all.set(&status, record, Version::Any));
            match all.commit().await {
                Ok(_) => break Ok(()),
                Err(error) if error.is_retriable() => {
                    if error.happened() == Happened::Maybe {
                        doubt = Some(error);
                    }
                    // Waits for the next connection.
                    client.retry(&patient(), || client.sync(&path)).await?;
                }
                Err(error) => match doubt.take() {
                    // The first try took place if the status is ours: nobody else writes these words.
                    Some(lost) => match client.retry(&patient(), || client.get(&status)).await {
                        Ok(node) if node.data == record => break Ok(()),
                        Ok(_) => break Err(self.refused(error)),
                        // Finished, and forgotten by whoever submitted it.
                        Err(gone) if gone.kind() == ErrorKind::NoNode => break Err(lost.into()),
                        Err(error) => break Err(error.into()),
                    },
                    None => break Err(self.refused(error)),
                },
            }
        };
        // Whatever the server had against other writes, the task is still ours then.
        let is_ours = matches!(&ended, Err(error) if !matches!(error, RecipeError::Lost { .. }));
        self.is_open = is_ours;
        ended
    }

    /// The first two operations are the proofs that the task is ours.
    fn refused(&self, error: Error) -> RecipeError {
        if error.is_session_over() {
            return RecipeError::Lost { path: self.path(), why: Lost::SessionEnded };
        }
        match error.failed_operation() {
            Some(0 | 1) if error.kind() == ErrorKind::NoNode => {
                RecipeError::Lost { path: self.path(), why: Lost::NodeDeleted }
            }
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
            is_open: false,
            runtime: self.runtime.clone(),
        };
        self.runtime.spawn(async move {
            let task = again.task.clone();
            let mut again = again;
            let record = again.record(State::Returned, b"dropped");
            match again.end(&record, |all| all).await {
                Ok(()) | Err(RecipeError::Lost { .. }) => {}
                Err(error) => tracing::warn!(task, %error, "a dropped task is not given back"),
            }
            // Not given back a second time.
            again.is_open = false;
        });
    }
}
