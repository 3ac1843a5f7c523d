//! The final check: the cluster recovers from all faults, and nothing that was acknowledged is
//! missing.

use std::collections::BTreeSet;
use std::fmt::Write;

use ironkeeper_proto::SessionId;
use ironkeeper_zab::Status;

use super::client::LastWords;
use super::history::{Seen, Standing};
use super::node::Process;
use super::requests::{EPHEMERALS, register_path};
use super::world::{Phase, World};
use crate::outcome::Failure;

/// The maximal duration of each step of the recovery after all faults have been removed.
const RECOVERY_US_MAX: u64 = 120_000_000;

/// Longer than any message takes without faults.
const GRACE_US: u64 = 2_000_000;

impl World {
    /// Checks that after the removal of all faults the servers agree, serve all clients, and have
    /// lost nothing that was acknowledged.
    pub fn converge(&mut self) -> Result<(), Failure> {
        self.expect("servers and clients find together", World::is_at_rest)?;
        self.phase = Phase::LastWords;
        self.expect("every client writes and reads", |world| {
            world.clients.iter().all(|client| client.last_words == LastWords::Answered)
        })?;
        self.phase = Phase::Rest;
        self.expect("sessions that nobody speaks for end", |world| {
            world.is_at_rest() && world.only_sessions_of_clients_live()
        })?;
        // Waits for messages to clients that are in flight.
        self.run_for(GRACE_US)?;
        let judged = self.judge();
        judged.map_err(|what| self.failed(what))
    }

    fn expect(&mut self, what: &str, is_so: impl FnMut(&World) -> bool) -> Result<(), Failure> {
        match self.run_until(RECOVERY_US_MAX, is_so)? {
            true => Ok(()),
            false => Err(self.stuck(what)),
        }
    }

    /// Returns whether all servers have the same state, and no server or client waits for a reply.
    pub fn is_at_rest(&self) -> bool {
        self.is_whole() && self.clients.iter().all(|client| client.is_at_rest())
    }

    /// Returns whether every server is serving and has the leader's state.
    pub fn is_whole(&self) -> bool {
        let Some(leader) = self.leader().and_then(|node| self.nodes[node].process.as_ref()) else {
            return false;
        };
        let state = |process: &Process| {
            let state = process.db.read();
            (state.applied(), state.tree.digest(), state.sessions.sorted())
        };
        let leaders = state(leader);
        leader.engine.zab().outstanding() == 0
            && self.nodes.iter().all(|node| {
                node.process.as_ref().is_some_and(|process| {
                    process.engine.zab().status() != Status::Looking && state(process) == leaders
                })
            })
    }

    fn only_sessions_of_clients_live(&self) -> bool {
        let wanted: BTreeSet<SessionId> =
            self.clients.iter().map(|client| client.session).collect();
        let Some(process) = self.nodes[0].process.as_ref() else { return false };
        let sessions = process.db.read().sessions.sorted();
        sessions.iter().all(|(session, _)| wanted.contains(session))
    }

    /// Checks every server's tree against the replies that clients received. At this point all
    /// trees are equal, but the first wrong server is named.
    fn judge(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let Some(process) = &self.nodes[node].process else { continue };
            let state = process.db.read();
            for register in 0..self.plan.registers {
                let node = state.tree.find(&register_path(register));
                let node =
                    node.ok_or_else(|| format!("durability: register {register} is gone"))?;
                let stat = node.persisted();
                let data = node.data().unwrap_or_default();
                let value = data.try_into().map_or(u64::MAX, u64::from_be_bytes);
                let seen = Seen { version: stat.version, zxid: stat.mzxid, value };
                if seen.version < self.history.newest(register) {
                    let newest = self.history.newest(register);
                    return Err(format!("durability: {seen:?} is left of version {newest}"));
                }
                self.history.observe(register, seen)?;
                for client in &self.clients {
                    let watched = client.watches.get(&register);
                    if watched.is_some_and(|watched| *watched < seen.version) {
                        return Err(format!(
                            "watches: client {} never heard that register {register} is {seen:?}",
                            client.number
                        ));
                    }
                }
            }
            let claimed = self.history.read_only_sessions.iter();
            if let Some(session) = claimed.copied().find(|id| state.sessions.contains(*id)) {
                return Err(format!(
                    "read-only: session {:x} began without a leader, and is known to all",
                    session.0
                ));
            }
            let there: BTreeSet<String> = state
                .tree
                .find(EPHEMERALS)
                .into_iter()
                .flat_map(|parent| parent.children())
                .map(|name| format!("{EPHEMERALS}/{name}"))
                .collect();
            for (path, ephemeral) in &self.history.ephemerals {
                let lives = state.sessions.contains(ephemeral.session);
                let may_be = lives && ephemeral.standing != Standing::Gone;
                let must_be = lives && ephemeral.standing == Standing::Made;
                let is = there.contains(path);
                if is && !may_be || !is && must_be {
                    return Err(format!("ephemerals: {path} is there: {is}; {ephemeral:?}"));
                }
            }
        }
        Ok(())
    }

    fn stuck(&self, what: &str) -> Failure {
        let mut lines =
            format!("progress: in two minutes of peace it did not come to pass: {what}");
        for node in &self.nodes {
            let status = node.process.as_ref().map(|process| {
                let zab = process.engine.zab();
                let state = process.db.read();
                let sessions = state.sessions.sorted();
                (zab.status(), state.applied(), zab.epochs(), zab.outstanding(), sessions)
            });
            let _ = write!(lines, "\n  {}: {status:?}", node.id);
        }
        for client in &self.clients {
            let (stage, words) = (client.stage, client.last_words);
            let _ = write!(
                lines,
                "\n  client {}: {stage:?} {words:?} session {:x}, waits for {:?}",
                client.number, client.session.0, client.pending
            );
        }
        self.failed(lines)
    }
}
