//! Counts the watch events that a server sends to one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironkeeper_client::Client;

use super::World;
use super::wire::{Heard, tapped};

/// The number of watch events that have arrived.
#[derive(Clone, Debug, Default)]
pub struct WatchEvents(Arc<AtomicUsize>);

impl WatchEvents {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Connects a client whose watch events are counted.
pub async fn counted(world: &World) -> (Client, WatchEvents) {
    let events = WatchEvents::default();
    let WatchEvents(count) = events.clone();
    let ear = move |heard| {
        if let Heard::Event = heard {
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    (tapped(world, ear).await, events)
}
