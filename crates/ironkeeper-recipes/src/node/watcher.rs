//! A lasting watch that stays set. Curator's `PersistentWatcher`.
//!
//! # Steps
//! 1. Set a lasting watch, on one node or on everything below it.
//! 2. If somebody removes it (`removeWatches` takes those of a whole client away), set it again.
//!
//! # Guarantees
//! No event is lost silently: where some may be missing, [`WatchItem::Gap`] stands in their place, and
//! what is read after it is not older. That is so after every reconnect, after a removal, and when
//! events were not taken for too long. One watch event per change that is watched for: nobody else has a
//! part in it. Dropping it ends the watch, on the server too; nothing runs in
//! the background.
//!
//! # When things break
//! - Disconnected: nothing is told; after the reconnect the client sets the watch again, and there is a
//!   gap.
//! - Session over: [`WatchItem::SessionEnded`], and nothing behind it.
//! - A server before 3.6 does not know such watches: [`PersistentWatcher::start`] fails with
//!   [`ErrorKind::Unimplemented`](ironkeeper_client::ErrorKind). The [caches](crate::cache) work there,
//!   too.

use ironkeeper_client::{Client, WatchItem, WatchMode, Watcher};

use crate::error::Result;
use crate::place::patient;

/// A lasting watch.
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
    /// None while it has to be set again.
    watcher: Option<Watcher>,
    is_over: bool,
}

impl PersistentWatcher {
    /// Sets the watch. The node need not be there.
    pub async fn start(
        client: &Client,
        path: impl Into<String>,
        mode: WatchMode,
    ) -> Result<PersistentWatcher> {
        let (client, path) = (client.clone(), path.into());
        let watcher = client.retry(&patient(), || client.watch(&path, mode)).await?;
        Ok(PersistentWatcher { client, path, mode, watcher: Some(watcher), is_over: false })
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The next item; `None` after [`WatchItem::SessionEnded`]. An error if the watch was removed and
    /// the server refuses to set it again.
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

    /// Ends the watch and waits until the server has done so, too.
    pub async fn close(self) -> Result<()> {
        let Some(watcher) = self.watcher else { return Ok(()) };
        match watcher.remove().await {
            // With its connection a watch goes, and one that the client has forgotten is not set again.
            Err(error) if !error.is_retriable() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
