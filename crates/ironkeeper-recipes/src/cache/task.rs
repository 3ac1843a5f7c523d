//! The background task of a recipe, aborted when its owner is dropped.

use std::future::Future;

use tokio::task::JoinHandle;

/// A task that only reads and notifies, so that it can be aborted at any await.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
