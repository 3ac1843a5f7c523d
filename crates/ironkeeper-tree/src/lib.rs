//! The znode tree in memory: compact, deterministic, with exact snapshots while writes go on.
//!
//! The tree is what all servers of an ensemble agree on. Transactions that were decided elsewhere
//! are applied to it in order ([`Tree::apply`]), reads look at it ([`Tree::find`]), and snapshots of
//! one moment are walked in short slices between writes ([`Tree::begin_snapshot`]). The same
//! transactions give the same tree and the same [`Tree::digest`] everywhere.
//!
//! It never checks whether an operation is allowed: a transaction carries outcomes. It does no IO,
//! reads no clock, starts no threads. Readers share `&Tree`, one writer has `&mut Tree`; the lock
//! between them belongs to the caller.
//!
//! Start with [`Tree`], [`Node`] and [`Changes`]; [`Loader`] builds a tree from a snapshot.
//!
//! What a node costs: a record of 96 bytes, one heap block of 12 bytes plus name and data, and
//! about 11 bytes of index. Full paths are not stored.

mod acl_list;
mod acl_table;
mod apply;
mod arena;
mod block;
pub mod digest;
mod index;
mod load;
mod node;
mod owners;
mod path_hash;
mod quota;
mod snapshot;
mod totals;
mod tree;

pub use acl_list::AclList;
pub use apply::{Applied, Changes, NoChanges, Outcome};
pub use block::SharedBytes;
pub use load::{LoadError, Loader};
pub use node::Node;
pub use path_hash::PathHasher;
pub use quota::{Quota, QuotaLimits, QuotaUsage};
pub use snapshot::{Slice, SnapshotRemains, SnapshotWalk};
pub use tree::{Tree, TreeConfig};

const _: () = {
    const fn shared_between_threads<T: Send + Sync + 'static>() {}
    shared_between_threads::<Tree>();
    shared_between_threads::<SharedBytes>();
    shared_between_threads::<SnapshotWalk>();
};
