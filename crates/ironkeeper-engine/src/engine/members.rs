//! The membership as clients read and change it: the node `/zookeeper/config`.

use ironkeeper_proto::membership::Member;
use ironkeeper_proto::request::Reconfig;
use ironkeeper_proto::txn::encode;
use ironkeeper_proto::{ErrorCode, Membership, OpCode, Perms, ServerId, SessionId, Zxid};
use ironkeeper_zab::ReconfigRefused;

use super::Engine;
use crate::auth::{self, Identity};
use crate::state::State;
use crate::time::Now;
use crate::watch::Firing;

/// The node that shows the membership.
const CONFIG_PATH: &str = "/zookeeper/config";

/// Half of the longest vote that any release of ZooKeeper reads.
const MEMBERS_BYTES_MAX: usize = 256 << 10;

impl Engine {
    /// Writes the committed membership into the node, on every server. A membership that a
    /// transaction not yet applied will write is left to that transaction.
    pub(super) fn show_members(&mut self, now: Now, state: &mut State, members: &Membership) {
        let version = Zxid(members.version);
        let will_come = version.counter() != 0 && version > state.applied();
        let text = members.to_string();
        let known = state.tree.find(CONFIG_PATH).is_some_and(|node| {
            let shown = node.persisted().mzxid;
            // The leader's snapshot may contain a change before its membership is in force here.
            let is_newer = shown > version && self.db.config.reconfig_enabled;
            is_newer || shown == version && node.data() == Some(text.as_bytes())
        });
        if will_come || known {
            return;
        }
        let mut firing = Firing {
            table: &state.watches,
            config: &self.db.config,
            stats: &self.db.stats,
            unsent: &self.db.unsent,
            zxid: state.applied(),
            wakes: &mut self.wakes,
        };
        state.tree.set_config(text.as_bytes(), version, now.wall_ms, &mut firing);
    }

    /// Proposes the membership that a client requests.
    pub(super) fn propose_members(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        identity: &Identity,
        change: &Reconfig<'_>,
    ) {
        let next = match self.judge_members(state, identity, change) {
            Ok(next) => next,
            Err(error) => return self.propose_error(now, session, cxid, error),
        };
        self.propose_with(now, session, cxid, |zxid, _, scratch| {
            let text = Membership { version: zxid.0, ..next }.to_string();
            // The node is part of no digest, and no request is prepared against it: the overlay
            // does not need the change.
            encode::set_data(CONFIG_PATH, Some(text.as_bytes()), -1, scratch);
            Ok(OpCode::Reconfig)
        });
    }

    fn judge_members(
        &self,
        state: &State,
        identity: &Identity,
        change: &Reconfig<'_>,
    ) -> Result<Membership, ErrorCode> {
        let config = &self.db.config;
        if !config.reconfig_enabled {
            return Err(ErrorCode::ReconfigDisabled);
        }
        let ensemble = self.zab.ensemble().ok_or(ErrorCode::Unimplemented)?;
        if ensemble.proposed().is_some() {
            return Err(ErrorCode::ReconfigInProgress);
        }
        let current = ensemble.committed();
        if change.config_id != -1 && change.config_id != current.version {
            return Err(ErrorCode::BadVersion);
        }
        let next = match &change.new_members {
            Some(members) => all_new(members)?,
            None => changed(current, change)?,
        };
        // Every vote contains the membership, and other releases read no longer ones.
        if next.to_string().len() > MEMBERS_BYTES_MAX {
            return Err(ErrorCode::BadArguments);
        }
        let voters_min = if config.standalone_enabled { 2 } else { 1 };
        if next.voters().count() < voters_min {
            return Err(ErrorCode::BadArguments);
        }
        self.zab.may_reconfigure(&next).map_err(|refused| match refused {
            ReconfigRefused::Disabled => ErrorCode::ReconfigDisabled,
            ReconfigRefused::InProgress => ErrorCode::ReconfigInProgress,
            ReconfigRefused::NoVoters => ErrorCode::BadArguments,
            ReconfigRefused::NotLeading | ReconfigRefused::NoQuorum => ErrorCode::NewConfigNoQuorum,
        })?;
        let node = state.tree.find(CONFIG_PATH).ok_or(ErrorCode::NoNode)?;
        match auth::allowed(&config.auth, node.acl(), Perms::WRITE, identity) {
            true => Ok(next),
            false => Err(ErrorCode::NoAuth),
        }
    }
}

/// Parses a complete list of members, separated by commas.
fn all_new(members: &str) -> Result<Membership, ErrorCode> {
    let lines = members.replace(',', "\n");
    Membership::parse(&lines).map_err(|_| ErrorCode::BadArguments)
}

/// Removes the leaving members, then adds the joining ones.
fn changed(current: &Membership, change: &Reconfig<'_>) -> Result<Membership, ErrorCode> {
    let bad = ErrorCode::BadArguments;
    if !current.groups.is_empty() {
        return Err(bad);
    }
    let list = |text: &'_ Option<std::borrow::Cow<'_, str>>| -> Vec<String> {
        let parts = text.as_deref().unwrap_or_default().split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let mut next = current.clone();
    for id in list(&change.leaving) {
        next.members.remove(&ServerId(id.parse().map_err(|_| bad)?));
    }
    for joiner in list(&change.joining) {
        let (name, spec) = joiner.split_once('=').ok_or(bad)?;
        let id = name.trim().rsplit('.').next().and_then(|id| id.parse().ok()).ok_or(bad)?;
        let member = Member::parse(spec).map_err(|_| bad)?;
        let has_client_port = member.client.is_some() || member.secure_client.is_some();
        let taken = next
            .members
            .iter()
            .any(|(other, there)| *other != ServerId(id) && shares_address(there, &member));
        if !has_client_port || taken || id < 0 {
            return Err(bad);
        }
        next.members.insert(ServerId(id), member);
    }
    Ok(next)
}

/// Returns whether two members could not both listen: on the same host they need different ports.
fn shares_address(one: &Member, other: &Member) -> bool {
    one.addresses.iter().any(|a| {
        other.addresses.iter().any(|b| {
            a.host == b.host
                && (a.quorum_port == b.quorum_port || a.election_port == b.election_port)
        })
    })
}
