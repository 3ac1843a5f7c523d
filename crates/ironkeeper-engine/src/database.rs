//! The state that readers and the writer share, and the rule for access to it.
//!
//! > A thread that reads [`State`] to produce a reply or an event still holds the gate when it
//! > appends the bytes to the outbox. Lock order: gate, then connection.
//!
//! This rule alone has these consequences: a watch is set atomically with its read; an event
//! precedes any newer data; no event precedes the reply that registers its watch; the zxid in a
//! reply's header is never older than the data; a multi is atomic to readers.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use ironkeeper_proto::{Epoch, Zxid};

use crate::config::EngineConfig;
use crate::conn::Conn;
use crate::gate::{CoreToken, Exclusive, Gate, Shared};
use crate::large_requests::LargeRequests;
use crate::planted::PlantedPanic;
use crate::request_throttle::RequestThrottle;
use crate::state::State;
use crate::stats::ServerStats;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicUsize;
use crate::throttle::ConnectionThrottle;
use crate::time::Now;
use crate::unsent::Unsent;

/// Seeded, so that the simulator iterates in the same order every time and a client cannot choose
/// keys that collide.
pub type Hasher = foldhash::fast::FixedState;

/// Whether the server accepts clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Serving {
    /// There is no leader, or this server is not synchronized with its leader yet.
    No,
    /// There is no leader, but read-only clients are accepted.
    ReadOnly,
    Yes,
}

/// The state behind its gate, and the counters and limits beside it.
#[derive(Debug)]
pub struct Database {
    gate: Gate<State>,
    /// A [`Serving`].
    serving: AtomicU8,
    /// The beginning of the leader's epoch, as a zxid: a server that serves clients in this epoch
    /// has all transactions before it.
    epoch_began: AtomicI64,
    pub config: EngineConfig,
    pub stats: ServerStats,
    /// Requests that wait for the engine, over all connections.
    pub outstanding: AtomicUsize,
    /// Writes wait for room on the disk. The driver sets it; new sessions are rejected meanwhile.
    pub disk_full: AtomicBool,
    pub unsent: Unsent,
    /// Bytes of large requests in progress; `None` is no limit.
    pub large_requests: Option<Arc<LargeRequests>>,
    connection_throttle: Option<Mutex<ConnectionThrottle>>,
    /// The slots for requests to the engine and the connections that wait for a slot; `None` is no
    /// limit.
    pub request_throttle: Option<RequestThrottle<Arc<Conn>>>,
    #[doc(hidden)]
    pub planted_panic: PlantedPanic,
}

impl Database {
    pub fn new(config: EngineConfig, state: State, seed: u64, now: Now) -> (Database, CoreToken) {
        let (gate, token) = Gate::new(state);
        let large_requests = config
            .large_request_bytes_min
            .map(|min| LargeRequests::new(min, config.large_request_bytes_max));
        let connection_throttle = config
            .connection_throttle
            .map(|config| Mutex::new(ConnectionThrottle::new(config, seed, now.mono_ms)));
        let database = Database {
            gate,
            serving: AtomicU8::new(Serving::Yes as u8),
            epoch_began: AtomicI64::new(0),
            stats: ServerStats::default(),
            outstanding: AtomicUsize::new(0),
            disk_full: AtomicBool::new(false),
            unsent: Unsent::new(config.unsent_bytes_max),
            large_requests,
            connection_throttle,
            request_throttle: config.request_throttle.map(RequestThrottle::new),
            planted_panic: PlantedPanic::new(config.planted_panic, config.server_id),
            config,
        };
        (database, token)
    }

    /// Returns whether the server accepts new clients. Present clients need not check: their
    /// connections are closed when this changes.
    pub fn serving(&self) -> Serving {
        match self.serving.load(Relaxed) {
            0 => Serving::No,
            1 => Serving::ReadOnly,
            _ => Serving::Yes,
        }
    }

    pub(crate) fn set_serving(&self, serving: Serving) {
        self.serving.store(serving as u8, Relaxed);
    }

    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        self.epoch_began.store(Zxid::new(epoch, 0).0, Relaxed);
    }

    /// Returns the zxid up to which every transaction is visible here or does not exist: a client
    /// that has seen a larger one was connected to a server that is ahead.
    pub(crate) fn reached(&self) -> Zxid {
        self.read().applied().max(Zxid(self.epoch_began.load(Relaxed)))
    }

    /// Locks the gate shared: for reads on I/O threads and slices of a snapshot.
    pub fn read(&self) -> Shared<'_, State> {
        self.gate.read()
    }

    /// Returns whether the connection throttle lets a client open a session or, if `renewal`,
    /// resume one.
    pub(crate) fn admits_session(&self, now: Now, renewal: bool) -> bool {
        let mut deficit = 0;
        if let Some(throttle) = &self.connection_throttle {
            let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
            if !throttle.admits(now.mono_ms, renewal) {
                return false;
            }
            deficit = throttle.deficit();
        }
        self.stats.throttle.token_deficit.add(u64::from(deficit));
        true
    }

    /// Returns the probability that the next client is rejected at random.
    pub fn connection_drop_probability(&self) -> f64 {
        self.connection_throttle.as_ref().map_or(0.0, |throttle| {
            throttle.lock().unwrap_or_else(PoisonError::into_inner).drop_probability()
        })
    }

    /// Locks the gate exclusively: only for the engine.
    pub fn write(&self, token: &mut CoreToken) -> Exclusive<'_, State> {
        self.gate.write(token)
    }
}
