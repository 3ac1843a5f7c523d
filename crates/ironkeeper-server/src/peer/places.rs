//! Which connections to one of our ports are kept.
//!
//! A connection is unknown until its first message names a server. Unknown ones have few places,
//! and the oldest makes room for the next: a member names itself in the packet behind the handshake
//! of TCP, so it is unknown for a moment only. Servers that are no members have places of their
//! own, and one address has a part of them at most. So neither can take the places of members, also
//! where all of them, and a stranger, have one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_proto::ServerId;

use super::link::{End, Link};

/// Connections that have not said whose they are.
const UNKNOWN_MAX: usize = 64;
/// Connections of servers that are no members.
const STRANGERS_MAX: usize = 128;
/// How many unknown connections one address may have.
const OF_ONE_ADDRESS_MAX: usize = 16;
/// How many servers that are no members may have one address: observers behind a NAT, for instance.
const STRANGERS_OF_ONE_ADDRESS_MAX: usize = 64;
/// Connections that call themselves the same member: the one that is served, and those that may
/// replace it.
const OF_ONE_MEMBER_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Unknown,
    Stranger,
    Member(ServerId),
}

#[derive(Debug)]
struct Held {
    address: IpAddr,
    whose: Whose,
    link: Arc<Link>,
}

/// The places of one port.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By the order in which they were taken.
    held: Mutex<(u64, BTreeMap<u64, Held>)>,
}

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.places.lock().1.remove(&self.number);
        // The link may be the last of its kind and closes its socket, outside of the lock.
        drop(held);
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Held>)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that has not said whose it is. Another one may have to go for it.
    pub(super) fn admit(self: &Arc<Places>, link: &Arc<Link>) -> Place {
        let address = link.peer.ip();
        let mut held = self.lock();
        let (next, held) = &mut *held;
        let unknown = |of: IpAddr| {
            let is_its = move |held: &Held| held.whose == Whose::Unknown && held.address == of;
            held.iter().filter(move |(_, held)| is_its(held)).map(|(number, _)| *number)
        };
        let total = held.values().filter(|held| held.whose == Whose::Unknown).count();
        let goes = if unknown(address).count() >= OF_ONE_ADDRESS_MAX {
            unknown(address).next()
        } else if total >= UNKNOWN_MAX {
            // Of the address that has the most of them.
            let addresses = held.values().map(|held| held.address);
            addresses.max_by_key(|of| unknown(*of).count()).and_then(|of| unknown(of).next())
        } else {
            None
        };
        if let Some(gone) = goes.and_then(|number| held.remove(&number)) {
            gone.link.end(End::Crowded);
        }
        *next += 1;
        held.insert(*next, Held { address, whose: Whose::Unknown, link: Arc::clone(link) });
        Place { places: Arc::clone(self), number: *next }
    }
}

impl Place {
    /// The connection has said whose it is. False if there are too many of its kind.
    pub(super) fn name(&self, id: Option<ServerId>, is_member: bool) -> bool {
        let mut held = self.places.lock();
        let held = &mut held.1;
        let Some(address) = held.get(&self.number).map(|held| held.address) else { return false };
        let whose = match id.filter(|_| is_member) {
            Some(id) => Whose::Member(id),
            None => Whose::Stranger,
        };
        let same: Vec<u64> = held
            .iter()
            .filter(|(_, held)| held.whose == whose)
            .map(|(number, _)| *number)
            .collect();
        if whose == Whose::Stranger {
            let of_address = same.iter().filter(|number| held[*number].address == address);
            if same.len() >= STRANGERS_MAX || of_address.count() >= STRANGERS_OF_ONE_ADDRESS_MAX {
                return false;
            }
        } else if same.len() >= OF_ONE_MEMBER_MAX
            && let Some(gone) = same.get(1).and_then(|second| held.remove(second))
        {
            // The oldest may be the one that is served.
            gone.link.end(End::Crowded);
        }
        if let Some(own) = held.get_mut(&self.number) {
            own.whose = whose;
        }
        true
    }
}
