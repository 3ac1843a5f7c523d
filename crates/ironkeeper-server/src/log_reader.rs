//! Reads the log for learners that are further behind than what is kept in memory.
//!
//! On a thread of its own: neither those who write the log nor those who serve clients should wait for
//! it. At most one wish of each learner is under way, by the rules of the broadcast.

use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use ironkeeper_engine::{Database, Input};
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError};
use ironkeeper_zab::{LinkId, LogRead};

use crate::core::Core;

/// However large the tree is, no more of the log is read for one learner.
const BYTES_MAX: u64 = 64 << 20;

/// What a learner wants: everything after a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub link: LinkId,
    pub after: Zxid,
}

/// The way to the thread.
#[derive(Debug)]
pub struct LogReads {
    wishes: Sender<Option<Wish>>,
}

impl LogReads {
    pub fn new() -> (LogReads, Receiver<Option<Wish>>) {
        let (wishes, receiver) = channel();
        (LogReads { wishes }, receiver)
    }

    pub fn push(&self, wish: Wish) {
        // Without a thread the server is on its way down.
        let _ = self.wishes.send(Some(wish));
    }

    /// After this the thread ends.
    pub fn close(&self) {
        let _ = self.wishes.send(None);
    }
}

/// The thread's life. `size_factor` is the part of the tree's size up to which the log is worth
/// sending; if there is none, it never is.
pub fn run<D: Disk>(
    store: &Store<D>,
    wishes: &Receiver<Option<Wish>>,
    size_factor: Option<f64>,
    core: &Core,
) {
    while let Ok(Some(Wish { link, after })) = wishes.recv() {
        let read = read(store, after, size_factor, &core.db);
        let learner = core.member.as_ref().and_then(|member| member.links.learner_to_log(link));
        let read = match read {
            Ok(read) => {
                let found = if read.found { "read" } else { "of no use" };
                if let Some(learner) = learner {
                    let (server, txns) = (learner.server.map(|id| id.0), read.txns.len());
                    tracing::info!(server, txns, "the log after {after}, for a learner: {found}");
                }
                read
            }
            Err(error) => {
                if let Some(learner) = learner {
                    let server = learner.server.map(|id| id.0);
                    tracing::warn!(server, "a learner gets the whole tree: {error}");
                }
                LogRead::default()
            }
        };
        core.submit([Input::Peer(ironkeeper_zab::Input::LogRead { link, read })]);
    }
}

/// What the log has after a transaction, as far as it is worth sending.
pub fn read<D: Disk>(
    store: &Store<D>,
    after: Zxid,
    size_factor: Option<f64>,
    db: &Database,
) -> Result<LogRead, StoreError> {
    let Some(factor) = size_factor else { return Ok(LogRead::default()) };
    let bytes_max = (store.newest_snapshot_bytes()? as f64 * factor) as u64;
    let applied = || db.read().applied();
    let tail = store.read_tail(after, bytes_max.min(BYTES_MAX), applied)?;
    let txns = tail.txns.into_iter().map(|(zxid, txn)| (zxid, Bytes::from(txn)));
    Ok(LogRead { found: tail.found, txns: txns.collect() })
}
