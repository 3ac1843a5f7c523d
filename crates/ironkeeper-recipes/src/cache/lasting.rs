//! A cache kept by one lasting recursive watch.
//!
//! The watch is set before anything is read. An event only says where to look: the node is read again
//! whatever the event says, and events that wait together are one look per node. A gap in the events,
//! as after every reconnect, is closed by a survey: of every known node the stat alone is read, its
//! data and its list of children only if the stat says that they are others. No more than
//! [`WINDOW`] requests are under way at a time, however many nodes there are.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ironkeeper_client::{
    Client, Error, ErrorKind, Node, Reply, Result, Stat, WatchItem, WatchMode, Watcher,
};

use crate::cache::scope::Scope;
use crate::cache::store::Store;
use crate::place::{join, patient};

/// Requests under way at a time: enough to hide the way to the server, few enough not to be a burden
/// when a thousand caches come back at once.
pub(crate) const WINDOW: usize = 64;

/// Keeps the store right until the session is over or the server refuses.
pub(crate) async fn keep(client: &Client, scope: &Scope, store: &Store) -> Error {
    loop {
        if let Err(error) = keep_with_one_watch(client, scope, store).await {
            return error;
        }
        // Somebody removed the watch.
    }
}

async fn keep_with_one_watch(client: &Client, scope: &Scope, store: &Store) -> Result<()> {
    let watch = || client.watch(scope.root(), WatchMode::Recursive);
    let mut watcher = client.retry(&patient(), watch).await?;
    let mut has_gap = true;
    loop {
        if has_gap {
            survey(client, scope, store).await?;
            store.ready();
        }
        let Some(first) = watcher.next().await else { return Ok(()) };
        let mut paths = Vec::new();
        has_gap = false;
        let mut item = Some(first);
        while let Some(this) = item {
            match this {
                WatchItem::Event(event) if scope.covers(&event.path) => {
                    if !paths.contains(&event.path) {
                        paths.push(event.path);
                    }
                }
                WatchItem::Event(_) => {}
                // Whatever came before it or waits behind it already, the survey sees its outcome.
                WatchItem::Gap => has_gap = true,
                WatchItem::SessionEnded => return client.connected().await,
            }
            item = if paths.len() < WINDOW { waiting(&mut watcher) } else { None };
        }
        if !has_gap {
            look_at(client, store, &paths).await?;
        }
    }
}

/// An item that is there already.
fn waiting(watcher: &mut Watcher) -> Option<WatchItem> {
    match pin!(watcher.next()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// Reads nodes again. What changes after a read has an event of its own.
async fn look_at(client: &Client, store: &Store, paths: &[String]) -> Result<()> {
    let replies: Vec<Reply<Node>> = paths.iter().map(|path| client.get(path)).collect();
    for (path, reply) in paths.iter().zip(replies) {
        read(store, path, answer(client, reply, || client.get(path)).await)?;
    }
    Ok(())
}

/// Takes the answer to a read. A node that may not be read is none.
pub(crate) fn read(store: &Store, path: &str, answer: Result<Node>) -> Result<Option<Stat>> {
    match answer {
        Ok(node) => {
            store.put(path, node.data, node.stat);
            Ok(Some(node.stat))
        }
        Err(error) if is_out_of_sight(&error) => {
            store.remove(path);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn is_out_of_sight(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NoAuth)
}

/// The answer to a request, which is made again if the connection was lost.
pub(crate) async fn answer<T>(
    client: &Client,
    reply: Reply<T>,
    again: impl FnMut() -> Reply<T>,
) -> Result<T> {
    match reply.await {
        Err(error) if error.is_retriable() => client.retry(&patient(), again).await,
        other => other,
    }
}

enum Step {
    /// A node that the store does not know, or knows wrongly.
    Read(String),
    /// A node that the store knows.
    Compare(String),
    /// The children of a node.
    List(String),
}

enum Asked {
    Read(String, Reply<Node>),
    Compare(String, Reply<Option<Stat>>),
    List(String, Reply<(Vec<String>, Stat)>),
}

/// Brings the store to a state not older than the start of this.
async fn survey(client: &Client, scope: &Scope, store: &Store) -> Result<()> {
    let mut seen = HashSet::new();
    let root = scope.root().to_owned();
    let visit =
        |path: String| if store.contains(&path) { Step::Compare(path) } else { Step::Read(path) };
    // Bounded by the nodes there are.
    let mut steps = VecDeque::new();
    steps.push_back(if scope.covers_root() { visit(root) } else { Step::List(root) });
    let mut under_way = VecDeque::with_capacity(WINDOW);
    loop {
        while under_way.len() < WINDOW
            && let Some(step) = steps.pop_front()
        {
            under_way.push_back(match step {
                Step::Read(path) => {
                    let reply = client.get(&path);
                    Asked::Read(path, reply)
                }
                Step::Compare(path) => {
                    let reply = client.exists(&path);
                    Asked::Compare(path, reply)
                }
                Step::List(path) => {
                    let reply = client.children_and_stat(&path);
                    Asked::List(path, reply)
                }
            });
        }
        let Some(asked) = under_way.pop_front() else { break };
        match asked {
            Asked::Read(path, reply) => {
                let answer = answer(client, reply, || client.get(&path)).await;
                if let Some(stat) = read(store, &path, answer)? {
                    seen.insert(path.clone());
                    if scope.descends(&path) && stat.num_children > 0 {
                        steps.push_back(Step::List(path));
                    }
                }
            }
            Asked::Compare(path, reply) => {
                let Some(stat) = answer(client, reply, || client.exists(&path)).await? else {
                    continue;
                };
                let Some(known) = store.compare(&path, &stat) else { continue };
                if !known.data {
                    steps.push_back(Step::Read(path));
                    continue;
                }
                if scope.descends(&path) && stat.num_children > 0 {
                    if known.children {
                        let children = store.children(&path).into_iter();
                        steps.extend(children.map(|child| Step::Compare(child.path.clone())));
                    } else {
                        steps.push_back(Step::List(path.clone()));
                    }
                }
                seen.insert(path);
            }
            Asked::List(path, reply) => {
                match answer(client, reply, || client.children_and_stat(&path)).await {
                    Ok((names, stat)) => {
                        store.listed(&path, &stat);
                        steps.extend(names.iter().map(|name| visit(join(&path, name))));
                    }
                    Err(error) if is_out_of_sight(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    store.retain(&seen);
    Ok(())
}
