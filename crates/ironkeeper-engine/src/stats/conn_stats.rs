//! The statistics of one connection.

use ironkeeper_proto::{OpCode, Xid, Zxid};

/// The last operation of a connection, as `cons` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastOp {
    /// No reply yet; a resumed session has this until its first request.
    None,
    /// A write that failed, or the statistics were reset.
    NotApplicable,
    Op(OpCode),
}

impl LastOp {
    pub fn name(self) -> &'static str {
        match self {
            LastOp::None => "null",
            LastOp::NotApplicable => "NA",
            LastOp::Op(op) => op.short_name(),
        }
    }
}

/// The statistics of one connection for `cons`. Under the connection's lock.
#[derive(Clone, Debug)]
pub struct ConnStats {
    pub established_wall_ms: i64,
    pub packets_received: u64,
    pub packets_sent: u64,
    pub last_op: LastOp,
    /// The last xid that was not negative; -1 after a reset.
    pub last_xid: Xid,
    pub last_zxid: Zxid,
    pub last_response_ms: u64,
    pub last_latency_ms: u64,
    latency: ConnLatency,
}

#[derive(Clone, Copy, Debug, Default)]
struct ConnLatency {
    count: u64,
    sum_ms: u64,
    least_ms: u64,
    most_ms: u64,
}

impl ConnStats {
    pub fn new(established_wall_ms: i64) -> ConnStats {
        ConnStats {
            established_wall_ms,
            packets_received: 0,
            packets_sent: 0,
            last_op: LastOp::None,
            last_xid: Xid(0),
            last_zxid: Zxid::ZERO,
            last_response_ms: 0,
            last_latency_ms: 0,
            latency: ConnLatency::default(),
        }
    }

    /// Resets what `crst` resets.
    pub fn reset(&mut self) {
        *self = ConnStats {
            last_op: LastOp::NotApplicable,
            last_xid: Xid(-1),
            last_zxid: Zxid(-1),
            ..ConnStats::new(self.established_wall_ms)
        };
    }

    pub fn note_reply(&mut self, op: LastOp, xid: Xid, zxid: Zxid, now_ms: u64, latency_ms: u64) {
        self.packets_sent += 1;
        self.last_op = op;
        if xid.0 >= 0 {
            self.last_xid = xid;
        }
        self.last_zxid = zxid;
        self.last_response_ms = now_ms;
        self.last_latency_ms = latency_ms;
        let latency = &mut self.latency;
        latency.least_ms = match latency.count {
            0 => latency_ms,
            _ => latency.least_ms.min(latency_ms),
        };
        latency.most_ms = latency.most_ms.max(latency_ms);
        latency.sum_ms += latency_ms;
        latency.count += 1;
    }

    pub fn min_latency_ms(&self) -> u64 {
        self.latency.least_ms
    }

    /// Returns the average, rounded down as `cons` shows it.
    pub fn average_latency_ms(&self) -> u64 {
        self.latency.sum_ms.checked_div(self.latency.count).unwrap_or(0)
    }

    pub fn max_latency_ms(&self) -> u64 {
        self.latency.most_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_remembers_its_last_real_xid() {
        let mut stats = ConnStats::new(5);
        assert_eq!((stats.last_op.name(), stats.last_xid, stats.last_zxid.0), ("null", Xid(0), 0));
        stats.note_reply(LastOp::Op(OpCode::GetData), Xid(3), Zxid(9), 100, 4);
        stats.note_reply(LastOp::Op(OpCode::Ping), Xid::PING, Zxid(9), 101, 1);
        assert_eq!((stats.last_op.name(), stats.last_xid), ("PING", Xid(3)));
        let latency = (stats.min_latency_ms(), stats.average_latency_ms(), stats.max_latency_ms());
        assert_eq!(latency, (1, 2, 4));
        stats.reset();
        assert_eq!((stats.last_op.name(), stats.last_xid, stats.last_zxid.0), ("NA", Xid(-1), -1));
        assert_eq!((stats.established_wall_ms, stats.min_latency_ms()), (5, 0));
    }
}
