//! A panic on demand, for tests of what a panic does to a server.
//!
//! A test names the place in the server's configuration and later creates the node `/panic-N`,
//! where N is the number of the server that is to panic (1 for a standalone server). The next time
//! that server comes by the place, it panics. Without debug assertions nothing of this is compiled,
//! and no client or peer can choose a place.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ironkeeper_proto::Txn;

/// Where a server panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// While a write is judged, with the engine in hand.
    Judge,
    /// While a transaction is applied, with the exclusive gate in hand.
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

/// The panic that a test has planted, if any.
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

    /// Panics if that was planted here.
    #[inline]
    #[track_caller]
    pub fn strike(&self, place: Place) {
        if cfg!(debug_assertions) && self.place == Some(place) && self.armed.load(Relaxed) {
            panic!("planted in {}", place.name());
        }
    }
}
