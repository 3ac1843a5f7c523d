//! Queues: things put in by some and taken out by others, each by one of them.
//!
//! Each has a page of its own, in the module of its name: layout, steps, guarantees, and what happens when
//! things break.
//!
//! Beside a queue at `/queues/orders` there may be, made when needed and, but for the locks, gone when empty:
//!
//! ```text
//! /queues/orders.takers      those who wait for an item, in line: only the first watches the queue
//! /queues/orders.putters     those who wait for room in a queue with a limit
//! /queues/orders.receipts    one ephemeral node per writer, by which a repeated write is told from one
//!                            whose reply was lost
//! /queues/orders.locks       who works on which item; stays, as Curator's workers make it only at their start
//! /queues/orders.malformed   what was in the queue and is no item
//! ```
//!
//! They are beside the queue, not in it, so that Curator's participants do not stumble over them.

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
