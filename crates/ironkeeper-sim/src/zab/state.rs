//! The replicated state: a log of opaque transactions, represented by its length and a running
//! hash.

use bytes::Bytes;
use ironkeeper_proto::Zxid;

use crate::random::mix;

/// The state of a server. Two equal states have the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct State {
    /// The number of transactions.
    pub index: u64,
    pub last: Zxid,
    /// A hash of all transactions in order.
    pub chain: u64,
}

impl State {
    pub fn apply(&mut self, zxid: Zxid, txn: &Bytes) {
        let mut hash = mix(self.chain ^ zxid.0 as u64);
        for part in txn.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
        *self = State { index: self.index + 1, last: zxid, chain: hash };
    }
}
