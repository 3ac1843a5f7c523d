//! A persistent watch that is set again after its removal. Curator's `PersistentWatcher`.
//!
//! # Steps
//! 1. Set a persistent watch, on one node or on its whole subtree (recursive).
//! 2. If another part of the program removes the watch (`removeWatches` removes all watches of a
//!    client on a path), set it again.
//!
//! # Guarantees
//! No event is lost silently: where events may be missing, the watcher returns [`WatchItem::Gap`],
//! and reads after it return the state of that time or later. A gap occurs after every reconnect,
//! after a removal, and when the events were not consumed for too long. One watch event per watched
//! change. Dropping the watcher removes the watch, on the server too; there is no background task.
//!
//! # When things break
//! - The connection is lost: no items; after the reconnect the client sets the watch again, and
//!   there is a gap.
//! - The session has ended: [`WatchItem::SessionEnded`], and nothing after it.
//! - A server before 3.6 does not support persistent watches: [`PersistentWatcher::start`] fails
//!   with [`ErrorKind::Unimplemented`](ironkeeper_client::ErrorKind). The [caches](crate::cache)
//!   work with such a server, too.

use ironkeeper_client::{Client, WatchItem, WatchMode, Watcher};

use crate::error::Result;
use crate::place::patient;

/// A persistent watch.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, WatchItem, WatchMode};
/// use ironkeeper_recipes::node::PersistentWatcher;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut watcher = PersistentWatcher::start(&client, "/jobs", WatchMode::Recursive).await?;
///     client.create_recursive("/jobs/1", "", CreateMode::Persistent).await?;
///     while let Some(item) = watcher.next().await? {
///         match item {
///             WatchItem::Event(event) if event.path == "/jobs/1" => break,
///             WatchItem::Event(_) => {}
///             WatchItem::Gap => { /* read everything again */ }
///             WatchItem::SessionEnded => { /* begin anew with another client */ }
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a watcher that is dropped ends its watch"]
pub struct PersistentWatcher {
    client: Client,
    path: String,
    mode: WatchMode,
    /// `None` while the watch has to be set again.
    watcher: Option<Watcher>,
    is_over: bool,
}

impl PersistentWatcher {
    /// Sets the watch. The node need not exist.
    pub async fn start(
        client: &Client,
        path: impl Into<String>,
        mode: WatchMode,
    ) -> Result<PersistentWatcher> {
        let (client, path) = (client.clone(), path.into());
        let watcher = client.retry(&patient(), || client.watch(&path, mode)).await?;
        Ok(PersistentWatcher { client, path, mode, watcher: Some(watcher), is_over: false })
    }

    /// Returns the watched path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the next item; `None` after [`WatchItem::SessionEnded`]. Returns an error if the
    /// watch was removed and the server rejects the request to set it again.
    pub async fn next(&mut self) -> Result<Option<WatchItem>> {
        if self.is_over {
            return Ok(None);
        }
        if let Some(watcher) = &mut self.watcher {
            if let Some(item) = watcher.next().await {
                self.is_over = item == WatchItem::SessionEnded;
                return Ok(Some(item));
            }
            self.watcher = None;
        }
        let (client, path, mode) = (&self.client, &self.path, self.mode);
        match client.retry(&patient(), || client.watch(path, mode)).await {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                Ok(Some(WatchItem::Gap))
            }
            Err(error) if error.is_session_over() => {
                self.is_over = true;
                Ok(Some(WatchItem::SessionEnded))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the watch and waits for the reply of the server.
    pub async fn close(self) -> Result<()> {
        let Some(watcher) = self.watcher else { return Ok(()) };
        match watcher.remove().await {
            // The server drops a watch with its connection, and the client does not set a removed
            // watch again.
            Err(error) if !error.is_retriable() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
