//! A tree on its way to a learner.
//!
//! ```text
//! SNAP | sessions, ACLs, nodes, as in a snapshot file but without its header | "/" | "BenWasHere"
//! ```
//! The stream has neither a length nor a checksum. Its slices are made one by one, each when the
//! kernel has taken the one before, so a slow learner costs no memory.

use std::fmt;

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record::END_PATH;

/// Behind the tree, so that the learner knows that it is whole.
pub(super) const SIGNATURE: &str = "BenWasHere";

/// Where the bytes of a tree come from.
pub trait TreeSource: Send {
    /// Appends the next bytes: first sessions and ACLs, then nodes, in pieces of any size. False when
    /// that was the last node.
    fn next_slice(&mut self, out: &mut Vec<u8>) -> bool;

    /// Called once: the tree is through, or it was given up because the link is gone.
    fn end(self: Box<Self>);
}

/// A source that cannot be forgotten.
pub(super) struct OutgoingTree {
    source: Option<Box<dyn TreeSource>>,
}

impl OutgoingTree {
    pub(super) fn new(source: Box<dyn TreeSource>) -> OutgoingTree {
        OutgoingTree { source: Some(source) }
    }

    /// Appends the next part of the stream; false when that was the end of it.
    pub(super) fn next_slice(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(source) = &mut self.source else { return false };
        if source.next_slice(out) {
            return true;
        }
        out.put_str(END_PATH);
        out.put_str(SIGNATURE);
        self.end();
        false
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A source of given slices that counts how often it was ended.
    pub(in crate::peer) struct Slices {
        pub slices: VecDeque<Vec<u8>>,
        pub ended: Arc<AtomicUsize>,
    }

    impl TreeSource for Slices {
        fn next_slice(&mut self, out: &mut Vec<u8>) -> bool {
            out.extend(self.slices.pop_front().unwrap_or_default());
            !self.slices.is_empty()
        }

        fn end(self: Box<Self>) {
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(in crate::peer) fn tree_of(slices: &[&str]) -> OutgoingTree {
        let slices = slices.iter().map(|slice| slice.as_bytes().to_vec()).collect();
        OutgoingTree::new(Box::new(Slices { slices, ended: Arc::default() }))
    }

    #[test]
    fn the_signature_follows_the_last_node_and_the_source_is_ended_once() {
        let ended = Arc::new(AtomicUsize::new(0));
        let slices = VecDeque::from([b"one".to_vec(), b"two".to_vec()]);
        let mut tree = OutgoingTree::new(Box::new(Slices { slices, ended: Arc::clone(&ended) }));
        let mut out = Vec::new();
        assert!(tree.next_slice(&mut out));
        assert_eq!(out, b"one");
        assert!(!tree.next_slice(&mut out));
        assert_eq!(out, b"onetwo\0\0\0\x01/\0\0\0\x0aBenWasHere");
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        drop(tree);
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_tree_that_is_given_up_goes_back_to_its_source() {
        let ended = Arc::new(AtomicUsize::new(0));
        let slices = VecDeque::from([b"one".to_vec(), b"two".to_vec()]);
        let source = Slices { slices, ended: Arc::clone(&ended) };
        drop(OutgoingTree::new(Box::new(source)));
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }
}
