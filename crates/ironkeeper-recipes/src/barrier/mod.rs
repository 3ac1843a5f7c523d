//! Barriers: clients wait until a node is removed, until all members have come, or until a counter
//! reaches zero.
//!
//! Each barrier has a page of its own, in its module: layout, steps, guarantees, and behaviour on
//! failures.

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
