//! The counters of the reads of one hold of the gate.

use std::sync::atomic::Ordering::Relaxed;

use super::{FRAME_HEAD_BYTES, ServerStats};

/// The reads served in one hold of the gate, added to the server's counters at its end: threads
/// that serve reads in parallel would otherwise contend for the same cache lines at every request.
#[derive(Debug, Default)]
pub(crate) struct ReadTally {
    replies: u64,
    response_bytes: u64,
    /// Served within the millisecond, as nearly all are.
    at_once: u64,
    last_bytes: usize,
    least_bytes: usize,
    most_bytes: usize,
}

impl ReadTally {
    /// Counts a reply of `frame_bytes` on the wire; `in_response_bytes` is false for pings.
    pub fn note(
        &mut self,
        stats: &ServerStats,
        frame_bytes: usize,
        in_response_bytes: bool,
        latency_ms: u64,
    ) {
        let bytes = frame_bytes.saturating_sub(FRAME_HEAD_BYTES);
        self.response_bytes += if in_response_bytes { bytes as u64 } else { 0 };
        self.least_bytes = if self.replies == 0 { bytes } else { self.least_bytes.min(bytes) };
        self.most_bytes = self.most_bytes.max(bytes);
        self.last_bytes = bytes;
        self.replies += 1;
        match latency_ms {
            0 => self.at_once += 1,
            _ => stats.read_latency.add(latency_ms),
        }
    }

    /// Adds everything to the server's counters.
    pub fn settle(self, stats: &ServerStats) {
        if self.replies == 0 {
            return;
        }
        stats.packets_sent.fetch_add(self.replies, Relaxed);
        stats.response_bytes.fetch_add(self.response_bytes, Relaxed);
        stats.read_latency.add_zeros(self.at_once);
        stats.response_size.note(self.least_bytes);
        stats.response_size.note(self.most_bytes);
        stats.response_size.note(self.last_bytes);
    }
}
