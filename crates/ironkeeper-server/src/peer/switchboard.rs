//! What the thread of the peer links and its callers share: the links by their names, and where the
//! members are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::membership::PeerAddress;
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_zab::{Input, LinkId, Port};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::link::{End, Link};
use super::settings::{Endpoint, OwnAddresses, PeerSettings};
use super::tree_in::ReceivedTree;
use crate::repeats::{About, LearnerLines, Repeats};

/// Where inputs go.
pub(super) type Sink = Arc<dyn Fn(Vec<Input>) + Send + Sync>;

pub(super) struct Switchboard {
    pub(super) settings: PeerSettings,
    pub(super) store: Store<RealDisk>,
    sink: OnceLock<Sink>,
    own: Mutex<OwnAddresses>,
    links: Mutex<HashMap<LinkId, Arc<Link>>>,
    /// Members that must not be reached, by a test's wish.
    cut_off: Mutex<BTreeSet<ServerId>>,
    next_id: AtomicU64,
    pub(super) repeats: Repeats,
    learner_lines: LearnerLines,
    /// Bytes that wait on all links.
    pub(super) unsent_total: Arc<AtomicUsize>,
    members: Mutex<BTreeMap<ServerId, Vec<PeerAddress>>>,
    /// Why members could not be dialled when that was last tried.
    unreachable: Mutex<BTreeMap<ServerId, String>>,
    /// Links with something in their outbox that was not handed to the kernel yet.
    to_flush: Mutex<Vec<Arc<Link>>>,
    /// The tree of the last leader that has sent one.
    received: Mutex<Option<(LinkId, ReceivedTree)>>,
    /// A link with much in its outbox has ended.
    pub(super) freed: Notify,
}

impl Switchboard {
    pub(super) fn new(settings: PeerSettings, store: Store<RealDisk>) -> Switchboard {
        Switchboard {
            own: Mutex::new(settings.own.clone()),
            settings,
            store,
            sink: OnceLock::new(),
            links: Mutex::default(),
            cut_off: Mutex::default(),
            next_id: AtomicU64::new(1),
            repeats: Repeats::about(About::Peers),
            learner_lines: LearnerLines::default(),
            unsent_total: Arc::default(),
            members: Mutex::default(),
            unreachable: Mutex::default(),
            to_flush: Mutex::default(),
            received: Mutex::default(),
            freed: Notify::new(),
        }
    }

    pub(super) fn set_sink(&self, sink: Sink) {
        // Whoever comes second keeps the first: there is one thread, and it starts once.
        let _ = self.sink.set(sink);
    }

    /// Tells the machine what happened. Only the thread of the peer links calls this, so the order is
    /// that of the events.
    pub(super) fn report(&self, inputs: Vec<Input>) {
        if let Some(sink) = self.sink.get() {
            sink(inputs);
        }
    }

    pub(super) fn own(&self) -> OwnAddresses {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that is news.
    pub(super) fn set_own(&self, own: OwnAddresses) -> bool {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != own;
        *known = own;
        is_news
    }

    /// Has the system look for peers that vanished, if that is wanted. It may fail: silence is noticed
    /// by the machine as well.
    pub(super) fn keep_alive(&self, stream: &TcpStream) {
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

    /// Ends every connection, whoever still holds on to it.
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

    /// Members of the first configuration that names them count; the others add what it does not name.
    pub(super) fn set_members<'m>(&self, configs: impl IntoIterator<Item = &'m Membership>) {
        let mut members = BTreeMap::new();
        for config in configs {
            for (id, member) in &config.members {
                members.entry(*id).or_insert_with(|| member.addresses.clone());
            }
        }
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Whether a server is in one of the configurations.
    pub(super) fn is_member(&self, id: ServerId) -> bool {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Whether a line about how this server is brought up to date may be written, and how many were
    /// not since the last one.
    pub(super) fn may_log_sync(&self, server: Option<ServerId>) -> Option<u64> {
        let member = server.filter(|id| self.is_member(*id));
        self.learner_lines.admits(member, Instant::now())
    }

    /// Notes how an attempt to dial a member has ended.
    pub(super) fn note_dialed(&self, id: ServerId, outcome: Result<(), String>) {
        let mut unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => drop(unreachable.remove(&id)),
            Err(why) => drop(unreachable.insert(id, why)),
        }
    }

    /// The addresses at the other ends of the connections over which votes are exchanged with this
    /// server. A connection that only claims to be this server's, and is about to be refused, does
    /// not count.
    pub(super) fn election_ips(&self, id: ServerId) -> Vec<IpAddr> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let elections = links.values().filter(|link| link.port == Port::Election);
        let its = elections.filter(|link| link.peer_id() == Some(id) && link.is_at_home());
        its.map(|link| link.peer.ip().to_canonical()).collect()
    }

    /// Which members votes can be exchanged with now.
    pub(super) fn in_touch(&self) -> BTreeSet<ServerId> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let elections = links.values().filter(|link| link.port == Port::Election);
        elections.filter_map(|link| link.peer_id()).collect()
    }

    pub(super) fn why_unreachable(&self, id: ServerId) -> Option<String> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Where a member can be dialled.
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

    /// What to say of somebody who has opened a connection as a member, if there is a doubt.
    pub(super) fn doubt(&self, opening: &Opening) -> Option<String> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        doubt_about(opening, members.get(&opening.from)?)
    }

    pub(super) fn keep_tree(&self, link: LinkId, tree: ReceivedTree) {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        *received = Some((link, tree));
    }

    /// Nobody will ask for it any more.
    pub(super) fn drop_tree(&self) {
        let left = self.received.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its file goes with it, outside of the lock.
        drop(left);
    }

    pub(super) fn take_tree(&self, link: LinkId) -> Option<ReceivedTree> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.take_if(|(from, _)| *from == link).map(|(_, tree)| tree)
    }
}

/// Somebody calls itself a member and says that it listens elsewhere: most likely it is a second server with that
/// number. Only ports are compared, for names and addresses have many forms.
fn doubt_about(opening: &Opening, known: &[PeerAddress]) -> Option<String> {
    let port = |address: &String| address.rsplit(':').next()?.parse::<u16>().ok();
    let said: Vec<u16> = opening.addresses.iter().filter_map(port).collect();
    let is_known = |port: &u16| known.iter().any(|address| address.election_port == *port);
    let other = said.first().filter(|_| !said.iter().any(is_known))?;
    Some(format!(
        "somebody who listens on port {other} calls itself server {}, which is a member on port {}: do two \
         servers have the same number (myid)?",
        opening.from,
        known.first()?.election_port
    ))
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_with_a_members_number_is_noticed_by_its_port() {
        let known =
            [PeerAddress { host: "db1".to_owned(), quorum_port: 2888, election_port: 3888 }];
        let doubt = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            doubt_about(&Opening { from: ServerId(1), addresses }, &known)
        };
        assert_eq!(doubt(&["10.0.0.7:3888"]), None);
        assert_eq!(doubt(&["[fe80::1]:4000", "db1:3888"]), None);
        assert_eq!(doubt(&[]), None);
        assert!(doubt(&["10.0.0.7:4888"]).is_some_and(|line| line.contains("(myid)")));
    }
}
