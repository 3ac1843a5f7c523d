//! One that does what it is given.

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

/// A worker. Dropping it takes it away: what it has is given to others.
///
/// Whoever works on several tasks at a time calls [`Worker::next`] before the earlier ones are done.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    inbox: Mutex<Inbox>,
    _cache: ChildrenCache,
}

#[derive(Debug)]
struct Inbox {
    events: CacheEvents,
    /// Tasks that were heard of and are not handed out yet. One stays here until it is, since the future
    /// that looks into it may be dropped.
    heard: VecDeque<String>,
}

/// What an assignment needs of its worker. The worker stays until the last of them is gone.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) guard: Guard,
    pub(super) layout: Layout,
}

impl Worker {
    /// Joins, as one that can work on so many tasks at a time. Others see the id.
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

    /// The name of its node, by which statuses call it.
    pub fn name(&self) -> &str {
        self.shared.guard.node_name()
    }

    /// What proves that it is there: its fencing token grows from worker to worker.
    pub fn guard(&self) -> &Guard {
        &self.shared.guard
    }

    /// Resolves when it counts as gone: the session is over, or somebody has deleted its node.
    pub async fn lost(&self) -> Lost {
        self.shared.guard.lost().await
    }

    /// Waits for the next task. An error when the worker counts as gone. May be dropped at any await:
    /// the next call gets the task then.
    pub async fn next(&self) -> Result<Assignment> {
        let mut inbox = self.inbox.lock().await;
        let Inbox { events, heard } = &mut *inbox;
        let lost = self.lost();
        tokio::pin!(lost);
        loop {
            while let Some(task) = heard.front() {
                let begun = Assignment::begin(&self.shared, task).await;
                // Without an answer it is asked again. What is no status will not become one.
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

    /// Leaves, and waits until that is done. What is still worked on is taken away.
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

/// What a worker's node says about what it can do. Whoever says nothing can do nothing.
pub(super) fn capacity_of(data: &Bytes) -> usize {
    let text = std::str::from_utf8(data).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
