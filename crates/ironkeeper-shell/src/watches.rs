//! The watches of this shell. Each is awaited by its own task, which sends its events to the
//! printing thread.
//!
//! A watch ends when it fires (unless it is persistent), when `removewatches` removes it, or when
//! the session ends.
//! session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_client::{EventType, Watch, WatchEvent, WatchItem, WatchMode, Watcher};
use tokio::sync::oneshot;

use super::events::{Event, Events, Teller};
use super::failure::Outcome;

/// The kind of a watch. As on the server, data watches include the creation of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Data,
    Children,
    Persistent,
    Recursive,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Data, Kind::Children, Kind::Persistent, Kind::Recursive];

    /// Returns the event type of the removal.
    fn removal(self) -> &'static str {
        match self {
            Kind::Data => "DataWatchRemoved",
            Kind::Children => "ChildWatchRemoved",
            Kind::Persistent | Kind::Recursive => "PersistentWatchRemoved",
        }
    }
}

/// Requests the removal of a watch. The reply is sent when the server has removed it.
type Removal = oneshot::Sender<oneshot::Sender<ironkeeper_client::Result<()>>>;

#[derive(Debug)]
pub struct Watches {
    events: Events,
    /// The active watches by kind and path. Their tasks remove them when they end.
    waiting: Arc<Mutex<Waiting>>,
    next_teller: u64,
}

type Waiting = HashMap<(Kind, String), Vec<(Teller, Removal)>>;

impl Watches {
    pub fn new(events: Events) -> Watches {
        // `Teller(0)` is the session.
        Watches { events, waiting: Arc::default(), next_teller: 1 }
    }

    pub fn once_of_data(&mut self, path: &str, watch: Watch) {
        self.once(Kind::Data, path, watch);
    }

    pub fn once_of_children(&mut self, path: &str, watch: Watch) {
        self.once(Kind::Children, path, watch);
    }

    fn once(&mut self, kind: Kind, path: &str, mut watch: Watch) {
        let (teller, mut removal) = self.enter(kind, path);
        let (events, waiting) = (self.events.clone(), Arc::clone(&self.waiting));
        let path = path.to_owned();
        tokio::spawn(async move {
            tokio::select! {
                fired = &mut watch => {
                    leave(&waiting, kind, path, teller);
                    // The end of the session is reported once, by the session.
                    if let Ok(event) = fired {
                        events.tell(teller, of_node(event)).await;
                    }
                }
                Ok(answer) = &mut removal => {
                    let _ = answer.send(watch.remove().await);
                }
            }
        });
    }

    /// Registers a persistent watch. As on the server, an existing watch of the same kind and path
    /// is not duplicated.
    pub fn lasting(&mut self, mode: WatchMode, path: &str, mut watcher: Watcher) {
        let kind = match mode {
            WatchMode::Persistent => Kind::Persistent,
            WatchMode::Recursive => Kind::Recursive,
        };
        if self.is_watched(kind, path) {
            return;
        }
        let (teller, mut removal) = self.enter(kind, path);
        let (events, waiting) = (self.events.clone(), Arc::clone(&self.waiting));
        let path = path.to_owned();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    item = watcher.next() => match item {
                        Some(WatchItem::Event(event)) => events.tell(teller, of_node(event)).await,
                        // The events of the session show that watch events may be missing.
                        Some(WatchItem::Gap) => {}
                        Some(WatchItem::SessionEnded) | None => break,
                    },
                    Ok(answer) = &mut removal => {
                        let _ = answer.send(watcher.remove().await);
                        return;
                    }
                }
            }
            leave(&waiting, kind, path, teller);
        });
    }

    fn is_watched(&self, kind: Kind, path: &str) -> bool {
        lock(&self.waiting).contains_key(&(kind, path.to_owned()))
    }

    /// Removes the watches of these kinds on a path and reports the removal. Returns false if there
    /// were none. With `local`, a failure to remove them on the server is ignored.
    pub async fn remove(&self, kinds: &[Kind], path: &str, local: bool) -> Outcome<bool> {
        let mut removed: Vec<&'static str> = Vec::new();
        for &kind in kinds {
            let Some(entries) = lock(&self.waiting).remove(&(kind, path.to_owned())) else {
                continue;
            };
            let mut result = Ok(());
            for (_, removal) in entries {
                let (answer, answered) = oneshot::channel();
                // A task that has just ended has nothing to remove.
                if removal.send(answer).is_ok()
                    && let Ok(gone) = answered.await
                {
                    result = result.and(gone);
                }
            }
            if !local {
                result?;
            }
            // Both persistent kinds have the same event, which is reported once.
            if !removed.contains(&kind.removal()) {
                removed.push(kind.removal());
            }
        }
        for kind in &removed {
            let path = Some(path.to_owned());
            let event = Event { state: "SyncConnected", kind, path, zxid: -1, server: None };
            self.events.tell(Teller(0), event).await;
        }
        Ok(!removed.is_empty())
    }

    fn enter(
        &mut self,
        kind: Kind,
        path: &str,
    ) -> (Teller, oneshot::Receiver<oneshot::Sender<ironkeeper_client::Result<()>>>) {
        let teller = Teller(self.next_teller);
        self.next_teller += 1;
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).entry((kind, path.to_owned())).or_default().push((teller, sender));
        (teller, receiver)
    }
}

fn leave(waiting: &Mutex<Waiting>, kind: Kind, path: String, teller: Teller) {
    let mut waiting = lock(waiting);
    let key = (kind, path);
    if let Some(entries) = waiting.get_mut(&key) {
        entries.retain(|(other, _)| *other != teller);
        if entries.is_empty() {
            waiting.remove(&key);
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of_node(event: WatchEvent) -> Event {
    Event {
        state: "SyncConnected",
        kind: match event.kind {
            EventType::NodeCreated => "NodeCreated",
            EventType::NodeDeleted => "NodeDeleted",
            EventType::NodeDataChanged => "NodeDataChanged",
            EventType::NodeChildrenChanged => "NodeChildrenChanged",
        },
        path: Some(event.path),
        zxid: event.zxid.map_or(-1, |zxid| zxid.0),
        server: None,
    }
}
