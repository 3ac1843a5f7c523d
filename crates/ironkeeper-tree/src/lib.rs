//! The znode tree in memory: compact, deterministic, with exact snapshots during writes.
//!
//! The tree is the state that all servers of an ensemble replicate. Committed transactions are
//! applied to it in order ([`Tree::apply`]), reads use [`Tree::find`], and a snapshot of one moment
//! is emitted in short slices between writes ([`Tree::begin_snapshot`]). The same transactions
//! produce the same tree and the same [`Tree::digest`] on every server.
//!
//! The tree never checks whether an operation is allowed: a transaction carries outcomes. It does
//! no IO, reads no clock and starts no threads. Readers share `&Tree`, one writer has `&mut Tree`;
//! the caller provides the lock between them.
//!
//! Start with [`Tree`], [`Node`] and [`Changes`]; [`Loader`] builds a tree from a snapshot.
//!
//! ```
//! use ironkeeper_proto::txn::{CreateKind, CreateTxn};
//! use ironkeeper_proto::{AclVec, OpCode, SessionId, Txn, TxnHeader, Zxid};
//! use ironkeeper_tree::{NoChanges, Tree, TreeConfig};
//!
//! let mut tree = Tree::new(TreeConfig::default());
//! let (session, zxid, op) = (SessionId(7), Zxid(1), OpCode::Create);
//! let header = TxnHeader { session, cxid: 1, zxid, time: 1_700_000_000_000, op };
//! let create = CreateTxn {
//!     path: "/app".into(),
//!     data: Some(b"v1"),
//!     acl: AclVec::OPEN,
//!     kind: CreateKind::Persistent,
//!     parent_cversion: 1,
//! };
//! tree.apply(&header, &Txn::Create(create), &mut NoChanges);
//! let node = tree.find("/app").unwrap();
//! assert_eq!((node.data(), node.stat().czxid), (Some(&b"v1"[..]), zxid));
//! ```
//!
//! Memory per node: a record of 96 bytes, one heap block of 12 bytes plus name and data, and about
//! 11 bytes of index. Full paths are not stored.

#![deny(missing_docs)]
#![warn(unreachable_pub)]

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
