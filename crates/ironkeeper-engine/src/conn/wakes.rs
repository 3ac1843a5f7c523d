//! The connections whose tasks must run after a batch of the engine.

use std::sync::Arc;

use super::turnstile::Slot;
use super::{Conn, Inner, Phase};

/// The connections to wake after a batch, each at most once.
#[derive(Debug, Default)]
pub struct Wakes {
    conns: Vec<Arc<Conn>>,
}

impl Wakes {
    pub(crate) fn add(&mut self, conn: &Arc<Conn>, inner: &mut Inner) {
        // While a client does not read, its task does not drain the outbox, so `wake_pending` stays
        // set. Two changes must reach the task nevertheless: the end of the connection, and a
        // granted slot of the throttle, for which the task may have checked just before.
        let insist =
            matches!(inner.phase, Phase::Closing(_)) || inner.turnstile.slot() == Slot::Granted;
        if !inner.wake_pending || insist {
            inner.wake_pending = true;
            self.conns.push(Arc::clone(conn));
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Arc<Conn>> {
        self.conns.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::CloseReason;
    use crate::conn::tests::new_conn;

    fn add(wakes: &mut Wakes, conn: &Arc<Conn>) -> usize {
        wakes.add(conn, &mut conn.lock());
        wakes.drain().count()
    }

    #[test]
    fn a_connection_is_woken_once_until_its_task_takes_the_output() {
        let (conn, mut wakes) = (new_conn(), Wakes::default());
        assert_eq!((add(&mut wakes, &conn), add(&mut wakes, &conn)), (1, 0));
        conn.take_output(&mut Vec::new());
        assert_eq!(add(&mut wakes, &conn), 1);
        assert!(wakes.is_empty());
    }

    #[test]
    fn the_end_of_a_connection_and_a_granted_slot_wake_a_task_that_is_woken_already() {
        let (conn, mut wakes) = (new_conn(), Wakes::default());
        add(&mut wakes, &conn);
        conn.lock().turnstile.grant();
        assert_eq!(add(&mut wakes, &conn), 1);
        let (conn, mut wakes) = (new_conn(), Wakes::default());
        add(&mut wakes, &conn);
        conn.end(CloseReason::Shutdown);
        assert_eq!(add(&mut wakes, &conn), 1);
    }
}
