//! The request throttle: the bound on requests in progress, and the queue for them.
//!
//! A request that needs the engine (a write, a sync, a new session) takes a slot and returns it
//! with its reply. A connection that finds no free slot is queued, at most once: its further
//! requests stay unread, so a waiting connection costs no memory. A slot that is returned passes to
//! the first connection in the queue and stays taken meanwhile, so that no other connection can
//! take it. Reads are served where they arrive and need no slot; they wait only behind a request of
//! their own connection.
//!
//! Apache ZooKeeper queues requests instead of connections; clients see the same: the delay, the
//! error `THROTTLEDOP` for a request that waited too long, the end of the connection for a stale
//! request.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// The settings of the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestThrottleConfig {
    pub requests_max: usize,
    /// Time between two checks of the queue, so that stale requests are found before they get a
    /// slot.
    pub look_interval_ms: u64,
    /// Whether stale requests are dropped and their connections closed.
    pub drop_stale: bool,
    /// A request is stale when its client has disconnected.
    pub stale_when_gone: bool,
    /// A request is stale when it waited for longer than its session's timeout.
    pub stale_when_late: bool,
    /// A request that waited longer than this is rejected.
    pub refuse_after_ms: Option<u64>,
}

/// The slots and the queue; see the module documentation. `T` identifies a waiting connection.
#[derive(Debug)]
pub struct RequestThrottle<T> {
    pub config: RequestThrottleConfig,
    line: Mutex<Line<T>>,
}

#[derive(Debug)]
struct Line<T> {
    taken: usize,
    /// Bounded by the number of connections: each is in it at most once.
    waiting: VecDeque<T>,
}

impl<T: Clone> RequestThrottle<T> {
    pub fn new(config: RequestThrottleConfig) -> RequestThrottle<T> {
        let line = Mutex::new(Line { taken: 0, waiting: VecDeque::new() });
        RequestThrottle { config, line }
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot if one is free and the queue is empty; otherwise enqueues `who`.
    pub fn enter(&self, who: &T) -> bool {
        let mut line = self.line();
        let free = line.waiting.is_empty() && line.taken < self.config.requests_max;
        match free {
            true => line.taken += 1,
            false => line.waiting.push_back(who.clone()),
        }
        free
    }

    /// Takes a slot even if none is free: for an error reply that only has to keep its order.
    pub fn enter_anyway(&self) {
        self.line().taken += 1;
    }

    /// Returns a slot. If the result is `Some`, the slot has passed to that connection.
    pub fn leave(&self) -> Option<T> {
        let mut line = self.line();
        if line.taken <= self.config.requests_max
            && let Some(next) = line.waiting.pop_front()
        {
            return Some(next);
        }
        line.taken -= 1;
        None
    }

    /// Removes a connection from the queue.
    pub fn give_up(&self, is: impl Fn(&T) -> bool) {
        self.line().waiting.retain(|who| !is(who));
    }

    /// Returns the first `count` connections in the queue.
    pub fn first(&self, count: usize) -> Vec<T> {
        self.line().waiting.iter().take(count).cloned().collect()
    }

    pub fn taken(&self) -> usize {
        self.line().taken
    }

    pub fn waiting(&self) -> usize {
        self.line().waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(requests_max: usize) -> RequestThrottle<char> {
        RequestThrottle::new(RequestThrottleConfig {
            requests_max,
            look_interval_ms: 100,
            drop_stale: true,
            stale_when_gone: true,
            stale_when_late: false,
            refuse_after_ms: None,
        })
    }

    #[test]
    fn slots_go_to_those_in_line_in_order_and_nobody_slips_in() {
        let throttle = throttle(2);
        assert!(throttle.enter(&'a') && throttle.enter(&'b'));
        assert!(!throttle.enter(&'c') && !throttle.enter(&'d'));
        assert_eq!(throttle.leave(), Some('c'));
        assert!(!throttle.enter(&'e'), "the free slot is the next one's");
        assert_eq!((throttle.leave(), throttle.leave()), (Some('d'), Some('e')));
        assert_eq!((throttle.taken(), throttle.waiting()), (2, 0));
        assert_eq!((throttle.leave(), throttle.leave()), (None, None));
        assert!(throttle.enter(&'f'));
    }

    #[test]
    fn who_gives_up_is_passed_over() {
        let throttle = throttle(1);
        for who in ['a', 'b', 'c'] {
            throttle.enter(&who);
        }
        throttle.give_up(|who| *who == 'b');
        assert_eq!(throttle.first(9), ['c']);
        assert_eq!(throttle.leave(), Some('c'));
    }

    #[test]
    fn slots_above_the_limit_are_not_passed_on() {
        let throttle = throttle(1);
        throttle.enter(&'a');
        throttle.enter_anyway();
        throttle.enter(&'b');
        assert_eq!(throttle.leave(), None, "one is still in work");
        assert_eq!(throttle.leave(), Some('b'));
    }
}
