//! The state that the thread of the peer links and its callers share: the links by id, and the
//! addresses of the members.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ironkeeper_node::ReceivedTree;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::membership::PeerAddress;
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_zab::{Input, LinkId, Port};
use tokio::sync::Notify;

use super::link::{End, Link};
use super::settings::{Endpoint, OwnAddresses, PeerSettings};
use crate::rate_limited::{Admitted, LearnerLimit, LineLimit};
use crate::wire::Stream;

/// The receiver of inputs.
pub(super) type Sink = Arc<dyn Fn(Vec<Input>) + Send + Sync>;

pub(super) struct Registry {
    pub(super) settings: PeerSettings,
    pub(super) store: Store<RealDisk>,
    sink: OnceLock<Sink>,
    own: Mutex<OwnAddresses>,
    links: Mutex<HashMap<LinkId, Arc<Link>>>,
    /// Members that a test makes unreachable.
    cut_off: Mutex<BTreeSet<ServerId>>,
    next_id: AtomicU64,
    /// The limit of log lines about peers.
    pub(super) line_limit: LineLimit,
    learner_limit: LearnerLimit,
    /// The unsent bytes on all links.
    pub(super) unsent_total: Arc<AtomicUsize>,
    members: Mutex<BTreeMap<ServerId, Vec<PeerAddress>>>,
    /// Why the last attempt to dial a member failed.
    unreachable: Mutex<BTreeMap<ServerId, String>>,
    /// Links with bytes in their outbox that were not passed to the stream yet.
    to_flush: Mutex<Vec<Arc<Link>>>,
    /// The snapshot of the last leader that has sent one.
    received: Mutex<Option<(LinkId, ReceivedTree)>>,
    /// Notified when a link with a large outbox has ended.
    pub(super) freed: Notify,
}

impl Registry {
    pub(super) fn new(settings: PeerSettings, store: Store<RealDisk>) -> Registry {
        Registry {
            own: Mutex::new(settings.own.clone()),
            settings,
            store,
            sink: OnceLock::new(),
            links: Mutex::default(),
            cut_off: Mutex::default(),
            next_id: AtomicU64::new(1),
            line_limit: LineLimit::default(),
            learner_limit: LearnerLimit::default(),
            unsent_total: Arc::default(),
            members: Mutex::default(),
            unreachable: Mutex::default(),
            to_flush: Mutex::default(),
            received: Mutex::default(),
            freed: Notify::new(),
        }
    }

    pub(super) fn set_sink(&self, sink: Sink) {
        // There is one thread, which starts once, so a second sink is ignored.
        let _ = self.sink.set(sink);
    }

    /// Passes inputs to ZAB. Only the thread of the peer links calls this, so the order is that of
    /// the events.
    pub(super) fn report(&self, inputs: Vec<Input>) {
        if let Some(sink) = self.sink.get() {
            sink(inputs);
        }
    }

    pub(super) fn own(&self) -> OwnAddresses {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets our own addresses. Returns whether they changed.
    pub(super) fn set_own(&self, own: OwnAddresses) -> bool {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != own;
        *known = own;
        is_news
    }

    /// Enables TCP keep-alive if it is configured. Errors are ignored, because ZAB detects timeouts
    /// as well.
    pub(super) fn keep_alive(&self, stream: &Stream) {
        if self.settings.tcp_keep_alive {
            let _ = socket2::SockRef::from(stream).set_keepalive(true);
        }
    }

    pub(super) fn next_id(&self) -> LinkId {
        LinkId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn insert(&self, link: &Arc<Link>) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(link.id(), Arc::clone(link));
    }

    pub(super) fn remove(&self, id: LinkId) -> Option<Arc<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    pub(super) fn link(&self, id: LinkId) -> Option<Arc<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn is_cut_off(&self, id: ServerId) -> bool {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    pub(super) fn cut_off(&self, ids: BTreeSet<ServerId>) {
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = ids;
        for link in self.links.lock().unwrap_or_else(PoisonError::into_inner).values() {
            if link.peer_id().is_some_and(|id| self.is_cut_off(id)) {
                link.end(End::CutOff);
            }
        }
    }

    /// Closes every connection, even if other threads still hold it.
    pub(super) fn close_all(&self) {
        let links = std::mem::take(&mut *self.links.lock().unwrap_or_else(PoisonError::into_inner));
        for link in links.into_values() {
            link.close();
        }
    }

    pub(super) fn flush_later(&self, link: Arc<Link>) {
        self.to_flush.lock().unwrap_or_else(PoisonError::into_inner).push(link);
    }

    pub(super) fn flush(&self) {
        let links = {
            let mut waiting = self.to_flush.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        for link in links {
            link.flush();
        }
    }

    /// Sets the addresses of the members. If several memberships contain a member, the first
    /// counts.
    pub(super) fn set_members<'m>(&self, configs: impl IntoIterator<Item = &'m Membership>) {
        let mut members = BTreeMap::new();
        for config in configs {
            for (id, member) in &config.members {
                members.entry(*id).or_insert_with(|| member.addresses.clone());
            }
        }
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Returns whether a server is in one of the memberships.
    pub(super) fn is_member(&self, id: ServerId) -> bool {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Returns whether a line about the synchronization of this server may be logged.
    pub(super) fn may_log_sync(&self, server: Option<ServerId>) -> Option<Admitted> {
        let member = server.filter(|id| self.is_member(*id));
        self.learner_limit.admit(member, Instant::now())
    }

    /// Records the result of dialling a member.
    pub(super) fn note_dialed(&self, id: ServerId, outcome: Result<(), String>) {
        let mut unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => drop(unreachable.remove(&id)),
            Err(why) => drop(unreachable.insert(id, why)),
        }
    }

    /// Returns the remote addresses of the election links to this server. A connection that claims
    /// to be this server's from another address, and is about to be rejected, does not count.
    pub(super) fn election_ips(&self, id: ServerId) -> Vec<IpAddr> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let elections = links.values().filter(|link| link.port == Port::Election);
        let its =
            elections.filter(|link| link.peer_id() == Some(id) && link.is_at_member_address());
        its.map(|link| link.peer.ip().to_canonical()).collect()
    }

    /// Returns the members with an election link.
    pub(super) fn linked_members(&self) -> BTreeSet<ServerId> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let elections = links.values().filter(|link| link.port == Port::Election);
        elections.filter_map(|link| link.peer_id()).collect()
    }

    pub(super) fn why_unreachable(&self, id: ServerId) -> Option<String> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Returns the endpoints of a member.
    pub(super) fn endpoints(&self, id: ServerId, port: Port) -> Vec<Endpoint> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = members.get(&id).map(Vec::as_slice).unwrap_or_default();
        let endpoint = |address: &PeerAddress| Endpoint {
            host: address.host.clone(),
            port: match port {
                Port::Election => address.election_port,
                Port::Quorum => address.quorum_port,
            },
        };
        addresses.iter().map(endpoint).collect()
    }

    /// Logs a warning if the opening of a connection does not match the member that it names.
    pub(super) fn check_opening(&self, opening: &Opening) {
        let foreign_port = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.get(&opening.from).and_then(|known| foreign_port(opening, known))
        };
        let Some((announced, configured)) = foreign_port else { return };
        let peer = opening.from.0;
        let line = format!("{peer} at port {announced}, not {configured}");
        let admitted = self.line_limit.admit_kind("foreign port", line, Instant::now());
        if let Some(Admitted { suppressed }) = admitted {
            tracing::warn!(
                peer,
                announced,
                configured,
                suppressed,
                "peer announces another election port, possibly a duplicate myid"
            );
        }
    }

    pub(super) fn keep_snapshot(&self, link: LinkId, tree: ReceivedTree) {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        *received = Some((link, tree));
    }

    /// Drops a received snapshot that will not be used.
    pub(super) fn drop_snapshot(&self) {
        let left = self.received.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its file is deleted with it, outside of the lock.
        drop(left);
    }

    pub(super) fn take_snapshot(&self, link: LinkId) -> Option<ReceivedTree> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.take_if(|(from, _)| *from == link).map(|(_, tree)| tree)
    }
}

/// Returns the announced and the configured election port if a server that names itself as a member
/// listens on another port: most likely it is a second server with that id. Only ports are
/// compared, because names and addresses have many forms.
fn foreign_port(opening: &Opening, known: &[PeerAddress]) -> Option<(u16, u16)> {
    let port = |address: &String| address.rsplit(':').next()?.parse::<u16>().ok();
    let announced: Vec<u16> = opening.addresses.iter().filter_map(port).collect();
    let is_known = |port: &u16| known.iter().any(|address| address.election_port == *port);
    let other = announced.first().filter(|_| !announced.iter().any(is_known))?;
    Some((*other, known.first()?.election_port))
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_with_a_members_number_is_noticed_by_its_port() {
        let known =
            [PeerAddress { host: "db1".to_owned(), quorum_port: 2888, election_port: 3888 }];
        let port_of = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            foreign_port(&Opening { from: ServerId(1), addresses }, &known)
        };
        assert_eq!(port_of(&["10.0.0.7:3888"]), None);
        assert_eq!(port_of(&["[fe80::1]:4000", "db1:3888"]), None);
        assert_eq!(port_of(&[]), None);
        assert_eq!(port_of(&["10.0.0.7:4888"]), Some((4888, 3888)));
    }
}
