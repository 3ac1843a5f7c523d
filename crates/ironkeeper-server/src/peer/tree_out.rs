//! A snapshot that is being sent to a learner.
//!
//! ```text
//! SNAP | sessions, ACLs, nodes, as in a snapshot file but without its header | "/" | "BenWasHere"
//! ```
//! The stream has neither a length nor a checksum. Each slice is made when the kernel has accepted
//! the one before, so a slow learner costs no memory.

use std::fmt;
use std::sync::Arc;

use ironkeeper_engine::Database;
use ironkeeper_engine::snapshot::{Slice, SnapshotJob};
use ironkeeper_tree::SnapshotWalk;

/// A source of the bytes of a snapshot.
pub trait TreeSource: Send {
    /// Appends the next bytes of the stream, as many as the source chooses.
    fn next_slice(&mut self, out: &mut Vec<u8>) -> Slice;

    /// Called once: the snapshot is sent, or it was abandoned because the link has closed.
    fn end(self: Box<Self>);
}

/// The tree of this server, as it was when the job was created.
pub struct OwnTree {
    job: Box<SnapshotJob>,
    db: Arc<Database>,
    begun: bool,
    take_home: Box<dyn FnOnce(SnapshotWalk) + Send>,
}

impl OwnTree {
    /// Creates a source. `take_home` receives the walk at the end, for the engine's `SnapshotSent`.
    pub fn new(
        job: Box<SnapshotJob>,
        db: Arc<Database>,
        take_home: impl FnOnce(SnapshotWalk) + Send + 'static,
    ) -> OwnTree {
        OwnTree { job, db, begun: false, take_home: Box::new(take_home) }
    }
}

impl TreeSource for OwnTree {
    fn next_slice(&mut self, out: &mut Vec<u8>) -> Slice {
        if !std::mem::replace(&mut self.begun, true) {
            self.job.encode_learner_head(out);
        }
        let slice = self.job.next_slice(&self.db, out);
        if slice == Slice::Done {
            self.job.encode_learner_tail(out);
        }
        slice
    }

    fn end(self: Box<Self>) {
        (self.take_home)(self.job.into_walk());
    }
}

impl fmt::Debug for OwnTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnTree").field("zxid", &self.job.zxid()).finish_non_exhaustive()
    }
}

/// A source whose `end` is called on every path.
pub(super) struct OutgoingTree {
    source: Option<Box<dyn TreeSource>>,
}

impl OutgoingTree {
    pub(super) fn new(source: Box<dyn TreeSource>) -> OutgoingTree {
        OutgoingTree { source: Some(source) }
    }

    pub(super) fn next_slice(&mut self, out: &mut Vec<u8>) -> Slice {
        let slice = match &mut self.source {
            Some(source) => source.next_slice(out),
            None => return Slice::Done,
        };
        if slice != Slice::More {
            self.end();
        }
        slice
    }

    fn end(&mut self) {
        if let Some(source) = self.source.take() {
            source.end();
        }
    }
}

impl Drop for OutgoingTree {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for OutgoingTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutgoingTree")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A source of given slices that counts the calls of `end`.
    pub(in crate::peer) struct Slices {
        pub slices: VecDeque<Vec<u8>>,
        pub last: Slice,
        pub ended: Arc<AtomicUsize>,
    }

    impl TreeSource for Slices {
        fn next_slice(&mut self, out: &mut Vec<u8>) -> Slice {
            out.extend(self.slices.pop_front().unwrap_or_default());
            if self.slices.is_empty() { self.last } else { Slice::More }
        }

        fn end(self: Box<Self>) {
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(in crate::peer) fn tree_of(slices: &[&str], ended: &Arc<AtomicUsize>) -> OutgoingTree {
        let slices = slices.iter().map(|slice| slice.as_bytes().to_vec()).collect();
        let ended = Arc::clone(ended);
        OutgoingTree::new(Box::new(Slices { slices, last: Slice::Done, ended }))
    }

    #[test]
    fn a_source_is_ended_once_whether_its_tree_was_sent_or_given_up() {
        let ended = Arc::new(AtomicUsize::new(0));
        let mut out = Vec::new();
        let mut sent = tree_of(&["one", "two"], &ended);
        assert_eq!(sent.next_slice(&mut out), Slice::More);
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        assert_eq!(sent.next_slice(&mut out), Slice::Done);
        assert_eq!(out, b"onetwo");
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        drop(sent);
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        drop(tree_of(&["one", "two"], &ended));
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }
}
