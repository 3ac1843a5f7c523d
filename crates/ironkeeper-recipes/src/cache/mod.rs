//! Caches: a node, its children or a whole subtree, kept up to date by watches and read without
//! requests.

mod cached_node;
pub mod children;
mod decoded;
mod follow;
mod keeper;
mod lasting;
pub mod node;
mod one_shot;
mod scope;
mod store;
mod task;
pub mod tree;

pub use cached_node::{CacheEvent, CachedNode, Watching};
#[doc(inline)]
pub use children::ChildrenCache;
#[doc(inline)]
pub use node::NodeCache;
pub use store::CacheEvents;
#[doc(inline)]
pub use tree::TreeCache;

pub(crate) use decoded::{Decoded, DecodedChanges};
pub(crate) use follow::follow;
pub(crate) use task::Task;
