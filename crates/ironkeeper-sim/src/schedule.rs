//! The queue of events, in the order of simulated time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::random::mix;

struct Scheduled<E> {
    at_us: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Scheduled<E>) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Scheduled<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Scheduled<E>) -> Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

/// A queue of events. Two events at the same time occur in the order in which they were scheduled.
pub struct Schedule<E> {
    now_us: u64,
    order: u64,
    events: BinaryHeap<Reverse<Scheduled<E>>>,
    /// The number of events that have occurred.
    pub count: u64,
    /// A hash of all events.
    pub trace: u64,
}

impl<E> std::fmt::Debug for Schedule<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("now_us", &self.now_us).finish_non_exhaustive()
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Schedule<E> {
        Schedule { now_us: 0, order: 0, events: BinaryHeap::new(), count: 0, trace: 0 }
    }
}

impl<E> Schedule<E> {
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    pub fn after(&mut self, in_us: u64, event: E) {
        self.order += 1;
        let scheduled = Scheduled { at_us: self.now_us + in_us, order: self.order, event };
        self.events.push(Reverse(scheduled));
    }

    /// Returns the time of the next event.
    pub fn next_us(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(next)| next.at_us)
    }

    /// Returns the next event if its time is at most `until_us`, and advances the time to it.
    pub fn next(&mut self, until_us: u64) -> Option<E> {
        if self.events.peek().is_none_or(|Reverse(next)| next.at_us > until_us) {
            return None;
        }
        let Reverse(next) = self.events.pop()?;
        self.now_us = self.now_us.max(next.at_us);
        self.count += 1;
        self.trace = mix(self.trace ^ self.now_us ^ (next.order << 40));
        Some(next.event)
    }

    /// Advances the time without an event.
    pub fn rest_until(&mut self, until_us: u64) {
        self.now_us = self.now_us.max(until_us);
    }
}
