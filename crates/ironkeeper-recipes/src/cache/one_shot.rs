//! A cache kept up to date by one-shot watches: one for the data and one for the children of each
//! node.
//!
//! For servers without persistent watches. The client sets the watches again after a reconnect, and
//! the server sends the events that were missed, so a reconnect costs no reads where nothing has
//! changed. The deletion of a node triggers and removes its watches; a watch on a missing node is
//! set only for the root, which may be created again.

use std::collections::{HashSet, VecDeque};

use ironkeeper_client::{Client, Error, ErrorKind, Node, Reply, Result, Stat, Watch};
use tokio::task::JoinSet;

use crate::cache::lasting::{WINDOW, answer, is_out_of_sight, read};
use crate::cache::scope::Scope;
use crate::cache::store::Store;
use crate::place::{join, name_of, patient};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Read a node and watch its data.
    Data(String),
    /// List the children of a node and watch the list.
    List(String),
}

enum Asked {
    Data(String, Reply<(Node, Watch)>),
    List(String, Reply<(Vec<String>, Stat, Watch)>),
}

/// Keeps the store up to date until the session ends or the server rejects a request.
pub(crate) async fn keep(client: &Client, scope: &Scope, store: &Store) -> Error {
    let mut keeper = Keeper { client, scope, store, armed: HashSet::new(), fired: JoinSet::new() };
    let Err(error) = keeper.keep().await;
    error
}

struct Keeper<'a> {
    client: &'a Client,
    scope: &'a Scope,
    store: &'a Store,
    /// The watches that are set, each by the step to run when it fires; at most one per step.
    armed: HashSet<Step>,
    /// One task for each watch in `armed`.
    fired: JoinSet<(Step, Result<()>)>,
}

impl Keeper<'_> {
    async fn keep(&mut self) -> Result<std::convert::Infallible> {
        let root = self.scope.root().to_owned();
        let first = if self.scope.covers_root() { Step::Data(root) } else { Step::List(root) };
        self.walk([first].into()).await?;
        self.store.ready();
        loop {
            let mut steps = VecDeque::new();
            let mut next = self.fired.join_next().await;
            while let Some(fired) = next {
                let (step, outcome) = fired.expect("waiting for a watch does not panic");
                match outcome {
                    Err(error) if error.is_session_over() => return Err(error),
                    // An event, or a watch that was removed: either way the step is run again.
                    _ => {}
                }
                self.armed.remove(&step);
                steps.push_back(step);
                next = self.fired.try_join_next();
            }
            self.walk(steps).await?;
        }
    }

    fn arm(&mut self, step: Step, watch: Watch) {
        // A watch that is already set also fires for changes after this read.
        if self.armed.insert(step.clone()) {
            self.fired.spawn(async move { (step, watch.await.map(drop)) });
        }
    }

    async fn walk(&mut self, mut steps: VecDeque<Step>) -> Result<()> {
        let client = self.client;
        let mut under_way = VecDeque::with_capacity(WINDOW);
        loop {
            while under_way.len() < WINDOW
                && let Some(step) = steps.pop_front()
            {
                under_way.push_back(match step {
                    Step::Data(path) => {
                        let reply = client.get_and_watch(&path);
                        Asked::Data(path, reply)
                    }
                    Step::List(path) => {
                        let reply = client.children_and_watch(&path);
                        Asked::List(path, reply)
                    }
                });
            }
            match under_way.pop_front() {
                None => return Ok(()),
                Some(Asked::Data(path, reply)) => {
                    match answer(client, reply, || client.get_and_watch(&path)).await {
                        Ok((node, watch)) => {
                            self.store.put(&path, node.data, node.stat);
                            self.arm(Step::Data(path.clone()), watch);
                            let list = Step::List(path);
                            if self.scope.descends(list.path()) && !self.armed.contains(&list) {
                                steps.push_back(list);
                            }
                        }
                        Err(error) => {
                            let is_gone = error.kind() == ErrorKind::NoNode;
                            read(self.store, &path, Err(error))?;
                            if is_gone && path == self.scope.root() {
                                self.await_root(Step::Data(path), &mut steps).await?;
                            }
                        }
                    }
                }
                Some(Asked::List(path, reply)) => {
                    match answer(client, reply, || client.children_and_watch(&path)).await {
                        Ok((names, _, watch)) => {
                            self.arm(Step::List(path.clone()), watch);
                            self.compare_children(&path, &names, &mut steps);
                        }
                        Err(error) if is_out_of_sight(&error) => {
                            let is_gone = error.kind() == ErrorKind::NoNode;
                            // In a tree, the data watch reports the deletion of the node.
                            if !self.scope.covers_root() {
                                self.compare_children(&path, &[], &mut steps);
                                if is_gone {
                                    self.await_root(Step::List(path), &mut steps).await?;
                                }
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn compare_children(&self, path: &str, names: &[String], steps: &mut VecDeque<Step>) {
        let present: HashSet<&str> = names.iter().map(String::as_str).collect();
        for child in self.store.children(path) {
            if !present.contains(name_of(&child.path)) {
                self.store.remove(&child.path);
            }
        }
        for name in names {
            let child = join(path, name);
            if !self.store.contains(&child) {
                steps.push_back(Step::Data(child));
            }
        }
    }

    async fn await_root(&mut self, step: Step, steps: &mut VecDeque<Step>) -> Result<()> {
        let client = self.client;
        match client.retry(&patient(), || client.exists_and_watch(step.path())).await? {
            (None, watch) => self.arm(step, watch),
            (Some(_), _) => steps.push_back(step),
        }
        Ok(())
    }
}

impl Step {
    fn path(&self) -> &str {
        match self {
            Step::Data(path) | Step::List(path) => path,
        }
    }
}
