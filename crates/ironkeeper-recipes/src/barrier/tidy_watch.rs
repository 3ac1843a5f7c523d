//! A watch that is removed from the server when its waiter is dropped.
//!
//! A watch on a missing node stays on the server until the node is created, which may never happen.
//! Dropping a [`TidyWatch`] before its event removes the watch.

use ironkeeper_client::{Client, EventType, Result, Watch};

#[derive(Debug)]
pub(crate) struct TidyWatch {
    watch: Option<Watch>,
    client: Client,
}

impl TidyWatch {
    pub(crate) fn new(client: &Client, watch: Watch) -> TidyWatch {
        TidyWatch { watch: Some(watch), client: client.clone() }
    }

    /// Waits for the event and returns its type.
    pub(crate) async fn fired(mut self) -> Result<EventType> {
        let watch = self.watch.as_mut().expect("it is taken when this is dropped");
        let event = watch.await?;
        self.watch = None;
        Ok(event.kind)
    }
}

impl Drop for TidyWatch {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            // If the removal fails, either the session has ended and its watches with it, or there
            // is no connection, and the client, which forgets the watch now, does not set it again
            // on the next one.
            self.client.runtime().spawn(async move { drop(watch.remove().await) });
        }
    }
}
