//! The end of the server: asked for, or forced by a failure that cannot be survived.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Tells every part of the server to stop, once.
#[derive(Debug)]
pub struct Shutdown {
    stop: watch::Sender<bool>,
    failure: Mutex<Option<String>>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { stop: watch::Sender::new(false), failure: Mutex::new(None) }
    }
}

impl Shutdown {
    pub fn begin(&self) {
        self.stop.send_replace(true);
    }

    /// Stops because of `reason`. The first reason is the one reported.
    pub fn fail(&self, reason: String) {
        tracing::error!("the server stops: {reason}");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.begin();
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn has_begun(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns when the server is to stop.
    pub async fn begun(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}
