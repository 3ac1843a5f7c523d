//! Panics injected by tests of the server's behaviour after a panic.
//!
//! A test names the place in the server's configuration and later creates the node `/panic-N`,
//! where N is the id of the server that is to panic (1 for a standalone server). The next time that
//! server reaches the place, it panics. Without debug assertions nothing of this is compiled, and
//! no client or peer can choose a place.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ironkeeper_proto::Txn;

/// The place at which a server panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// While a write is prepared, holding the combining lock.
    Judge,
    /// While a transaction is applied, holding the gate exclusively.
    Apply,
    /// While a read is served.
    Read,
    /// On the timer thread.
    Timer,
    /// While the task of a peer link passes on what it has received.
    PeerLink,
    /// On the log thread.
    Log,
    /// On the thread that renders a four-letter word.
    Word,
}

impl Place {
    pub const ALL: [Place; 7] = [
        Place::Judge,
        Place::Apply,
        Place::Read,
        Place::Timer,
        Place::PeerLink,
        Place::Log,
        Place::Word,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Place::Judge => "judge",
            Place::Apply => "apply",
            Place::Read => "read",
            Place::Timer => "timer",
            Place::PeerLink => "peer-link",
            Place::Log => "log",
            Place::Word => "word",
        }
    }

    pub fn from_name(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// The panic that a test has configured, if any.
#[derive(Debug, Default)]
pub struct PlantedPanic {
    place: Option<Place>,
    server: u8,
    armed: AtomicBool,
}

impl PlantedPanic {
    pub(crate) fn new(place: Option<Place>, server: u8) -> PlantedPanic {
        PlantedPanic { place, server, armed: AtomicBool::new(false) }
    }

    /// Arms the panic if the transaction creates the node that does so.
    #[inline]
    pub(crate) fn note(&self, txn: &Txn<'_>) {
        if cfg!(debug_assertions)
            && self.place.is_some()
            && let Txn::Create(create) = txn
            && create.path == format!("/panic-{}", self.server)
        {
            self.armed.store(true, Relaxed);
        }
    }

    /// Panics if the configured place is this one and the panic is armed.
    #[inline]
    #[track_caller]
    pub fn strike(&self, place: Place) {
        if cfg!(debug_assertions) && self.place == Some(place) && self.armed.load(Relaxed) {
            panic!("planted in {}", place.name());
        }
    }
}
