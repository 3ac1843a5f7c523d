//! Queues: producers put items in, and each item is delivered to one consumer.
//!
//! The module of each queue documents its layout, steps, guarantees and failure handling.
//!
//! A queue at `/queues/orders` may have these sibling nodes. They are created on demand and, except
//! for the locks, deleted when empty:
//!
//! ```text
//! /queues/orders.takers      the wait queue of consumers: only the first watches the queue
//! /queues/orders.putters     the wait queue of producers, for a queue with a limit
//! /queues/orders.receipts    one ephemeral node per writer, which shows whether a write with a lost
//!                            reply was applied
//! /queues/orders.locks       the locks of items; persistent, because Curator's workers create it only
//!                            at their start
//! /queues/orders.malformed   nodes of the queue that were not items
//! ```
//!
//! They are siblings, not children, because Curator's participants expect only items below the queue.

pub mod blocking;
pub mod delay;
pub mod id;
mod item;
mod line;
mod naming;
pub mod priority;
mod room;
pub mod sharded;
pub mod simple;
pub mod work;

#[doc(inline)]
pub use blocking::BlockingQueue;
pub use delay::{ByDelay, DelayQueue};
pub use id::{ById, IdQueue};
pub use naming::Order;
pub(crate) use naming::recipe_of_item;
pub use priority::{ByPriority, PriorityQueue};
pub use sharded::ShardedQueue;
pub use simple::SimpleQueue;
pub use work::{Delivery, ErrorMode, Fifo, Queue, WorkQueue};
