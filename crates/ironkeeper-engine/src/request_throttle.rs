//! The request throttle: how many requests may be in work at once, and who is next.
//!
//! A request that needs the engine (a write, a sync, a new session) takes a slot and gives it back
//! with its answer. Who finds no slot stands in line, once for each connection: what follows stays
//! unread, so a waiting connection costs no memory. A slot that comes free goes to the first in
//! line, and stays taken meanwhile, so nobody can slip in between. Reads are served where they
//! arrive and need no slot; they wait only behind a request of their own connection.
//!
//! Apache queues requests instead of connections; what clients can see is the same: the wait, the
//! error `THROTTLEDOP` for what waited too long, the end of the connection for what became stale.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::large_requests::LargePermit;
use crate::sync::{Mutex, MutexGuard};

/// What the throttle has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestThrottleConfig {
    pub requests_max: usize,
    /// Time between two looks at those in line, so that stale ones are found before their turn.
    pub look_interval_ms: u64,
    /// Whether stale requests, and with them their connections, are given up.
    pub drop_stale: bool,
    /// A request is stale when its client has gone away.
    pub stale_when_gone: bool,
    /// A request is stale when it waited for longer than its session lives.
    pub stale_when_late: bool,
    /// What waited longer is refused.
    pub refuse_after_ms: Option<u64>,
}

/// See the head of this file. `T` is whoever waits.
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

    /// Takes a slot if one is free and nobody else waits; otherwise `who` stands in line.
    pub fn enter(&self, who: &T) -> bool {
        let mut line = self.line();
        let free = line.waiting.is_empty() && line.taken < self.config.requests_max;
        match free {
            true => line.taken += 1,
            false => line.waiting.push_back(who.clone()),
        }
        free
    }

    /// Takes a slot even if none is free: for an answer that only has to keep its place.
    pub fn enter_anyway(&self) {
        self.line().taken += 1;
    }

    /// Gives a slot back. Whoever is returned has it now.
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

    /// Takes somebody out of the line.
    pub fn give_up(&self, is: impl Fn(&T) -> bool) {
        self.line().waiting.retain(|who| !is(who));
    }

    /// The first few in line.
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

/// Where one connection stands with the throttle. Kept under the connection's lock.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub state: TurnState,
    /// When the bytes below were found to have to wait.
    since_ms: u64,
    /// Bytes, from the next request on, that had been received by then.
    bytes: usize,
    /// Of the next request, if that is a large one.
    pub permit: Option<LargePermit>,
    /// A stale request was dropped, so nothing behind it may be executed either.
    pub dropped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TurnState {
    #[default]
    None,
    InLine,
    /// A slot is taken on behalf of the next request.
    Granted,
}

impl Turn {
    /// `bytes` have been received and have to wait from now on.
    pub fn wait(&mut self, now_ms: u64, bytes: usize) {
        self.state = TurnState::InLine;
        // What waited before keeps its age.
        if self.bytes == 0 {
            (self.since_ms, self.bytes) = (now_ms, bytes);
        }
    }

    /// For how long the next request has been waiting.
    pub fn waited_ms(&self, now_ms: u64) -> u64 {
        if self.bytes == 0 { 0 } else { now_ms.saturating_sub(self.since_ms) }
    }

    /// The next `bytes` are done with.
    pub fn pass(&mut self, bytes: usize) {
        self.state = TurnState::None;
        self.bytes = self.bytes.saturating_sub(bytes);
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

    #[test]
    fn age_is_that_of_the_bytes_that_waited() {
        let mut turn = Turn::default();
        assert_eq!(turn.waited_ms(5), 0);
        turn.wait(10, 30);
        assert_eq!(turn.waited_ms(50), 40);
        turn.pass(20);
        turn.wait(60, 10);
        assert_eq!(turn.waited_ms(70), 60, "received before the first wait");
        turn.pass(10);
        assert_eq!(turn.waited_ms(70), 0, "received after it");
    }
}
