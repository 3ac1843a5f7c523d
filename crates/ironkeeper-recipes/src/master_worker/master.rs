//! The one that hands out, and those who stand by.

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

/// What a master is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MasterState {
    /// It stands by.
    Backup,
    /// It hands out tasks.
    Active(Leadership),
    /// It was closed, or its session is over, or the server refuses; final.
    Ended(Option<RecipeError>),
}

/// A master, active or standing by.
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
    /// Stands by, and hands out tasks when it is its turn, as often as they need it.
    pub async fn start(client: &Client, path: &str, id: &str) -> Result<Master> {
        Master::start_with(client, path, id, None).await
    }

    /// As [`Master::start`], but a task that so many workers could not do ends as failed. All masters
    /// should say the same.
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

    /// What it is at the moment.
    pub fn state(&self) -> MasterState {
        self.state.borrow().clone()
    }

    /// Follows what it is: `changed().await`, then `borrow()`.
    pub fn states(&self) -> watch::Receiver<MasterState> {
        self.state.clone()
    }

    /// Waits until it is the active one.
    pub async fn active(&self) -> Result<Leadership> {
        let mut states = self.state.clone();
        let reached = states.wait_for(|state| !matches!(state, MasterState::Backup)).await;
        match reached.as_deref() {
            Ok(MasterState::Active(leadership)) => Ok(leadership.clone()),
            Ok(MasterState::Ended(Some(error))) => Err(error.clone()),
            _ => Err(RecipeError::Closed { path: self.path.clone() }),
        }
    }

    /// Steps down. The next one may begin when this returns.
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
        // Its candidacy is dropped with the task, and withdrawn by that.
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
            // An error says that the master is gone, and has aborted this task.
            _ = stopped.wait_for(|stopped| *stopped) => None,
            ended = self.serve(&latch, &told) => Some(ended),
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                // Nobody shall think that it is active while its node goes.
                told.send_replace(MasterState::Backup);
                latch.close().await
            }
        };
        told.send_replace(MasterState::Ended(ended.as_ref().err().cloned()));
        ended
    }

    /// Ends only with an error.
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
            // Without it the end of the leadership might be seen before the latch itself has seen it.
            latch.over(&leadership).await;
        }
    }

    /// Hands out until the leadership is lost.
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
            // And whatever else has come.
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
                let record = record.inspect_err(|error| tracing::warn!(%error, "left alone"));
                Some((record.ok()?, version))
            });
            // A task whose status nobody understands must not take the place of another one.
            let is_clear =
                |task: &&String| records.contains_key(*task) || !statuses.nodes.contains_key(*task);
            let view = View {
                tasks: tasks.nodes.keys().filter(is_clear).cloned().collect(),
                workers: workers.map(|_, data, _| Some(capacity_of(data))),
                statuses: records,
            };
            // A step that is refused is out of date: the event that says so is on its way here, and
            // the next plan will heed it.
            for step in plan(&view, self.attempts_max) {
                if !self.carry_out(leadership, &step).await? {
                    return Ok(());
                }
            }
        }
    }

    /// `false` if the leadership is lost.
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

    /// Whether a step was refused for the sake of a node that need not be there, and has to be taken
    /// without it.
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
                    // Within the transaction: an empty container that never had a child would stay.
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
                // The only proof there is that a node is not there: that it can be created. What we know
                // of tasks may be older than what we know of statuses.
                let path = layout.task(task);
                let all = fenced.create(&path, "", CreateMode::Persistent);
                let all = all.delete(&path, Version::Any);
                let all = self.end_attempt(all, task, before, found);
                all.delete(&layout.status(task), before.version)
            }
        }
    }

    /// Takes the assignment away, if it is there.
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

/// What a step may rely on.
struct Found {
    /// Something was assigned to the worker, not so long ago that its container has gone.
    has_place: bool,
    /// Nobody has deleted the assignment of the attempt before by hand.
    has_assignment: bool,
}

fn is_conflict(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoNode | ErrorKind::NodeExists | ErrorKind::BadVersion)
}

/// The children of a path as events have told of them: whatever is missing here has an event on its way.
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

    /// Takes one event. May be dropped at any await.
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
