//! The right of an established leader to propose transactions.

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Packet, Zxid};

use super::{Leader, Phase};
use crate::io::{DurableStep, LinkOp, MembersChange, Output};
use crate::learner::Kind;
use crate::ledger::Ledger;
use crate::reconfig::members_in;
use crate::shared::Shared;

/// The right to propose the next transaction. It exists only on an established leader whose epoch
/// has a zxid left, so nothing is proposed before a quorum has the history.
#[derive(Debug)]
pub struct Proposer<'a> {
    leader: &'a mut Leader,
    shared: &'a mut Shared,
    ledger: &'a mut Ledger,
    zxid: Zxid,
}

impl Leader {
    /// Returns the zxid of the next proposal; `None` before this leader is established, and after
    /// the last zxid of the epoch. A standalone server continues in the next epoch, because its
    /// only voter has no other leader to agree on.
    pub(crate) fn next_zxid(&self, shared: &Shared, ledger: &Ledger) -> Option<Zxid> {
        let last = ledger.last_proposed;
        let has_next = shared.is_standalone || last.counter() < shared.settings.counter_max;
        if self.phase != Phase::Established || !has_next {
            return None;
        }
        Some(last.next().unwrap_or_else(|| Zxid::new(Epoch(last.epoch().0 + 1), 1)))
    }

    #[inline]
    pub(crate) fn proposer<'a>(
        &'a mut self,
        shared: &'a mut Shared,
        ledger: &'a mut Ledger,
    ) -> Option<Proposer<'a>> {
        let zxid = self.next_zxid(shared, ledger)?;
        Some(Proposer { leader: self, shared, ledger, zxid })
    }
}

impl Proposer<'_> {
    /// Returns the zxid of the transaction.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Proposes the transaction: sends it to the followers and appends it to the log.
    pub fn propose(self, txn: Bytes, out: &mut Vec<Output>) {
        let Proposer { leader, shared, ledger, zxid } = self;
        ledger.last_proposed = zxid;
        // It differs only on a standalone server that has used up the zxids of its epoch.
        leader.epoch = zxid.epoch();
        if shared.settings.reconfig_enabled
            && let Some(next) = members_in(zxid, &txn)
            && shared.ensemble.propose(next.clone())
        {
            let change = MembersChange::Proposed(Box::new(next));
            out.push(Output::Durable(DurableStep::WriteMembers(change)));
        }
        for (link, peer) in &mut leader.peers {
            if peer.hears() && peer.kind == Kind::Follower {
                let packet = Packet::Proposal { zxid, txn: txn.clone() };
                out.push(Output::Link(LinkOp::Send { link: *link, packet }));
                peer.unacked.get_or_insert((zxid, shared.now_ms));
            }
        }
        ledger.append(zxid, txn, out);
    }
}
