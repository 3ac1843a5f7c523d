//! Records the requests of one client.

use std::sync::{Arc, Mutex};

use ironkeeper_client::Client;

use super::World;
use super::wire::{Heard, tapped};

/// The op codes of the requests so far.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<i32>>>);

/// Op codes of the protocol.
pub const DELETE: i32 = 2;
pub const GET: i32 = 4;
pub const CHILDREN: i32 = 8;
pub const SYNC: i32 = 9;
/// The client sends it on an idle connection, whatever a recipe does.
const PING: i32 = 11;
pub const CHILDREN2: i32 = 12;

impl Requests {
    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<i32> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A client whose requests, apart from pings, are followed.
pub async fn followed(world: &World) -> (Client, Requests) {
    let requests = Requests::default();
    let Requests(seen) = requests.clone();
    let ear = move |heard| {
        if let Heard::Request(op) = heard
            && op != PING
        {
            seen.lock().unwrap().push(op);
        }
    };
    (tapped(world, ear).await, requests)
}
