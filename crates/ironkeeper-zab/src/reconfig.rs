//! Changes of the members while the ensemble runs.
//!
//! A change is a transaction like any other, with one more effect: from the moment it is proposed until it is
//! committed, leadership, elections and commits need a quorum of the old members *and* one of the new. Its
//! commit names the leader from then on; whoever finds its own part changed looks for its place anew.

use bytes::Bytes;
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{Membership, OpCode, ServerId, Txn, Zxid};

/// Why a change is not put up for agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconfigRefused {
    /// We do not lead, or have no id left.
    NotLeading,
    /// `reconfigEnabled` is off.
    Disabled,
    /// Another change is under way.
    InProgress,
    /// Nobody would vote.
    NoVoters,
    /// Too few of the new voters are connected and up to date.
    NoQuorum,
}

/// The members a transaction brings, if it is such a one.
pub(crate) fn members_in(zxid: Zxid, txn: &Bytes) -> Option<Membership> {
    const OP_AT: usize = 28;
    // Looked at for every proposal, so only four bytes of it.
    if txn.get(OP_AT..OP_AT + 4)? != OpCode::Reconfig.code().to_be_bytes() {
        return None;
    }
    let full = FullTxn::decode(txn).ok()?;
    let Txn::Reconfig { data, .. } = full.txn else { return None };
    let text = String::from_utf8_lossy(data?);
    Some(Membership { version: zxid.0, ..Membership::parse(&text).ok()? })
}

/// Who leads when `next` is in force: the one who does, if it still votes at the same address, else the new
/// voter that has acknowledged most.
pub(crate) fn designated(
    me: ServerId,
    now: &Membership,
    next: &Membership,
    acks: &[(ServerId, Zxid)],
) -> ServerId {
    let address = |membership: &Membership| {
        membership.members.get(&me).map(|member| member.addresses.clone())
    };
    if next.is_voter(me) && address(now) == address(next) {
        return me;
    }
    let voters = acks.iter().filter(|(id, _)| *id != me && next.is_voter(*id));
    voters.max_by_key(|(id, zxid)| (*zxid, *id)).map_or(me, |(id, _)| *id)
}
