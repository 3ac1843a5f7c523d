//! What all threads of the server look at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ironkeeper_engine::Conn;
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;

use crate::config::Config;
use crate::core::Core;
use crate::limits::Limits;
use crate::metrics::Metrics;

/// See the head of this file.
#[derive(Debug)]
pub struct Shared {
    pub config: Config,
    pub core: Arc<Core>,
    pub store: Store<RealDisk>,
    pub metrics: Arc<Metrics>,
    pub connections: Connections,
    pub limits: Arc<Limits>,
    pub sessionless_timeout: Duration,
    /// The port the server really listens on.
    pub client_port: u16,
    /// `stmk` sets it and `gtmk` shows it; nothing here is traced by it.
    pub trace_mask: AtomicI64,
    pub(crate) conn_ids: AtomicU64,
}

impl Shared {
    pub fn next_conn_id(&self) -> u64 {
        self.conn_ids.fetch_add(1, Relaxed)
    }
}

/// Every connection there is, for the administrator.
#[derive(Debug, Default)]
pub struct Connections {
    by_id: Mutex<BTreeMap<u64, Arc<Conn>>>,
}

impl Connections {
    pub fn insert(&self, conn: Arc<Conn>) {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).insert(conn.id, conn);
    }

    pub fn remove(&self, id: u64) {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub fn all(&self) -> Vec<Arc<Conn>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
