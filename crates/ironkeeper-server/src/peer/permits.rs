//! The limits on accepted connections of a peer port.
//!
//! A connection is unnamed until its first message names a server. Unnamed connections have few
//! permits, and a new one replaces the oldest: a member names itself in the packet after the TCP
//! handshake, so it is unnamed only for a moment. Non-members have their own permits, and one
//! address can use only a part of them. So neither can use the permits of members, even if all
//! members and a non-member have the same address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_proto::ServerId;

use super::link::{End, Link};

/// The maximum number of connections that have not named their server.
const UNNAMED_MAX: usize = 64;
/// The maximum number of connections of non-members.
const NON_MEMBERS_MAX: usize = 128;
/// The maximum number of connections from one address that have not named their server.
const UNNAMED_OF_ONE_ADDRESS_MAX: usize = 16;
/// The maximum number of connections of non-members from one address: for example observers behind
/// a NAT.
const NON_MEMBERS_OF_ONE_ADDRESS_MAX: usize = 64;
/// The maximum number of connections that name the same member: the one that is served, and those
/// that may replace it.
const OF_ONE_MEMBER_MAX: usize = 4;

/// The kind of server at the other end; each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The first message has not arrived.
    Unnamed,
    NonMember,
    Member(ServerId),
}

/// A granted permit.
#[derive(Debug)]
struct Grant {
    address: IpAddr,
    kind: Kind,
    link: Arc<Link>,
}

/// The permits of one port.
#[derive(Debug, Default)]
pub(super) struct Permits {
    granted: Mutex<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    last_number: u64,
    /// In the order in which they were granted.
    grants: BTreeMap<u64, Grant>,
}

/// The permit of a connection, returned when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Arc<Permits>,
    number: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let grant = self.permits.lock().grants.remove(&self.number);
        // This may be the last reference to the link, which closes its socket, outside of the lock.
        drop(grant);
    }
}

impl Permits {
    fn lock(&self) -> MutexGuard<'_, Granted> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants a permit to a connection that has not named its server. May close another one for it.
    pub(super) fn admit(self: &Arc<Permits>, link: &Arc<Link>) -> Permit {
        let address = link.peer.ip();
        let mut granted = self.lock();
        if let Some(evicted) = granted.to_evict(address)
            && let Some(grant) = granted.grants.remove(&evicted)
        {
            grant.link.end(End::Evicted);
        }
        granted.last_number += 1;
        let number = granted.last_number;
        let grant = Grant { address, kind: Kind::Unnamed, link: Arc::clone(link) };
        granted.grants.insert(number, grant);
        Permit { permits: Arc::clone(self), number }
    }
}

impl Granted {
    /// Returns the unnamed connection that makes room for another one from `address`, if there are
    /// too many.
    fn to_evict(&self, address: IpAddr) -> Option<u64> {
        let unnamed = |grant: &Grant| grant.kind == Kind::Unnamed;
        let unnamed_of = |of: IpAddr| {
            let is_its = move |grant: &Grant| unnamed(grant) && grant.address == of;
            self.grants.iter().filter(move |(_, grant)| is_its(grant)).map(|(number, _)| *number)
        };
        if unnamed_of(address).count() >= UNNAMED_OF_ONE_ADDRESS_MAX {
            unnamed_of(address).next()
        } else if self.grants.values().filter(|grant| unnamed(grant)).count() >= UNNAMED_MAX {
            // The oldest of the address with the most unnamed connections.
            let addresses = self.grants.values().map(|grant| grant.address);
            let of = addresses.max_by_key(|of| unnamed_of(*of).count())?;
            unnamed_of(of).next()
        } else {
            None
        }
    }
}

impl Permit {
    /// Records the server of a connection. Returns false if there are too many of its kind.
    pub(super) fn assign(&self, id: Option<ServerId>, is_member: bool) -> bool {
        let grants = &mut self.permits.lock().grants;
        let Some(address) = grants.get(&self.number).map(|grant| grant.address) else {
            return false;
        };
        let kind = match id.filter(|_| is_member) {
            Some(id) => Kind::Member(id),
            None => Kind::NonMember,
        };
        let is_same = |(_, grant): &(&u64, &Grant)| grant.kind == kind;
        let same: Vec<u64> = grants.iter().filter(is_same).map(|(number, _)| *number).collect();
        if kind == Kind::NonMember {
            let of_address = same.iter().filter(|number| grants[*number].address == address);
            if same.len() >= NON_MEMBERS_MAX || of_address.count() >= NON_MEMBERS_OF_ONE_ADDRESS_MAX
            {
                return false;
            }
        } else if same.len() >= OF_ONE_MEMBER_MAX
            && let Some(evicted) = same.get(1).and_then(|second| grants.remove(second))
        {
            // The oldest may be the one that is served.
            evicted.link.end(End::Evicted);
        }
        if let Some(own) = grants.get_mut(&self.number) {
            own.kind = kind;
        }
        true
    }
}
