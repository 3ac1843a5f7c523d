//! A watch that is taken off the server when nobody waits for it any more.
//!
//! A watch on a node that is not there stays on the server until the node comes, which may be never.
//! Whoever gives up waiting takes it along.

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

    /// Waits for the event, whatever it is.
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
            // If it fails the session is over, and its watches with it, or there is no connection,
            // and the watch that the client forgets now is not set again on the next one.
            self.client.runtime().spawn(async move { drop(watch.remove().await) });
        }
    }
}
