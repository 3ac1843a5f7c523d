//! The state that all threads of the server share.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ironkeeper_config::Config;
use ironkeeper_engine::Conn;
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;

use crate::connection_log::ConnectionLog;
use crate::engine_driver::EngineDriver;
use crate::io::IoHandle;
use crate::limits::Limits;
use crate::metrics::Metrics;

/// The shared state.
#[derive(Debug)]
pub struct Shared {
    pub config: Config,
    pub core: Arc<EngineDriver>,
    pub store: Store<RealDisk>,
    pub metrics: Arc<Metrics>,
    pub connections: Connections,
    pub limits: Arc<Limits>,
    pub connection_log: ConnectionLog,
    pub sessionless_timeout: Duration,
    /// The actual port of the server.
    pub client_port: u16,
    /// `stmk` sets it and `gtmk` shows it; it has no other effect.
    pub trace_mask: AtomicI64,
    pub(crate) conn_ids: AtomicU64,
}

impl Shared {
    pub fn next_conn_id(&self) -> u64 {
        self.conn_ids.fetch_add(1, Relaxed)
    }

    /// Closes connections when too many bytes wait for clients: first clients that read nothing,
    /// and of these the ones with the most bytes.
    pub fn make_room(&self) {
        let now = self.core.clock.now();
        let db = &self.core.db;
        let mut excess = db.unsent.excess();
        let mut holders = Vec::new();
        for conn in self.connections.all() {
            match conn.holding(now) {
                Some(holding) if conn.close_reason().is_none() => holders.push((holding, conn)),
                // It is about to be closed.
                Some(holding) => excess = excess.saturating_sub(holding.bytes),
                None => {}
            }
        }
        holders.sort_unstable_by_key(|(holding, _)| Reverse(*holding));
        for (holding, conn) in holders {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(holding.bytes);
            conn.cut_off(db);
            let thread = &self.core.io[IoHandle::thread_of(conn.tag)];
            thread.push_ready(conn);
            thread.wake();
        }
    }
}

/// All connections, for the administrator.
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
