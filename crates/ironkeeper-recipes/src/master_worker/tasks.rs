//! Tasks, for the clients that submit them.

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Transaction, Version};

use crate::error::Result;
use crate::master_worker::layout::{Layout, TASK};
use crate::master_worker::status::{Outcome, Record, State, Status};
use crate::place::{join, name_of, patient};
use crate::queue_of_waiters::line_up;
use crate::reads::children_or_none;

/// The tasks on a path. See [`Master`](super::Master) for an example.
#[derive(Clone, Debug)]
pub struct Tasks {
    client: Client,
    layout: Layout,
}

impl Tasks {
    /// Opens the tasks of the masters and workers on `path`, which need not run yet.
    pub async fn open(client: &Client, path: &str) -> Result<Tasks> {
        let layout = Layout::new(path);
        layout.ensure(client).await?;
        Ok(Tasks { client: client.clone(), layout })
    }

    /// Submits a task. The task stays until it is finished, independently of this process. If the
    /// future is dropped, the task is submitted once or not at all.
    pub async fn submit(&self, work: impl AsRef<[u8]>) -> Result<Task> {
        let (path, mode) = (join(&self.layout.tasks, TASK[0]), CreateMode::PersistentSequential);
        let created = self.client.create_protected(&path, work, mode, &patient()).await?;
        Ok(self.task(name_of(&created.path)))
    }

    /// Returns a task by its name, for instance a task that another process has submitted.
    pub fn task(&self, name: &str) -> Task {
        Task { client: self.client.clone(), layout: self.layout.clone(), name: name.to_owned() }
    }

    /// Returns the unfinished tasks, in the order of submission.
    pub async fn unfinished(&self) -> Result<Vec<Task>> {
        let names = children_or_none(&self.client, &self.layout.tasks).await?;
        Ok(line_up(&names, TASK, None).iter().map(|found| self.task(found.name)).collect())
    }
}

/// A handle of a submitted task. Dropping it does not change the task.
#[derive(Clone, Debug)]
pub struct Task {
    client: Client,
    layout: Layout,
    name: String,
}

impl Task {
    /// Returns the name of the task, which identifies it in every process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status of the task. `None` if there is no such task: it was forgotten.
    pub async fn status(&self) -> Result<Option<Status>> {
        if let Some((record, _)) = self.record().await? {
            return Ok(Some(record.status()));
        }
        let (client, path) = (&self.client, self.layout.task(&self.name));
        let task = client.retry(&patient(), || client.exists(&path)).await?;
        Ok(task.map(|_| Status::Waiting))
    }

    async fn record(&self) -> Result<Option<(Record, i32)>> {
        let (client, path) = (&self.client, self.layout.status(&self.name));
        match client.retry(&patient(), || client.get(&path)).await {
            Ok(node) => Ok(Some((Record::decode(&path, &node.data)?, node.stat.version))),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the task is finished. If another client cancelled or forgot it, the result is
    /// [`Outcome::Cancelled`].
    pub async fn outcome(&self) -> Result<Outcome> {
        let (client, path) = (&self.client, self.layout.status(&self.name));
        loop {
            let watch = match client.retry(&patient(), || client.get_and_watch(&path)).await {
                Ok((node, watch)) => {
                    let status = Record::decode(&path, &node.data)?.status();
                    if let Status::Finished(outcome) = status {
                        return Ok(outcome);
                    }
                    watch
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    let looked =
                        client.retry(&patient(), || client.exists_and_watch(&path)).await?;
                    let (None, watch) = looked else { continue };
                    if self.status().await?.is_none() {
                        return Ok(Outcome::Cancelled);
                    }
                    watch
                }
                Err(error) => return Err(error.into()),
            };
            watch.await?;
        }
    }

    /// Cancels the task if it is not finished. Returns its outcome: cancelled, or the outcome that
    /// was written earlier. The worker that has the task is notified ([`Assignment::lost`]), but
    /// may have executed a part of it.
    ///
    /// [`Assignment::lost`]: super::Assignment::lost
    pub async fn cancel(&self) -> Result<Outcome> {
        // The operator may have deleted the assignment.
        let mut has_assignment = true;
        loop {
            let (all, status) = (self.client.transaction(), self.layout.status(&self.name));
            let cancelled = |attempt| Record::new(State::Cancelled, attempt, "", b"").encode();
            let found = self.record().await?;
            let all: Transaction = match found
                .map(|(record, version)| (record.clone().status(), record, version))
            {
                Some((Status::Finished(outcome), ..)) => return Ok(outcome),
                Some((Status::Assigned { worker, .. }, record, version)) if has_assignment => all
                    .delete(&self.layout.assignment(&worker, &self.name), Version::Any)
                    .set(&status, cancelled(record.attempt), version),
                Some((_, record, version)) => all.set(&status, cancelled(record.attempt), version),
                None if self.status().await?.is_none() => return Ok(Outcome::Cancelled),
                None => all.create(&status, cancelled(0), CreateMode::Persistent),
            };
            match all.delete(&self.layout.task(&self.name), Version::Any).commit().await {
                Ok(_) => return Ok(Outcome::Cancelled),
                Err(error)
                    if error.kind() == ErrorKind::NoNode
                        && error
                            .path()
                            .is_some_and(|path| path.starts_with(&self.layout.assign)) =>
                {
                    has_assignment = false;
                }
                // The task was assigned, reported or finished meanwhile: read the status again.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::BadVersion
                    ) => {}
                Err(error) if error.is_retriable() => {
                    self.client.retry(&patient(), || self.client.sync(&status)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes the status of a finished task, with its result; otherwise the status stays forever.
    /// Has no effect on an unfinished task.
    pub async fn forget(self) -> Result<()> {
        let (client, path) = (&self.client, self.layout.status(&self.name));
        if let Some((record, version)) = self.record().await?
            && matches!(record.status(), Status::Finished(_))
        {
            match client.delete_idempotent(&path, version, &patient()).await {
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns the work of the task, or `None` if the task is finished.
    pub async fn work(&self) -> Result<Option<Bytes>> {
        let (client, path) = (&self.client, self.layout.task(&self.name));
        match client.retry(&patient(), || client.get(&path)).await {
            Ok(node) => Ok(Some(node.data)),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
