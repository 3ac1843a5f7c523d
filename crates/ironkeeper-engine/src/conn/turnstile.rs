//! The admission of the next request of one connection: the permit for its bytes if it is large,
//! and its slot of the request throttle.
//!
//! A connection waits for one request at a time: the requests behind it stay unread. While it
//! waits, the turnstile keeps what the request has obtained already and how long it has waited.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::OpCode;
use ironkeeper_proto::op::OpClass;

use super::CloseReason;
use super::frames::{Kind, ReadOp};
use crate::large_requests::{LargePermit, LargeRequests, TooManyBytes};
use crate::request_throttle::RequestThrottle;
use crate::stats::ThrottleStats;

/// The admission of one connection's requests; see the module documentation. Under the connection's
/// lock.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    slot: Slot,
    /// When the bytes below began to wait.
    since_ms: u64,
    /// Bytes, from the next request on, that had been received by then.
    bytes: usize,
    /// The permit of the next request, if that is a large one.
    permit: Option<LargePermit>,
    /// A stale request was dropped, so no later request may be executed.
    pub dropped: bool,
}

/// The slot of the request throttle for the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slot {
    #[default]
    None,
    /// The connection is in the queue of the throttle.
    Queued,
    /// A slot is taken on behalf of the next request.
    Granted,
}

/// What a request needs from the throttle, and what the throttle may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Needs no slot and waits only behind requests that do; may be rejected as too late.
    Read(OpCode),
    /// Needs no slot and is never rejected as too late.
    Ping,
    /// Needs a slot; may be rejected as too late.
    Write(OpCode),
    /// Needs a slot and is never rejected as too late.
    OpenSession,
    /// Needs a slot and is neither rejected nor dropped: it cleans up.
    CloseSession,
}

impl Demand {
    /// Returns what a request needs; `None` if it does not pass through the throttle.
    /// Authentication does not, and neither do operations that clients may not send.
    pub fn of(kind: Kind) -> Option<Demand> {
        let op = match kind {
            Kind::Read(ReadOp::Served(op)) | Kind::Write(op) => op,
            Kind::Read(ReadOp::Rejected(_)) | Kind::Auth(_) => return None,
        };
        match op.class() {
            OpClass::Read => Some(Demand::Read(op)),
            OpClass::Ping => Some(Demand::Ping),
            OpClass::Write => Some(Demand::Write(op)),
            OpClass::Close => Some(Demand::CloseSession),
            OpClass::Auth | OpClass::Internal => None,
        }
    }

    fn needs_slot(self) -> bool {
        match self {
            Demand::Write(_) | Demand::OpenSession | Demand::CloseSession => true,
            Demand::Read(_) | Demand::Ping => false,
        }
    }

    /// Returns the operation if the request is rejected when it has waited too long.
    fn rejectable(self) -> Option<OpCode> {
        match self {
            Demand::Read(op) | Demand::Write(op) => Some(op),
            Demand::Ping | Demand::OpenSession | Demand::CloseSession => None,
        }
    }
}

/// A request at the turnstile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub demand: Demand,
    pub now_ms: u64,
    pub timeout_ms: i32,
    /// The bytes of the request, with its length field.
    pub bytes: usize,
    /// The bytes that have arrived, from this request on.
    pub bytes_waiting: usize,
}

/// The decision of the request throttle on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    /// The request passes, but only to be rejected because it waited too long.
    TooLate(OpCode),
    Wait,
}

impl Turnstile {
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns whether the connection waits for a slot, or has been granted one that it has not
    /// used.
    pub fn is_waiting(&self) -> bool {
        self.slot != Slot::None
    }

    /// Records that the throttle has passed a slot to this connection.
    pub fn grant(&mut self) {
        self.slot = Slot::Granted;
    }

    /// Lets the next request pass if it needs no slot of the throttle, finds a free one or was
    /// granted one; otherwise enqueues the connection, `who`.
    pub fn enter<T: Clone>(
        &mut self,
        throttle: &RequestThrottle<T>,
        stats: &ThrottleStats,
        who: &T,
        arrival: Arrival,
    ) -> Result<Admission, CloseReason> {
        let Arrival { demand, now_ms, timeout_ms, bytes, bytes_waiting } = arrival;
        let waited_ms = self.waited_ms(now_ms);
        let late = throttle.config.stale_when_late
            && demand != Demand::CloseSession
            && waited_ms > u64::try_from(timeout_ms).unwrap_or(0);
        if late && throttle.config.drop_stale {
            stats.stale_requests_dropped.fetch_add(1, Relaxed);
            return Err(CloseReason::StaleRequest);
        }
        let is_too_late = throttle.config.refuse_after_ms.is_some_and(|limit| waited_ms > limit);
        let too_late = demand.rejectable().filter(|_| is_too_late);
        match self.slot {
            Slot::Queued => return Ok(Admission::Wait),
            Slot::Granted => {}
            // A rejected request only keeps its position in the order of replies.
            Slot::None if too_late.is_some() => throttle.enter_anyway(),
            Slot::None if !demand.needs_slot() || throttle.enter(who) => {}
            Slot::None => {
                self.wait(now_ms, bytes_waiting);
                stats.requests_waited.fetch_add(1, Relaxed);
                return Ok(Admission::Wait);
            }
        }
        self.pass(bytes);
        stats.queue_time.add(waited_ms);
        if late {
            stats.stale_requests.fetch_add(1, Relaxed);
        }
        Ok(match too_late {
            None => Admission::Now,
            Some(op) => {
                stats.requests_refused.fetch_add(1, Relaxed);
                Admission::TooLate(op)
            }
        })
    }

    /// Returns the permit of the next request, of `len` bytes: the one that is kept, or a new one.
    pub fn permit(
        &mut self,
        large: &Arc<LargeRequests>,
        len: usize,
    ) -> Result<Option<LargePermit>, TooManyBytes> {
        match self.permit.take() {
            None => large.admit(len),
            kept => Ok(kept),
        }
    }

    /// Keeps the permit of a request that has to wait for its slot.
    pub fn keep(&mut self, permit: Option<LargePermit>) {
        self.permit = permit;
    }

    /// Records that `bytes` have been received and wait from now on.
    fn wait(&mut self, now_ms: u64, bytes: usize) {
        self.slot = Slot::Queued;
        // Bytes that waited before keep their start time.
        if self.bytes == 0 {
            (self.since_ms, self.bytes) = (now_ms, bytes);
        }
    }

    /// Returns how long the next request has been waiting.
    fn waited_ms(&self, now_ms: u64) -> u64 {
        if self.bytes == 0 { 0 } else { now_ms.saturating_sub(self.since_ms) }
    }

    /// Records that the next `bytes` are processed.
    fn pass(&mut self, bytes: usize) {
        self.slot = Slot::None;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_throttle::RequestThrottleConfig;

    const CONFIG: RequestThrottleConfig = RequestThrottleConfig {
        requests_max: 1,
        look_interval_ms: 100,
        drop_stale: true,
        stale_when_gone: true,
        stale_when_late: false,
        refuse_after_ms: None,
    };

    const READ: Demand = Demand::Read(OpCode::GetData);
    const WRITE: Demand = Demand::Write(OpCode::SetData);

    fn arrival(demand: Demand, now_ms: u64) -> Arrival {
        Arrival { demand, now_ms, timeout_ms: 4000, bytes: 20, bytes_waiting: 30 }
    }

    /// The turnstiles of two connections at one throttle.
    struct Two {
        throttle: RequestThrottle<char>,
        stats: ThrottleStats,
        a: Turnstile,
        b: Turnstile,
    }

    impl Two {
        fn new(config: RequestThrottleConfig) -> Two {
            let (throttle, stats) = (RequestThrottle::new(config), ThrottleStats::default());
            Two { throttle, stats, a: Turnstile::default(), b: Turnstile::default() }
        }

        fn a(&mut self, demand: Demand, now_ms: u64) -> Result<Admission, CloseReason> {
            self.a.enter(&self.throttle, &self.stats, &'a', arrival(demand, now_ms))
        }

        fn b(&mut self, demand: Demand, now_ms: u64) -> Result<Admission, CloseReason> {
            self.b.enter(&self.throttle, &self.stats, &'b', arrival(demand, now_ms))
        }
    }

    #[test]
    fn a_write_waits_until_it_is_granted_the_slot_of_another() {
        let mut two = Two::new(CONFIG);
        assert_eq!(two.a(WRITE, 0), Ok(Admission::Now));
        assert_eq!(two.b(WRITE, 0), Ok(Admission::Wait));
        assert!(two.b.is_waiting() && !two.a.is_waiting());
        assert_eq!(two.b(WRITE, 10), Ok(Admission::Wait), "it stays in the queue");
        assert_eq!((two.throttle.waiting(), two.throttle.leave()), (1, Some('b')));
        two.b.grant();
        assert_eq!(two.b.slot(), Slot::Granted);
        assert_eq!(two.b(WRITE, 20), Ok(Admission::Now));
        assert_eq!((two.b.slot(), two.throttle.taken()), (Slot::None, 1));
    }

    #[test]
    fn reads_and_pings_need_no_slot_and_wait_only_behind_a_write_of_their_connection() {
        let mut two = Two::new(CONFIG);
        assert_eq!(two.a(Demand::OpenSession, 0), Ok(Admission::Now));
        assert_eq!(two.b(READ, 0), Ok(Admission::Now));
        assert_eq!(two.b(Demand::Ping, 0), Ok(Admission::Now));
        assert_eq!(two.throttle.taken(), 1);
        assert_eq!(two.b(Demand::CloseSession, 0), Ok(Admission::Wait));
        assert_eq!(two.b(READ, 0), Ok(Admission::Wait));
    }

    #[test]
    fn a_request_that_waited_too_long_passes_only_to_be_rejected() {
        let config = RequestThrottleConfig { refuse_after_ms: Some(100), ..CONFIG };
        for (demand, admission) in [
            (WRITE, Admission::TooLate(OpCode::SetData)),
            (READ, Admission::TooLate(OpCode::GetData)),
            (Demand::Ping, Admission::Now),
            (Demand::OpenSession, Admission::Now),
            (Demand::CloseSession, Admission::Now),
        ] {
            let mut two = Two::new(config);
            two.a(WRITE, 0).unwrap();
            assert_eq!(two.b(WRITE, 0), Ok(Admission::Wait));
            two.b.grant();
            assert_eq!(two.b(demand, 101), Ok(admission), "{demand:?}");
        }
    }

    #[test]
    fn a_stale_request_ends_its_connection_unless_it_closes_the_session() {
        let config = RequestThrottleConfig { stale_when_late: true, ..CONFIG };
        for (demand, result) in [
            (WRITE, Err(CloseReason::StaleRequest)),
            (Demand::OpenSession, Err(CloseReason::StaleRequest)),
            (Demand::CloseSession, Ok(Admission::Wait)),
        ] {
            let mut two = Two::new(config);
            two.a(WRITE, 0).unwrap();
            two.b(demand, 0).unwrap();
            assert_eq!(two.b(demand, 4000), Ok(Admission::Wait));
            assert_eq!(two.b(demand, 4001), result, "{demand:?}");
        }
    }

    #[test]
    fn a_stale_request_that_is_not_dropped_is_counted() {
        let config = RequestThrottleConfig { stale_when_late: true, drop_stale: false, ..CONFIG };
        let mut two = Two::new(config);
        two.a(WRITE, 0).unwrap();
        two.b(WRITE, 0).unwrap();
        two.b.grant();
        assert_eq!(two.b(WRITE, 9000), Ok(Admission::Now));
        let stats = &two.stats;
        let counted = [&stats.stale_requests, &stats.stale_requests_dropped];
        assert_eq!(counted.map(|counter| counter.load(Relaxed)), [1, 0]);
    }

    #[test]
    fn a_kept_permit_is_used_by_the_request_that_waited() {
        let large = LargeRequests::new(10, 50);
        let mut turnstile = Turnstile::default();
        let permit = turnstile.permit(&large, 40).unwrap();
        assert!(permit.is_some());
        turnstile.keep(permit);
        let again = turnstile.permit(&large, 40).expect("its own bytes do not count twice");
        assert_eq!(large.bytes(), 40);
        drop(again);
        assert!(turnstile.permit(&large, 10).unwrap().is_none(), "not large");
    }

    #[test]
    fn age_is_that_of_the_bytes_that_waited() {
        let mut turnstile = Turnstile::default();
        assert_eq!(turnstile.waited_ms(5), 0);
        turnstile.wait(10, 30);
        assert_eq!(turnstile.waited_ms(50), 40);
        turnstile.pass(20);
        turnstile.wait(60, 10);
        assert_eq!(turnstile.waited_ms(70), 60, "received before the first wait");
        turnstile.pass(10);
        assert_eq!(turnstile.waited_ms(70), 0, "received after it");
    }

    #[test]
    fn authentication_and_rejected_operations_do_not_pass_through_the_throttle() {
        assert_eq!(Demand::of(Kind::Auth(OpCode::Auth)), None);
        assert_eq!(Demand::of(Kind::Read(ReadOp::Rejected(99))), None);
        assert_eq!(Demand::of(Kind::Read(ReadOp::Served(OpCode::Ping))), Some(Demand::Ping));
        assert_eq!(
            Demand::of(Kind::Read(ReadOp::Served(OpCode::AddWatch))),
            Some(Demand::Read(OpCode::AddWatch))
        );
        assert_eq!(Demand::of(Kind::Write(OpCode::Sync)), Some(Demand::Write(OpCode::Sync)));
        assert_eq!(Demand::of(Kind::Write(OpCode::CloseSession)), Some(Demand::CloseSession));
    }
}
