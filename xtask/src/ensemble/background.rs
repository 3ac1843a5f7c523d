//! Clients for scenarios, which are plain blocking code: a runtime on a thread of its own keeps sessions alive
//! while the scenario waits for processes.

use std::future::Future;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_client::Client;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cluster::PATIENCE;

/// A runtime that runs until this is dropped.
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
            // Ends with an error if the other end is gone, which is the same.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Background { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits for what clients do, for as long as anything may take.
    pub fn wait<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.handle.block_on(async {
            tokio::time::timeout(PATIENCE, work)
                .await
                .with_context(|| format!("{what}: not within {PATIENCE:?}"))?
                .with_context(|| what.to_owned())
        })
    }

    /// Lets clients work while the scenario does something else.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// A new session.
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
            // It cannot panic: it only waits.
            let _ = thread.join();
        }
    }
}
