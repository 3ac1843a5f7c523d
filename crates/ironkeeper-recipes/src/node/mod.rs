//! Nodes and watches that are created again after their deletion.

pub mod persistent;
pub mod ttl;
pub mod watcher;

#[doc(inline)]
pub use persistent::{Creations, PersistentNode, PersistentNodeBuilder};
#[doc(inline)]
pub use ttl::TtlNode;
#[doc(inline)]
pub use watcher::PersistentWatcher;
