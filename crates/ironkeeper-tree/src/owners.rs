//! The sets of ephemeral nodes, containers and TTL nodes.
//!
//! These are small sets of slots beside the tree, so that closing a session, or finding containers
//! and TTL nodes to delete, costs as much as the number of nodes found.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use ironkeeper_proto::SessionId;
use ironkeeper_proto::stat::OwnerKind;

use crate::arena::Slot;

#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// One set for all sessions: sixteen bytes per ephemeral, none per session.
    ephemerals: BTreeSet<(SessionId, Slot)>,
    containers: BTreeSet<Slot>,
    ttls: BTreeSet<Slot>,
}

impl Owners {
    pub(crate) fn insert(&mut self, kind: OwnerKind, owner: i64, slot: Slot) {
        match kind {
            OwnerKind::Persistent => false,
            OwnerKind::Ephemeral => self.ephemerals.insert((SessionId(owner), slot)),
            OwnerKind::Container => self.containers.insert(slot),
            OwnerKind::Ttl(_) => self.ttls.insert(slot),
        };
    }

    pub(crate) fn remove(&mut self, kind: OwnerKind, owner: i64, slot: Slot) {
        match kind {
            OwnerKind::Persistent => false,
            OwnerKind::Ephemeral => self.ephemerals.remove(&(SessionId(owner), slot)),
            OwnerKind::Container => self.containers.remove(&slot),
            OwnerKind::Ttl(_) => self.ttls.remove(&slot),
        };
    }

    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemerals.len()
    }

    pub(crate) fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = Slot> {
        self.ephemerals.range((session, Slot(0))..=(session, Slot::NONE)).map(|&(_, slot)| slot)
    }

    /// Returns every session with ephemerals once, in order.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let first = self.ephemerals.first().map(|&(session, _)| session);
        std::iter::successors(first, |&session| {
            let after = (Excluded((session, Slot::NONE)), Unbounded);
            self.ephemerals.range(after).next().map(|&(session, _)| session)
        })
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = Slot> {
        self.containers.iter().copied()
    }

    pub(crate) fn ttls(&self) -> impl Iterator<Item = Slot> {
        self.ttls.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_listed_once_and_their_nodes_apart() {
        let mut owners = Owners::default();
        for (session, slot) in [(5, 1), (-3, 2), (5, 9), (7, 4)] {
            owners.insert(OwnerKind::Ephemeral, session, Slot(slot));
        }
        owners.insert(OwnerKind::Persistent, 0, Slot(30));
        owners.insert(OwnerKind::Container, i64::MIN, Slot(31));
        let sessions: Vec<i64> = owners.sessions().map(|session| session.0).collect();
        assert_eq!(sessions, [-3, 5, 7]);
        assert_eq!(owners.ephemerals(SessionId(5)).collect::<Vec<_>>(), [Slot(1), Slot(9)]);
        assert_eq!((owners.ephemeral_count(), owners.containers().count()), (4, 1));
        owners.remove(OwnerKind::Ephemeral, 5, Slot(1));
        assert_eq!(owners.ephemerals(SessionId(5)).collect::<Vec<_>>(), [Slot(9)]);
    }
}
