//! A cache kept up to date by one persistent recursive watch.
//!
//! The watch is set before anything is read. Only the path of an event is used: the node is read
//! again whatever the type of the event, and of several waiting events for one node only one read
//! is made. After a gap in the events, as after every reconnect, a survey reads the stat of every
//! known node, and its data and its list of children only if the stat shows that they have changed.
//! At most [`WINDOW`] requests are in flight at a time, however many nodes there are.

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

/// How many requests are in flight at a time: enough to hide the round-trip time, few enough not to
/// overload the servers when a thousand caches reconnect at once.
pub(crate) const WINDOW: usize = 64;

/// Keeps the store up to date until the session ends or the server rejects a request.
pub(crate) async fn keep(client: &Client, scope: &Scope, store: &Store) -> Error {
    loop {
        if let Err(error) = keep_with_one_watch(client, scope, store).await {
            return error;
        }
        // The watch was removed: set a new one.
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
                // The survey covers the events before the gap and those that already wait behind
                // it.
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

/// Returns an item that has already arrived.
fn waiting(watcher: &mut Watcher) -> Option<WatchItem> {
    match pin!(watcher.next()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// Reads nodes again. A change after the read has an event of its own.
async fn look_at(client: &Client, store: &Store, paths: &[String]) -> Result<()> {
    let replies: Vec<Reply<Node>> = paths.iter().map(|path| client.get(path)).collect();
    for (path, reply) in paths.iter().zip(replies) {
        read(store, path, answer(client, reply, || client.get(path)).await)?;
    }
    Ok(())
}

/// Applies the reply to a read to the store. A node without read permission counts as missing.
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

/// Returns the reply to a request, which is sent again if the connection was lost.
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
    /// A node that is not in the store, or is outdated there: read it.
    Read(String),
    /// A node that is in the store: compare its stat.
    Compare(String),
    /// List the children of a node.
    List(String),
}

enum Asked {
    Read(String, Reply<Node>),
    Compare(String, Reply<Option<Stat>>),
    List(String, Reply<(Vec<String>, Stat)>),
}

/// Brings the store to a state that is not older than the start of this call.
async fn survey(client: &Client, scope: &Scope, store: &Store) -> Result<()> {
    let mut seen = HashSet::new();
    let root = scope.root().to_owned();
    let visit =
        |path: String| if store.contains(&path) { Step::Compare(path) } else { Step::Read(path) };
    // Bounded by the number of nodes.
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
