//! A snapshot that the task of a link sends to a learner, slice by slice.

use std::io;

use ironkeeper_engine::snapshot::Slice;
use ironkeeper_node::TREE_STEP_BYTES;

use super::tree_out::OutgoingTree;
use crate::wire::Writer;

/// The engine has replaced its tree while the snapshot was being sent.
const TREE_REPLACED: &str = "the tree it was being sent is gone";

/// The snapshot and the slice of it that is being sent.
pub(super) struct SnapshotSender {
    tree: OutgoingTree,
    slice: Vec<u8>,
    is_last: bool,
    /// The number of bytes of the slice that are sent.
    sent: usize,
    /// Bytes of the snapshot that were not reported yet.
    unreported: usize,
    /// Bytes of the snapshot sent so far.
    total: u64,
}

impl SnapshotSender {
    /// Makes the first slice, which waits for the gate: the caller does not hold the lock of the
    /// link.
    pub(super) fn new(tree: OutgoingTree) -> io::Result<SnapshotSender> {
        let (slice, is_last, sent, unreported, total) = (Vec::new(), false, 0, 0, 0);
        let mut sender = SnapshotSender { tree, slice, is_last, sent, unreported, total };
        sender.next_slice()?;
        Ok(sender)
    }

    /// Returns the bytes sent so far.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Sends as much of the slice as the stream accepts.
    pub(super) fn send(&mut self, writer: &Writer) -> io::Result<()> {
        let rest = &self.slice[self.sent..];
        if !rest.is_empty() {
            let count = writer.try_write(rest)?;
            self.sent += count;
            self.unreported += count;
            self.total += count as u64;
        }
        Ok(())
    }

    /// Returns whether so much was sent since the last time that ZAB is to be notified.
    pub(super) fn takes_step(&mut self) -> bool {
        let is_step = self.unreported >= TREE_STEP_BYTES;
        if is_step {
            self.unreported = 0;
        }
        is_step
    }

    /// Makes the next slice if this one is sent. One at a time, so that other links have their
    /// turn. Returns true if the snapshot is sent completely.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        if self.sent < self.slice.len() {
            return Ok(false);
        }
        if self.is_last {
            return Ok(true);
        }
        self.next_slice()?;
        Ok(false)
    }

    fn next_slice(&mut self) -> io::Result<()> {
        self.slice.clear();
        self.sent = 0;
        match self.tree.next_slice(&mut self.slice) {
            Slice::More => {}
            Slice::Done => self.is_last = true,
            Slice::Lost => return Err(io::Error::other(TREE_REPLACED)),
        }
        Ok(())
    }
}
