//! Changes of the membership while the ensemble runs.
//!
//! A change is a transaction with one more effect: from its proposal until its commit, leadership,
//! elections and commits need a quorum of the old members *and* one of the new. The commit names
//! the leader after the change; a server whose role has changed returns to LOOKING.

use bytes::Bytes;
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{Membership, OpCode, ServerId, Txn, Zxid};

/// The reason for which a change is not proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconfigRefused {
    /// We do not lead, or the epoch has no zxid left.
    NotLeading,
    /// `reconfigEnabled` is off.
    Disabled,
    /// Another change is in progress.
    InProgress,
    /// The new membership has no voters.
    NoVoters,
    /// Too few of the new voters are connected and synchronized.
    NoQuorum,
}

/// Returns the membership in a transaction, if it is a reconfig.
pub(crate) fn members_in(zxid: Zxid, txn: &Bytes) -> Option<Membership> {
    const OP_AT: usize = 28;
    // Called for every proposal, so it reads only four bytes of it.
    if txn.get(OP_AT..OP_AT + 4)? != OpCode::Reconfig.code().to_be_bytes() {
        return None;
    }
    let full = FullTxn::decode(txn).ok()?;
    let Txn::Reconfig { data, .. } = full.txn else { return None };
    let text = String::from_utf8_lossy(data?);
    Some(Membership { version: zxid.0, ..Membership::parse(&text).ok()? })
}

/// Returns the leader when `next` is in force: `me`, if it still votes at the same address, else
/// the new voter with the largest acknowledged zxid.
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
