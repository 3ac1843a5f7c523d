//! The requests of a connection that cannot run yet, in order.
//!
//! A read is served immediately if the lane is empty; otherwise it waits here behind the writes of
//! its own session, never for other sessions. Before a write of this connection is applied, all
//! reads ahead of it are served. So `W1 R1 W2 R2` is exact (R1 sees W1 and not W2) although W1 and
//! W2 are both in flight.
//!
//! The connection's I/O task pushes; the engine pops writes; both may serve the reads at the front,
//! under the connection's lock.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::{OpCode, Xid};

use crate::conn::frames::{ReadOp, ReadRequest};
use crate::large_requests::LargePermit;

/// The maximum number of waiting requests of one connection; at it the server stops reading its
/// socket.
pub const LANE_ITEMS_MAX: usize = 2048;
/// The same bound in bytes of waiting reads.
pub const LANE_BYTES_MAX: usize = 1 << 20;
/// The same bound in [`Weight`]: the engine serves all reads ahead of a write in one hold of the
/// gate.
pub const LANE_WEIGHT_MAX: u32 = 4;

/// The work that a short read request can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub u32);

impl Weight {
    /// Returns the weight of a read. Its reply may be long, and a list of ephemerals costs as much
    /// as all ephemerals of the session, however few are part of the reply.
    pub fn of(op: ReadOp) -> Weight {
        use OpCode::*;
        match op {
            ReadOp::Served(GetEphemerals) => Weight(LANE_WEIGHT_MAX),
            ReadOp::Served(
                GetChildren | GetChildren2 | MultiRead | SetWatches | SetWatches2 | GetAcl,
            ) => Weight(1),
            ReadOp::Served(_) | ReadOp::Rejected(_) => Weight(0),
        }
    }
}

/// A read that waits for the writes before it.
#[derive(Debug)]
pub struct WaitingRead {
    pub xid: Xid,
    pub op: ReadOp,
    pub body: Bytes,
    pub received_ms: u64,
    /// Held until the read is served.
    _permit: Option<LargePermit>,
}

impl WaitingRead {
    /// Copies a request that cannot be served yet.
    pub fn new(
        request: ReadRequest<'_>,
        received_ms: u64,
        permit: Option<LargePermit>,
    ) -> WaitingRead {
        let ReadRequest { xid, op, body } = request;
        let body = Bytes::copy_from_slice(body);
        WaitingRead { xid, op, body, received_ms, _permit: permit }
    }

    pub fn request(&self) -> ReadRequest<'_> {
        ReadRequest { xid: self.xid, op: self.op, body: &self.body }
    }
}

#[derive(Debug)]
pub enum LaneItem {
    /// Submitted to the engine; removed when its reply is in the outbox.
    Write {
        xid: Xid,
    },
    Read(WaitingRead),
}

/// The queue of one connection; see the module documentation.
#[derive(Debug, Default)]
pub struct Lane {
    items: VecDeque<LaneItem>,
    read_bytes: usize,
    read_weight: u32,
    writes: usize,
}

impl Lane {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the server must stop reading this connection for now.
    pub fn is_full(&self) -> bool {
        self.items.len() >= LANE_ITEMS_MAX
            || self.read_bytes >= LANE_BYTES_MAX
            || self.read_weight >= LANE_WEIGHT_MAX
    }

    /// Returns the number of writes that were submitted to the engine.
    pub fn writes(&self) -> usize {
        self.writes
    }

    pub fn push_write(&mut self, xid: Xid) {
        self.writes += 1;
        self.items.push_back(LaneItem::Write { xid });
    }

    pub fn push_read(&mut self, read: WaitingRead) {
        self.read_bytes += read.request().frame_len();
        self.read_weight += Weight::of(read.op).0;
        self.items.push_back(LaneItem::Read(read));
    }

    /// Removes the read at the front, if there is one.
    pub fn pop_read(&mut self) -> Option<WaitingRead> {
        let front = self.items.pop_front_if(|item| matches!(item, LaneItem::Read(_)));
        let Some(LaneItem::Read(read)) = front else { return None };
        self.read_bytes -= read.request().frame_len();
        self.read_weight -= Weight::of(read.op).0;
        Some(read)
    }

    pub fn has_read_in_front(&self) -> bool {
        matches!(self.items.front(), Some(LaneItem::Read(_)))
    }

    /// Removes the write at the front. The engine replies to a connection's writes in the order of
    /// their arrival, so this must be the write with `xid`.
    pub fn pop_write(&mut self, xid: Xid) {
        match self.items.pop_front() {
            Some(LaneItem::Write { xid: front }) if front == xid => self.writes -= 1,
            other => {
                unreachable!("the write {xid:?} is answered but the lane begins with {other:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(xid: i32, op: OpCode, body: &[u8]) -> WaitingRead {
        let request = ReadRequest { xid: Xid(xid), op: ReadOp::Served(op), body };
        WaitingRead::new(request, 0, None)
    }

    fn read(xid: i32) -> WaitingRead {
        read_of(xid, OpCode::GetData, b"")
    }

    fn popped(lane: &mut Lane) -> Option<i32> {
        lane.pop_read().map(|read| read.xid.0)
    }

    #[test]
    fn reads_come_out_in_order_and_only_in_front_of_the_next_write() {
        let mut lane = Lane::default();
        lane.push_write(Xid(1));
        lane.push_read(read(2));
        lane.push_read(read(3));
        lane.push_write(Xid(4));
        lane.push_read(read(5));
        assert!(lane.pop_read().is_none() && !lane.has_read_in_front());
        lane.pop_write(Xid(1));
        assert!(lane.has_read_in_front());
        assert_eq!(popped(&mut lane), Some(2));
        assert_eq!(popped(&mut lane), Some(3));
        assert!(lane.pop_read().is_none());
        assert_eq!((lane.len(), lane.writes()), (2, 1));
        lane.pop_write(Xid(4));
        assert_eq!(popped(&mut lane), Some(5));
        assert!(lane.is_empty() && lane.writes() == 0);
    }

    #[test]
    #[should_panic(expected = "the lane begins with")]
    fn a_write_answered_out_of_turn_is_a_bug() {
        let mut lane = Lane::default();
        lane.push_write(Xid(1));
        lane.push_write(Xid(2));
        lane.pop_write(Xid(2));
    }

    #[test]
    fn a_lane_is_full_by_requests_bytes_or_work_and_has_room_again() {
        let mut lane = Lane::default();
        for xid in 0..LANE_ITEMS_MAX {
            assert!(!lane.is_full());
            lane.push_write(Xid(xid as i32));
        }
        assert!(lane.is_full());
        lane.pop_write(Xid(0));
        assert!(!lane.is_full());

        let mut lane = Lane::default();
        lane.push_read(read_of(1, OpCode::GetData, &vec![0; LANE_BYTES_MAX]));
        assert!(lane.is_full());
        lane.pop_read();
        assert!(!lane.is_full());

        let mut lane = Lane::default();
        lane.push_read(read(1));
        lane.push_read(read_of(2, OpCode::GetEphemerals, b""));
        assert!(lane.is_full());
        lane.pop_read();
        assert!(lane.is_full(), "the long one waits still");
        lane.pop_read();
        assert!(!lane.is_full());
    }
}
