//! Locks: exclusive locks, read/write locks and semaphores; leases, condition variables and the
//! detection of deadlocks.

pub mod condition;
pub mod deadlock;
pub mod event;
pub mod lease;
pub mod multi;
pub mod mutex;
pub mod optimistic;
pub mod read_write;
pub mod reentrant;
pub(crate) mod request;
pub mod revocation;
pub mod semaphore;
pub mod single_node;

#[doc(inline)]
pub use condition::Condition;
#[doc(inline)]
pub use deadlock::{Deadlock, DeadlockDetector, Victim, Wait, WaitGraph};
#[doc(inline)]
pub use event::{LockEvent, LockEvents};
#[doc(inline)]
pub use lease::{HeldLease, NonBlockingLease};
#[doc(inline)]
pub use multi::{MultiGuard, MultiLock};
#[doc(inline)]
pub use mutex::Mutex;
#[doc(inline)]
pub use optimistic::{Optimistic, Versioned};
#[doc(inline)]
pub use read_write::{ReadWriteLock, WriteGuard};
#[doc(inline)]
pub use reentrant::Reentrant;
#[doc(inline)]
pub use revocation::revoke;
#[doc(inline)]
pub use semaphore::{Semaphore, SemaphoreMutex};
#[doc(inline)]
pub use single_node::SingleNodeLock;
