//! The end of the server: requested, or caused by a fatal failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// The signal to all threads of the server to stop, sent once.
#[derive(Debug)]
pub struct Shutdown {
    stop: watch::Sender<bool>,
    failure: Mutex<Option<String>>,
    /// The state in memory is unreliable: no request is prepared, applied or replied to any more.
    halted: AtomicBool,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        let (stop, halted) = (watch::Sender::new(false), AtomicBool::new(false));
        Shutdown { stop, failure: Mutex::new(None), halted }
    }
}

impl Shutdown {
    pub fn begin(&self) {
        self.stop.send_replace(true);
    }

    /// Stops because of `reason`: the state in memory is valid, and the last replies are sent.
    pub fn fail(&self, reason: String) {
        tracing::error!(error = reason, "server stops after a failure");
        self.keep(reason);
        self.begin();
    }

    /// Stops at once because of `reason`: the engine takes no further step, and connections are
    /// closed without another byte. Also called by the panic hook, so it neither logs nor panics.
    pub fn halt(&self, reason: String) {
        self.halted.store(true, Ordering::Release);
        self.keep(reason);
        self.begin();
    }

    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Records the reason unless there is an earlier one.
    fn keep(&self, reason: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn has_begun(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server is to stop.
    pub async fn begun(&self) {
        // The sender exists as long as `self`, so waiting cannot fail.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}
