//! Identifiers as distinct types, so that the compiler rejects a mix-up.

use std::fmt;

/// A transaction id: the leader's epoch in the high 32 bits, a counter in the low 32 bits. Zxids
/// are compared as signed numbers, as in Apache ZooKeeper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Zxid(pub i64);

impl Zxid {
    /// The zxid before the first transaction.
    pub const ZERO: Zxid = Zxid(0);

    /// Combines an epoch and a counter.
    pub fn new(epoch: Epoch, counter: u32) -> Zxid {
        Zxid((epoch.0 << 32) | i64::from(counter))
    }

    /// Returns the epoch in the high half.
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> 32)
    }

    /// Returns the counter in the low half.
    pub fn counter(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// Returns the id as a plain number, for instance to store it in a database as a fencing token.
    /// Later transactions have larger numbers.
    ///
    /// ```
    /// use ironkeeper_proto::{Epoch, Zxid};
    ///
    /// assert_eq!(Zxid::new(Epoch(1), 2).as_i64(), 0x1_0000_0002);
    /// assert_eq!(i64::from(Zxid::new(Epoch(1), 2)), 0x1_0000_0002);
    /// ```
    pub fn as_i64(self) -> i64 {
        self.0
    }

    /// Returns the next id of the same epoch, or `None` if the counter is at its maximum.
    pub fn next(self) -> Option<Zxid> {
        (self.counter() != u32::MAX).then(|| Zxid(self.0 + 1))
    }

    /// Returns whether no transaction can exist between `last` and this one: it is the next of the
    /// epoch, or the first of a later epoch. A history in which each transaction follows the
    /// previous one has no gap.
    ///
    /// A leader counts from 1, because its zxid with counter 0 belongs to no transaction. A
    /// standalone Apache server counts plainly: if its counter overflows, the next epoch begins at
    /// 0, directly after the maximum. The rule includes this case for logs and for learners,
    /// because the history of a server that was standalone before is also sent to learners.
    pub fn follows(self, last: Zxid) -> bool {
        let is_next = last.0.checked_add(1) == Some(self.0);
        is_next || self.epoch() > last.epoch() && self.counter() == 1
    }
}

impl From<Zxid> for i64 {
    fn from(zxid: Zxid) -> i64 {
        zxid.0
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The period of one leader, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub i64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The id of a member of an ensemble: the N of its `server.N` line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerId(pub i64);

impl ServerId {
    /// The leader that a server without a vote names in its notifications.
    pub const NONE: ServerId = ServerId(i64::MIN);
    /// The id that observers without an id of their own send.
    pub const ANONYMOUS: ServerId = ServerId(i64::MAX);
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A client session. Zero on the wire means that there is no session yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub i64);

impl SessionId {
    /// No session.
    pub const NONE: SessionId = SessionId(0);

    /// Returns the password that proves ownership of the session. It is a function of the id alone,
    /// so every server of an ensemble, Apache's included, computes the same password.
    ///
    /// The function is the 48-bit linear congruential generator of `java.util.Random`.
    pub fn password(self) -> [u8; 16] {
        const MULTIPLIER: u64 = 0x5_DEEC_E66D;
        const MASK: u64 = (1 << 48) - 1;
        let mut state = ((self.0 as u64 ^ 0xB341_5C00) ^ MULTIPLIER) & MASK;
        let mut password = [0; 16];
        for word in password.chunks_exact_mut(4) {
            state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
            word.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
        }
        password
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number that a client gives to a request. The reply carries it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Xid(pub i32);

impl Xid {
    /// The xid of watch events, which the server sends without a request.
    pub const NOTIFICATION: Xid = Xid(-1);
    /// A ping, and its reply.
    pub const PING: Xid = Xid(-2);
    /// An authentication request, and its reply.
    pub const AUTH: Xid = Xid(-4);
    /// The request that sets watches again after a reconnect.
    pub const SET_WATCHES: Xid = Xid(-8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_the_one_a_real_server_gave() {
        let hex = |id: i64| -> String {
            SessionId(id).password().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(hex(0x0100_000b_30ac_0000), "b68910cf0b58219a842a71f1ccfab3b8");
        assert_eq!(hex(0x0100_000b_30ac_0002), "90471ccfcbc062109aa4a29a25e98a1e");
    }

    #[test]
    fn counter_does_not_walk_into_the_epoch() {
        let last = Zxid::new(Epoch(3), u32::MAX);
        assert_eq!(last.next(), None);
        assert_eq!(Zxid::new(Epoch(3), 9).next(), Some(Zxid::new(Epoch(3), 10)));
        assert_eq!(last.epoch(), Epoch(3));
    }

    #[test]
    fn successors_and_beginnings_of_epochs_follow() {
        let follows = |last: (i64, u32), next: (i64, u32)| {
            Zxid::new(Epoch(next.0), next.1).follows(Zxid::new(Epoch(last.0), last.1))
        };
        assert!(follows((0, 0), (0, 1)));
        assert!(follows((1, 7), (1, 8)));
        assert!(follows((1, 7), (2, 1)));
        assert!(follows((1, 7), (9, 1)));
        assert!(follows((1, u32::MAX), (2, 1)));
        assert!(!follows((1, 7), (1, 9)));
        assert!(!follows((1, 7), (1, 7)));
        assert!(!follows((1, 7), (1, 6)));
        assert!(!follows((1, 7), (2, 2)));
        assert!(!follows((2, 7), (1, 1)));
        assert!(!Zxid(i64::MIN).follows(Zxid(i64::MAX)));
    }

    #[test]
    fn counter_zero_follows_only_the_maximum_of_the_previous_epoch() {
        let first = Zxid::new(Epoch(2), 0);
        assert!(first.follows(Zxid::new(Epoch(1), u32::MAX)));
        assert!(!first.follows(Zxid::new(Epoch(1), u32::MAX - 1)));
        assert!(!first.follows(Zxid::new(Epoch(0), u32::MAX)));
    }
}
