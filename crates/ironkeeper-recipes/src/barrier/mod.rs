//! Barriers: many wait until something is removed, until all have come, or until enough is counted.
//!
//! Each has a page of its own, in the module of its name: layout, steps, guarantees, and what happens when
//! things break.

pub mod count_down_latch;
pub mod cyclic;
pub mod double;
mod gathering;
pub mod simple;
pub mod sized;
mod tidy_watch;

pub use count_down_latch::CountDownLatch;
pub use cyclic::{Arrival, CyclicBarrier};
pub use double::DoubleBarrier;
pub use gathering::Membership;
pub use simple::Barrier;
pub use sized::SizedBarrier;

pub(crate) use tidy_watch::TidyWatch;
