//! Watches.

use std::sync::Arc;

use ironkeeper_proto::SessionId;

/// A connection with watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    pub session: SessionId,
    /// In no order, each once.
    pub paths: Vec<Arc<str>>,
}
