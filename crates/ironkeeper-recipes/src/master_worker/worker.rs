//! The worker, which executes the tasks that are assigned to it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use tokio::sync::Mutex;

use crate::cache::{CacheEvent, CacheEvents, ChildrenCache};
use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lost::Lost;
use crate::master_worker::assignment::Assignment;
use crate::master_worker::layout::{Layout, WORKER};
use crate::place::{Place, name_of, patient};

/// A worker. Its node is deleted when the worker and all of its assignments are dropped.
///
/// To work on several tasks at a time, call [`Worker::next`] before the earlier tasks are done.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    inbox: Mutex<Inbox>,
    _cache: ChildrenCache,
}

#[derive(Debug)]
struct Inbox {
    events: CacheEvents,
    /// Assignments of which an event was received and that [`Worker::next`] has not returned yet. A
    /// name stays here until its assignment is returned, because the future of `next` may be
    /// dropped.
    heard: VecDeque<String>,
}

/// The part of a worker that its assignments share. The worker's node exists until the last of them
/// is dropped.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) guard: Guard,
    pub(super) layout: Layout,
}

impl Worker {
    /// Joins as a worker that executes up to `capacity` tasks at a time. `id` is visible to other
    /// clients.
    pub async fn join(client: &Client, path: &str, id: &str, capacity: usize) -> Result<Worker> {
        if capacity == 0 {
            return Err(RecipeError::Misuse(format!("{path}: a worker that can do nothing")));
        }
        let layout = Layout::new(path);
        layout.ensure(client).await?;
        let (data, mode) = (format!("{capacity} {id}"), CreateMode::EphemeralSequential);
        let place = Place::take(client, &layout.workers, WORKER[0], data.as_bytes(), mode).await?;
        let cache = ChildrenCache::start(client, layout.assignments(place.name()));
        let shared = Arc::new(Shared { guard: Guard::new(place), layout });
        let inbox = Mutex::new(Inbox { events: cache.events(), heard: VecDeque::new() });
        Ok(Worker { shared, inbox, _cache: cache })
    }

    /// Returns the name of the worker's node, which statuses contain.
    pub fn name(&self) -> &str {
        self.shared.guard.node_name()
    }

    /// Returns the guard of the worker's node. Its fencing token grows from worker to worker.
    pub fn guard(&self) -> &Guard {
        &self.shared.guard
    }

    /// Resolves when the worker is lost: the session has ended, or another client has deleted its
    /// node.
    pub async fn lost(&self) -> Lost {
        self.shared.guard.lost().await
    }

    /// Waits for the next task. Returns an error when the worker is lost. The future may be dropped
    /// at any await: the next call returns the task then.
    pub async fn next(&self) -> Result<Assignment> {
        let mut inbox = self.inbox.lock().await;
        let Inbox { events, heard } = &mut *inbox;
        let lost = self.lost();
        tokio::pin!(lost);
        loop {
            while let Some(task) = heard.front() {
                let begun = Assignment::begin(&self.shared, task).await;
                // A client error is retried by the next call. A malformed status stays malformed.
                if !matches!(&begun, Err(error) if error.client_error().is_some()) {
                    heard.pop_front();
                }
                if let Some(assignment) = begun? {
                    return Ok(assignment);
                }
            }
            let event = tokio::select! {
                biased;
                why = &mut lost => {
                    let path = self.shared.guard.path().to_owned();
                    return Err(RecipeError::Lost { path, why });
                }
                event = events.next() => event,
            };
            match event {
                Some(CacheEvent::Created(node)) => heard.push_back(name_of(&node.path).to_owned()),
                Some(CacheEvent::Ended(why)) => return Err(why),
                Some(_) => {}
                None => {
                    return Err(RecipeError::Closed { path: self.shared.guard.path().to_owned() });
                }
            }
        }
    }

    /// Deletes the worker's node and waits for the reply. The master reassigns its unfinished
    /// tasks.
    pub async fn leave(self) -> Result<()> {
        let guard = &self.shared.guard;
        let lost = |why| RecipeError::Lost { path: guard.path().to_owned(), why };
        match guard.client().delete_idempotent(guard.path(), Version::Any, &patient()).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NoNode => Err(lost(Lost::NodeDeleted)),
            Err(error) if error.is_session_over() => Err(lost(Lost::SessionEnded)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the capacity in the data of a worker's node, 0 if the data is malformed.
pub(super) fn capacity_of(data: &Bytes) -> usize {
    let text = std::str::from_utf8(data).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
