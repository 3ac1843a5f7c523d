//! A store together with the task that keeps it up to date.

use std::sync::Arc;

use ironkeeper_client::{Client, ErrorKind};

use crate::cache::cached_node::Watching;
use crate::cache::follow::follow;
use crate::cache::scope::Scope;
use crate::cache::store::{CacheEvents, Store};
use crate::cache::task::Task;
use crate::cache::{lasting, one_shot};
use crate::error::RecipeError;

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) path: String,
    pub(crate) store: Arc<Store>,
    _task: Task,
}

impl Keeper {
    pub(crate) fn start(client: &Client, scope: Scope, watching: Watching) -> Keeper {
        let (path, store) = (scope.root().to_owned(), Store::new());
        let task = Task::spawn({
            let (client, store) = (client.clone(), store.clone());
            async move {
                let mut why = match watching {
                    Watching::Lasting => Some(lasting::keep(&client, &scope, &store).await),
                    Watching::OneShot => None,
                };
                // A server older than 3.6 has no persistent watches.
                why.take_if(|why| why.kind() == ErrorKind::Unimplemented);
                let why = match why {
                    Some(why) => why,
                    None => one_shot::keep(&client, &scope, &store).await,
                };
                tracing::debug!(path = scope.root(), error = %why, "cache no longer updated");
                store.end(why.into());
            }
        });
        Keeper { path, store, _task: task }
    }

    /// Starts a cache of one node by one-shot watches: a persistent watch would also send the
    /// events of its children.
    pub(crate) fn start_one(client: &Client, path: String) -> Keeper {
        let store = Store::new();
        let task = Task::spawn({
            let (client, store, path) = (client.clone(), store.clone(), path.clone());
            async move {
                let why = follow(&client, &path, |node| {
                    match node {
                        Some(node) => store.put(&path, node.data, node.stat),
                        None => store.remove(&path),
                    }
                    store.ready();
                })
                .await;
                tracing::debug!(%path, error = %why, "cache no longer updated");
                store.end(why.into());
            }
        });
        Keeper { path, store, _task: task }
    }

    pub(crate) fn events(&self) -> CacheEvents {
        CacheEvents::new(self.store.clone())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.store.end(RecipeError::Closed { path: self.path.clone() });
    }
}
