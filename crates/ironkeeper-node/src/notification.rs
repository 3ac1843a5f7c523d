//! The frame of a notification on the election port.

use ironkeeper_proto::Notification;
use ironkeeper_proto::jute::Put;

/// Appends the frame of a vote.
pub fn encode_vote(vote: &Notification, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_i32(0);
    vote.encode(out);
    // A membership that is too long for a frame is too long for every reader.
    let len = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}
