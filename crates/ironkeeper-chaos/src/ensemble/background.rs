//! Clients for scenarios, which are blocking code: a runtime on its own thread keeps sessions alive
//! while the scenario waits for processes.

use std::future::Future;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_client::Client;
use ironkeeper_peers::cluster::PATIENCE;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A runtime that runs until this value is dropped.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Background {
    pub fn start() -> Result<Background> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("clients".to_owned()).spawn(move || {
            // Returns an error if the sender was dropped, which also means stop.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Background { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs client work and waits for it, at most for `PATIENCE`.
    pub fn wait<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.handle.block_on(async {
            tokio::time::timeout(PATIENCE, work)
                .await
                .with_context(|| format!("{what}: not within {PATIENCE:?}"))?
                .with_context(|| what.to_owned())
        })
    }

    /// Runs client work concurrently with the scenario.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// Opens a new session.
    pub fn connect(&self, connect_string: &str, session: Duration) -> Result<Client> {
        self.wait("connecting", async {
            let builder = Client::builder(connect_string).session_timeout(session);
            Ok(builder.connect_timeout(PATIENCE).connect().await?)
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic: it only waits.
            let _ = thread.join();
        }
    }
}
