//! The active master, which assigns the tasks, and its backups.

use std::collections::BTreeMap;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, Error, ErrorKind, Transaction, Version};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cache::{CacheEvent, CacheEvents, ChildrenCache};
use crate::election::{LeaderLatch, Leadership};
use crate::error::{RecipeError, Result};
use crate::master_worker::layout::Layout;
use crate::master_worker::plan::{Before, Step, View, plan};
use crate::master_worker::status::{Record, State};
use crate::master_worker::worker::capacity_of;
use crate::place::{name_of, patient};

/// The current role of a master.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MasterState {
    /// Another master is active, or none yet.
    Backup,
    /// This master assigns the tasks.
    Active(Leadership),
    /// The master was closed, its session has ended, or the server rejects its requests; final.
    Ended(Option<RecipeError>),
}

/// A master, active or backup.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::master_worker::{Master, Outcome, Tasks, Worker};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let master = Master::start(&client, "/jobs", "master 1").await?;
///     let worker = Worker::join(&client, "/jobs", "worker 1", 2).await?;
///     let task = Tasks::open(&client, "/jobs").await?.submit("2 + 3").await?;
///
///     let assignment = worker.next().await?;
///     assert_eq!(assignment.work(), "2 + 3");
///     assignment.done("5").await?;
///     assert!(matches!(task.outcome().await?, Outcome::Done { result, .. } if result == "5"));
///     task.forget().await?;
///     master.close().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Master {
    path: String,
    state: watch::Receiver<MasterState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Master {
    /// Starts a master as a backup. When it becomes active it assigns tasks, without a limit of
    /// attempts.
    pub async fn start(client: &Client, path: &str, id: &str) -> Result<Master> {
        Master::start_with(client, path, id, None).await
    }

    /// As [`Master::start`], but a task ends as failed after `attempts_max` attempts. All masters
    /// on a path should use the same limit.
    pub async fn with_attempts(
        client: &Client,
        path: &str,
        id: &str,
        attempts_max: u32,
    ) -> Result<Master> {
        if attempts_max == 0 {
            let why = format!("{path}: a task that may not be tried once is never done");
            return Err(RecipeError::Misuse(why));
        }
        Master::start_with(client, path, id, Some(attempts_max)).await
    }

    async fn start_with(
        client: &Client,
        path: &str,
        id: &str,
        attempts_max: Option<u32>,
    ) -> Result<Master> {
        let layout = Layout::new(path);
        layout.ensure(client).await?;
        let latch = LeaderLatch::start(client, &layout.master, id);
        let (told, state) = watch::channel(MasterState::Backup);
        let (stop, stopped) = watch::channel(false);
        let duty = Duty { client: client.clone(), layout, attempts_max };
        let task = tokio::spawn(duty.stand(latch, told, stopped));
        Ok(Master { path: path.to_owned(), state, stop, task })
    }

    /// Returns the current state.
    pub fn state(&self) -> MasterState {
        self.state.borrow().clone()
    }

    /// Returns a receiver of state changes: `changed().await`, then `borrow()`.
    pub fn states(&self) -> watch::Receiver<MasterState> {
        self.state.clone()
    }

    /// Waits until this master is active.
    pub async fn active(&self) -> Result<Leadership> {
        let mut states = self.state.clone();
        let reached = states.wait_for(|state| !matches!(state, MasterState::Backup)).await;
        match reached.as_deref() {
            Ok(MasterState::Active(leadership)) => Ok(leadership.clone()),
            Ok(MasterState::Ended(Some(error))) => Err(error.clone()),
            _ => Err(RecipeError::Closed { path: self.path.clone() }),
        }
    }

    /// Resigns. When this returns, the node of this master is deleted and the next master can
    /// begin.
    pub async fn close(mut self) -> Result<()> {
        self.stop.send_replace(true);
        match (&mut self.task).await {
            Ok(closed) => closed,
            Err(_) => Err(RecipeError::Closed { path: self.path.clone() }),
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // The task owns the latch: aborting it drops the latch, which deletes the latch's node.
        self.task.abort();
    }
}

struct Duty {
    client: Client,
    layout: Layout,
    attempts_max: Option<u32>,
}

impl Duty {
    async fn stand(
        self,
        latch: LeaderLatch,
        told: watch::Sender<MasterState>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let ended = tokio::select! {
            biased;
            // An error means that the `Master` was dropped, which has aborted this task.
            _ = stopped.wait_for(|stopped| *stopped) => None,
            ended = self.serve(&latch, &told) => Some(ended),
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                // No caller may see this master as active while its node is being deleted.
                told.send_replace(MasterState::Backup);
                latch.close().await
            }
        };
        told.send_replace(MasterState::Ended(ended.as_ref().err().cloned()));
        ended
    }

    /// Returns only with an error.
    async fn serve(&self, latch: &LeaderLatch, told: &watch::Sender<MasterState>) -> Result<()> {
        loop {
            let leadership = latch.leading().await?;
            told.send_replace(MasterState::Active(leadership.clone()));
            tokio::select! {
                biased;
                () = latch.over(&leadership) => {}
                managed = self.manage(&leadership) => managed?,
            }
            told.send_replace(MasterState::Backup);
            // `manage` may return before the latch has seen the end of the leadership: wait for the
            // latch, or `leading` would return the old one.
            latch.over(&leadership).await;
        }
    }

    /// Assigns tasks until the leadership is lost.
    async fn manage(&self, leadership: &Leadership) -> Result<()> {
        let caches = [&self.layout.tasks, &self.layout.workers, &self.layout.statuses]
            .map(|path| ChildrenCache::start(&self.client, path));
        let [mut tasks, mut workers, mut statuses] =
            caches.each_ref().map(|cache| Known::new(cache.events()));
        loop {
            tokio::select! {
                biased;
                told = tasks.next() => told?,
                told = workers.next() => told?,
                told = statuses.next() => told?,
            }
            // Take all further events that have arrived.
            while tokio::select! {
                biased;
                told = tasks.next() => told.map(|()| true),
                told = workers.next() => told.map(|()| true),
                told = statuses.next() => told.map(|()| true),
                () = std::future::ready(()) => Ok(false),
            }? {}
            if !(tasks.is_complete && workers.is_complete && statuses.is_complete) {
                continue;
            }
            let records = statuses.map(|name, data, version| {
                let record = Record::decode(&self.layout.status(name), data);
                let record = record.inspect_err(
                    |error| tracing::warn!(task = name, %error, "malformed status ignored"),
                );
                Some((record.ok()?, version))
            });
            // A task with a malformed status is excluded, so that it takes no worker's capacity.
            let is_clear =
                |task: &&String| records.contains_key(*task) || !statuses.nodes.contains_key(*task);
            let view = View {
                tasks: tasks.nodes.keys().filter(is_clear).cloned().collect(),
                workers: workers.map(|_, data, _| Some(capacity_of(data))),
                statuses: records,
            };
            // A rejected step is out of date: the event of the conflicting change is in flight, and
            // the next plan includes it.
            for step in plan(&view, self.attempts_max) {
                if !self.carry_out(leadership, &step).await? {
                    return Ok(());
                }
            }
        }
    }

    /// Returns `false` if the leadership is lost.
    async fn carry_out(&self, leadership: &Leadership, step: &Step) -> Result<bool> {
        let client = &self.client;
        let mut found = Found { has_place: true, has_assignment: true };
        loop {
            let committed = client
                .retry(&patient(), || self.build(leadership.transaction(), step, &found).commit())
                .await;
            match committed {
                Ok(_) => return Ok(true),
                Err(error) if self.is_missing(step, &error, &mut found) => {}
                Err(error) if is_conflict(error.kind()) => {
                    return Ok(error.failed_operation() != Some(0));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether a step was rejected only because an optional node is missing, so that the
    /// step has to be repeated without that node.
    fn is_missing(&self, step: &Step, error: &Error, found: &mut Found) -> bool {
        let (task, worker, before) = match step {
            Step::Assign { task, worker, before, .. } => (task, Some(worker), before.as_ref()),
            Step::GiveUp { task, before, .. } | Step::Forget { task, before } => {
                (task, None, Some(before))
            }
        };
        let is_at = |worker: &String| error.path() == Some(&self.layout.assignment(worker, task));
        if error.kind() != ErrorKind::NoNode {
            return false;
        }
        if worker.is_some_and(is_at) {
            return std::mem::replace(&mut found.has_place, false);
        }
        if before.and_then(|before| before.worker.as_ref()).is_some_and(is_at) {
            return std::mem::replace(&mut found.has_assignment, false);
        }
        false
    }

    fn build(&self, fenced: Transaction, step: &Step, found: &Found) -> Transaction {
        let layout = &self.layout;
        match step {
            Step::Assign { task, worker, attempt, before } => {
                let record = Record::new(State::Assigned, *attempt, worker, b"").encode();
                let mut all = fenced
                    .check(&layout.task(task), Version::Any)
                    .check(&layout.worker(worker), Version::Any);
                if !found.has_place {
                    // In the same transaction: an empty container that never had a child is not
                    // deleted by the server.
                    all = all.create(&layout.assignments(worker), "", CreateMode::Container);
                }
                let (path, number) = (layout.assignment(worker, task), attempt.to_string());
                all = all.create(&path, number, CreateMode::Persistent);
                match before {
                    Some(before) => {
                        let status = layout.status(task);
                        let all = self.end_attempt(all, task, before, found);
                        all.set(&status, record, before.version)
                    }
                    None => all.create(&layout.status(task), record, CreateMode::Persistent),
                }
            }
            Step::GiveUp { task, before, attempts } => {
                let worker = before.worker.as_deref().unwrap_or_default();
                let record = Record::new(State::Failed, *attempts, worker, &before.said).encode();
                let all = fenced.delete(&layout.task(task), Version::Any);
                let all = self.end_attempt(all, task, before, found);
                all.set(&layout.status(task), record, before.version)
            }
            Step::Forget { task, before } => {
                // A transaction proves that a node is missing by creating it. The view of the tasks
                // may be older than the view of the statuses.
                let path = layout.task(task);
                let all = fenced.create(&path, "", CreateMode::Persistent);
                let all = all.delete(&path, Version::Any);
                let all = self.end_attempt(all, task, before, found);
                all.delete(&layout.status(task), before.version)
            }
        }
    }

    /// Deletes the assignment of the previous attempt, if it exists.
    fn end_attempt(
        &self,
        all: Transaction,
        task: &str,
        before: &Before,
        found: &Found,
    ) -> Transaction {
        match &before.worker {
            Some(worker) if found.has_assignment => {
                all.delete(&self.layout.assignment(worker, task), Version::Any)
            }
            _ => all,
        }
    }
}

/// The optional nodes that a step assumes to exist.
struct Found {
    /// The container of the worker's assignments exists: it was not deleted as empty.
    has_place: bool,
    /// The assignment of the previous attempt exists: no operator has deleted it.
    has_assignment: bool,
}

fn is_conflict(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::BadVersion)
}

/// The children of a path, built from events. A change that is missing here has its event in
/// flight.
struct Known {
    events: CacheEvents,
    /// Data and version by name.
    nodes: BTreeMap<String, (Bytes, i32)>,
    is_complete: bool,
}

impl Known {
    fn new(events: CacheEvents) -> Known {
        Known { events, nodes: BTreeMap::new(), is_complete: false }
    }

    /// Takes one event. The future may be dropped at any await.
    async fn next(&mut self) -> Result<()> {
        let closed = || RecipeError::Closed { path: "the cache of a master".to_owned() };
        match self.events.next().await.ok_or_else(closed)? {
            CacheEvent::Created(node) | CacheEvent::Changed { after: node, .. } => {
                let name = name_of(&node.path).to_owned();
                self.nodes.insert(name, (node.data.clone(), node.stat.version));
            }
            CacheEvent::Deleted(node) => {
                self.nodes.remove(name_of(&node.path));
            }
            CacheEvent::Initialized => self.is_complete = true,
            CacheEvent::Reset => {
                self.nodes.clear();
                self.is_complete = false;
            }
            CacheEvent::Ended(why) => return Err(why),
        }
        Ok(())
    }

    fn map<T>(&self, f: impl Fn(&str, &Bytes, i32) -> Option<T>) -> BTreeMap<String, T> {
        let each = |(name, (data, version)): (&String, &(Bytes, i32))| {
            Some((name.clone(), f(name, data, *version)?))
        };
        self.nodes.iter().filter_map(each).collect()
    }
}
