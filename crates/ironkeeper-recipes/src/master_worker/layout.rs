//! The paths of the nodes.

use ironkeeper_client::{Client, CreateMode, CreateOptions};

use crate::error::Result;
use crate::place::{join, patient};
use crate::queue_of_waiters::Bases;

/// The end of the names of tasks, before the sequence number.
pub(super) const TASK: Bases = &["task-"];
/// The end of the names of workers, before the sequence number.
pub(super) const WORKER: Bases = &["worker-"];

#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) master: String,
    pub(super) workers: String,
    pub(super) tasks: String,
    pub(super) assign: String,
    pub(super) statuses: String,
}

impl Layout {
    pub(super) fn new(root: &str) -> Layout {
        let below = |name| join(root, name);
        Layout {
            master: below("master"),
            workers: below("workers"),
            tasks: below("tasks"),
            assign: below("assign"),
            statuses: below("status"),
        }
    }

    /// Creates the parents that transactions create children in.
    pub(super) async fn ensure(&self, client: &Client) -> Result<()> {
        let options = CreateOptions::new(CreateMode::Persistent);
        for parent in [&self.tasks, &self.assign, &self.statuses] {
            let below = join(parent, "any");
            client.retry(&patient(), || client.create_parents_with(&below, &options)).await?;
        }
        Ok(())
    }

    pub(super) fn task(&self, task: &str) -> String {
        join(&self.tasks, task)
    }

    pub(super) fn worker(&self, worker: &str) -> String {
        join(&self.workers, worker)
    }

    pub(super) fn assignments(&self, worker: &str) -> String {
        join(&self.assign, worker)
    }

    pub(super) fn assignment(&self, worker: &str, task: &str) -> String {
        join(&self.assignments(worker), task)
    }

    pub(super) fn status(&self, task: &str) -> String {
        join(&self.statuses, task)
    }
}
