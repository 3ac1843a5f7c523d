//! The state that only a member of an ensemble has: the links to the other servers, the thread that
//! reads the log for learners, and the role.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ironkeeper_config::{Config, EnsembleConfig};
use ironkeeper_engine::io::MemberStart;
use ironkeeper_engine::planted::Place;
use ironkeeper_engine::{Input, Now, ToPeers};
use ironkeeper_node::LogHistory;
use ironkeeper_proto::membership::{self, PeerAddress};
use ironkeeper_proto::{Membership, Packet, ServerId};
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_zab::{Ensemble, LinkId, LinkOp, MembersChange, Reason, Status};

use crate::engine_driver::EngineDriver;
use crate::log_reader::LogReads;
use crate::membership_check::MembershipCheck;
use crate::metrics::Metrics;
use crate::peer::{Endpoint, OwnAddresses, OwnTree, PeerError, PeerLinks};
use crate::role::Role;
use crate::settings;

/// The time without a leader before the first warning, and between two warnings.
const NO_LEADER_AFTER_MS: u64 = 5_000;
const NO_LEADER_AGAIN_MS: u64 = 60_000;

/// The state of a member, see the head of this file.
#[derive(Debug)]
pub struct Member {
    pub links: Arc<PeerLinks>,
    pub log_reads: LogReads,
    pub role: Role,
    metrics: Arc<Metrics>,
    me: ServerId,
    listen_on_all_ips: bool,
    /// The time of the last warning that there is no leader; 0 before the first one.
    no_leader_at_ms: AtomicU64,
    /// The membership in force and the proposed one.
    members: Arc<Mutex<(Membership, Option<Membership>)>>,
}

fn in_force(members: &Mutex<(Membership, Option<Membership>)>) -> Membership {
    members.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
}

impl Member {
    /// Binds the ports.
    pub fn bind(
        config: &Config,
        ensemble: &EnsembleConfig,
        store: &Store<RealDisk>,
        log_reads: LogReads,
        metrics: &Arc<Metrics>,
    ) -> Result<Member, PeerError> {
        let links = PeerLinks::bind(settings::peers(config, ensemble), store.clone())?;
        let member = Member {
            links: Arc::new(links),
            log_reads,
            role: Role::new(ensemble.my_id, Arc::clone(metrics)),
            metrics: Arc::clone(metrics),
            me: ensemble.my_id,
            listen_on_all_ips: ensemble.listen_on_all_ips,
            no_leader_at_ms: AtomicU64::new(0),
            members: Arc::new(Mutex::new((ensemble.membership.clone(), ensemble.proposed.clone()))),
        };
        member.tell_links(|_| {});
        Ok(member)
    }

    /// Returns the membership in force.
    pub fn membership(&self) -> Membership {
        in_force(&self.members)
    }

    /// Warns that there is no leader, with the voters that cannot be reached and the reasons: first
    /// after `NO_LEADER_AFTER_MS`, then every `NO_LEADER_AGAIN_MS`.
    pub fn report_no_leader(&self, now: Now) {
        let age_ms = self.role.age_ms(now);
        if self.status() != Status::Looking || age_ms < NO_LEADER_AFTER_MS {
            return self.no_leader_at_ms.store(0, Relaxed);
        }
        let last_ms = self.no_leader_at_ms.load(Relaxed);
        if last_ms != 0 && now.mono_ms.saturating_sub(last_ms) < NO_LEADER_AGAIN_MS {
            return;
        }
        self.no_leader_at_ms.store(now.mono_ms.max(1), Relaxed);
        let members = self.membership();
        let voters: Vec<ServerId> = members.voters().collect();
        let away = self.links.out_of_touch(voters.iter().copied().filter(|id| *id != self.me));
        let (voters, connected) = (voters.len(), voters.len() - away.len());
        let unreachable: Vec<String> = away.into_iter().map(|(_, why)| why).collect();
        let unreachable = (!unreachable.is_empty()).then(|| unreachable.join("; "));
        let reason = self.role.reason().filter(|reason| *reason != Reason::Started);
        tracing::warn!(
            target: "ironkeeper_server::role",
            server = self.me.0,
            took_ms = age_ms,
            voters,
            connected,
            unreachable,
            reason = reason.map(tracing::field::display),
            "no leader"
        );
    }

    /// Logs how a learner is synchronized.
    fn log_sync(&self, link: LinkId, packet: &Packet) {
        let (packet, zxid) = match packet {
            Packet::Diff { zxid } => ("DIFF", Some(*zxid)),
            Packet::Trunc { zxid } => ("TRUNC", Some(*zxid)),
            Packet::Snap { zxid } => ("SNAP", Some(*zxid)),
            Packet::UpToDate => ("UPTODATE", None),
            _ => return,
        };
        let Some(learner) = self.links.learner_to_log(link) else { return };
        let (peer, addr) = (learner.server.map(|id| id.0), learner.address);
        let suppressed = learner.suppressed;
        match zxid.map(tracing::field::display) {
            None => tracing::info!(peer, %addr, suppressed, "learner up to date"),
            Some(zxid) => tracing::info!(
                peer,
                %addr,
                packet,
                zxid,
                suppressed,
                "learner synchronization started"
            ),
        }
    }

    fn tell_links(&self, change: impl FnOnce(&mut (Membership, Option<Membership>))) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut members);
        let (committed, proposed) = &*members;
        // The addresses in the proposed membership precede: its members already listen there.
        self.links.set_members(proposed.iter().chain([committed]));
    }

    /// Performs an output of the engine. Call it in the order of the outputs.
    pub fn perform(&self, core: &EngineDriver, asked: ToPeers) {
        match asked {
            ToPeers::Link(op) => {
                if let LinkOp::Send { link, packet } = &op {
                    if matches!(packet, Packet::Diff { .. } | Packet::Trunc { .. }) {
                        self.metrics.diffs_sent.fetch_add(1, Relaxed);
                    }
                    self.log_sync(*link, packet);
                }
                self.links.perform(op);
            }
            ToPeers::SendSnapshot { link, job } => {
                self.metrics.trees_sent.fetch_add(1, Relaxed);
                let home = core.this();
                let tree = OwnTree::new(job, Arc::clone(&core.db), move |walk| {
                    if let Some(core) = home.upgrade() {
                        core.submit([Input::SnapshotSent(walk)]);
                    }
                });
                self.links.send_snapshot(link, Box::new(tree));
            }
            ToPeers::ReadLog(query) => self.log_reads.push(query),
            ToPeers::Role { status, reason } => {
                if status == Status::Looking {
                    self.links.forget_snapshot();
                }
                self.role.change(status, reason, core.clock.now());
            }
        }
    }

    /// Passes the addresses of a changed membership to the links, before the log thread writes it
    /// to disk.
    pub fn on_members(&self, change: &MembersChange) {
        match change {
            MembersChange::Proposed(next) => {
                self.tell_links(|(_, proposed)| *proposed = Some((**next).clone()));
            }
            MembersChange::Committed(next) => {
                if let Some((addr, old_addr)) = moved_clients(self.me, &self.membership(), next) {
                    tracing::warn!(addr, old_addr, "client address changes with the next start");
                }
                self.tell_links(|(committed, proposed)| {
                    *committed = (**next).clone();
                    proposed.take_if(|proposed| proposed.version <= committed.version);
                });
                // A server that was removed keeps its ports, so that it can be added again.
                let me = next.members.get(&self.me);
                if me.is_some() {
                    self.links.rebind(own_addresses(me, self.listen_on_all_ips));
                }
            }
            MembersChange::Withdrawn => self.tell_links(|(_, proposed)| *proposed = None),
        }
    }

    /// Runs the thread `peers` until [`Member::stop`].
    pub fn run_links(&self, core: &EngineDriver) {
        // The links must not keep the server alive.
        let engine = core.this();
        let metrics = Arc::clone(&self.metrics);
        let links = Arc::downgrade(&self.links);
        let (members, check) = (Arc::clone(&self.members), MembershipCheck::default());
        let ran =
            self.links.run(move |inputs| {
                for input in &inputs {
                    match input {
                        ironkeeper_zab::Input::Packet { link, packet } => {
                            metrics.note_packet(packet);
                            if let Packet::FollowerInfo { info, .. }
                            | Packet::ObserverInfo { info, .. } = packet
                                && let (Some(links), Some(server)) = (links.upgrade(), info.server)
                            {
                                links.introduce(*link, server);
                            }
                        }
                        ironkeeper_zab::Input::Notification { link, notification } => {
                            let links = links.upgrade();
                            if let Some(from) = links.and_then(|links| links.server_of(*link)) {
                                let own = in_force(&members);
                                check.compare(&own, from, &notification.config);
                            }
                        }
                        _ => {}
                    }
                }
                if let Some(core) = engine.upgrade() {
                    core.db.planted_panic.strike(Place::PeerLink);
                    core.submit(inputs.into_iter().map(Input::Peer));
                }
            });
        if let Err(error) = ran {
            core.shutdown.fail(format!("no connections to other servers: {error}"));
        }
    }

    /// Ends the threads that only members have.
    pub fn stop(&self) {
        self.links.stop();
        self.log_reads.close();
    }

    /// Returns the role of this server.
    pub fn status(&self) -> Status {
        self.role.status()
    }
}

/// Returns the new and the old client address of this server if it changed: the server listens on
/// the new address only after a restart.
fn moved_clients(
    me: ServerId,
    before: &Membership,
    after: &Membership,
) -> Option<(String, String)> {
    let place = |members: &Membership| members.members.get(&me)?.client.clone();
    let (before, after) = (place(before)?, place(after)?);
    let text = |address: membership::ClientAddress| format!("{}:{}", address.host, address.port);
    (before != after).then(|| (text(after), text(before)))
}

/// Returns the state with which ZAB starts.
pub(crate) fn start(
    config: &Config,
    ensemble: &EnsembleConfig,
    epochs: ironkeeper_store::Epochs,
    history: LogHistory,
) -> MemberStart {
    MemberStart {
        me: ensemble.my_id,
        settings: settings::zab(config, ensemble),
        ensemble: Ensemble::new(ensemble.membership.clone(), ensemble.proposed.clone()),
        recovered: history.into_recovered(epochs),
    }
}

/// Returns the addresses of this server in a membership.
pub(crate) fn own_addresses(me: Option<&membership::Member>, on_all_ips: bool) -> OwnAddresses {
    let addresses = me.map(|me| me.addresses.as_slice()).unwrap_or_default();
    let bind = |port: fn(&PeerAddress) -> u16| {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for address in addresses {
            let host = if on_all_ips { "0.0.0.0".to_owned() } else { address.host.clone() };
            let endpoint = Endpoint { host, port: port(address) };
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        endpoints
    };
    let opening = |address: &PeerAddress| {
        Endpoint { host: address.host.clone(), port: address.election_port }.to_string()
    };
    OwnAddresses {
        election_binds: bind(|address| address.election_port),
        quorum_binds: bind(|address| address.quorum_port),
        opening: addresses.iter().map(opening).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_client_address_is_noticed() {
        let members = |port: u16| {
            let lines = format!("server.1=a:2888:3888;{port}\nserver.2=b:2888:3888;{port}");
            Membership::parse(&lines).expect("members of our own making")
        };
        let me = ServerId(1);
        assert_eq!(moved_clients(me, &members(2181), &members(2181)), None);
        let (addr, old_addr) =
            moved_clients(me, &members(2181), &members(2182)).expect("the port differs");
        assert!(addr.ends_with(":2182") && old_addr.ends_with(":2181"), "{addr} {old_addr}");
        assert_eq!(moved_clients(ServerId(9), &members(2181), &members(2182)), None);
    }
}
