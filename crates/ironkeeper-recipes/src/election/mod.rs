//! Leader elections: one of several candidates leads, until it leaves.

pub mod latch;
mod leadership;
pub mod observer;
pub mod selector;
pub mod single_node;
pub mod support;

#[doc(inline)]
pub use latch::{LatchState, LeaderLatch};
pub use leadership::Leadership;
#[doc(inline)]
pub use observer::{Election, LeaderObserver};
#[doc(inline)]
pub use selector::{Interrupter, LeaderSelector, Led};
#[doc(inline)]
pub use single_node::{Offer, StaticElection};
#[doc(inline)]
pub use support::{ElectionEvent, ElectionSupport};
