//! Reads the log for learners that are further behind than the history in memory.
//!
//! A thread of its own, so that neither the log thread nor the I/O threads wait for it. ZAB
//! sends at most one query per learner at a time.

use std::sync::mpsc::{Receiver, Sender, channel};

use ironkeeper_engine::Input;
use ironkeeper_node::read_log;
use ironkeeper_store::Store;
use ironkeeper_store::disk::Disk;
use ironkeeper_zab::{LogQuery, LogRead};

use crate::engine_driver::EngineDriver;

/// The queue of queries to the thread.
#[derive(Debug)]
pub struct LogReads {
    queries: Sender<Option<LogQuery>>,
}

impl LogReads {
    pub fn new() -> (LogReads, Receiver<Option<LogQuery>>) {
        let (queries, receiver) = channel();
        (LogReads { queries }, receiver)
    }

    pub fn push(&self, query: LogQuery) {
        // Without the thread the server is shutting down.
        let _ = self.queries.send(Some(query));
    }

    /// Ends the thread after the queued requests.
    pub fn close(&self) {
        let _ = self.queries.send(None);
    }
}

/// Runs the main loop of the thread. The log is sent up to `size_factor` times the size of the
/// newest snapshot; never if `None`.
pub fn run<D: Disk>(
    store: &Store<D>,
    queries: &Receiver<Option<LogQuery>>,
    size_factor: Option<f64>,
    core: &EngineDriver,
) {
    while let Ok(Some(LogQuery { link, after })) = queries.recv() {
        let read = read_log(store, after, size_factor, &core.db);
        let learner = core.member.as_ref().and_then(|member| member.links.learner_to_log(link));
        let read = match read {
            Ok(read) => {
                if let Some(learner) = learner {
                    let (peer, txns) = (learner.server.map(|id| id.0), read.txns.len());
                    let (found, suppressed) = (read.found, learner.suppressed);
                    tracing::info!(peer, %after, txns, found, suppressed, "log read for a learner");
                }
                read
            }
            Err(error) => {
                if let Some(learner) = learner {
                    let peer = learner.server.map(|id| id.0);
                    tracing::warn!(
                        peer,
                        %after,
                        %error,
                        "log not readable, learner gets a snapshot"
                    );
                }
                LogRead::default()
            }
        };
        core.submit([Input::Peer(ironkeeper_zab::Input::LogRead { link, read })]);
    }
}
