//! A host: peer links whose inputs a test receives instead of an engine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ironkeeper_proto::membership::{Member, PeerAddress, PeerRole};
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Dirs, Store, StoreOptions};
use ironkeeper_testing::HeldPort;
use ironkeeper_zab::{Hangup, Input, LinkId, LinkOp, Port};
use tempfile::TempDir;

use crate::peer::{Endpoint, OwnAddresses, PeerLinks, PeerSettings};

/// The timeout of a failing test.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Host {
    pub id: ServerId,
    pub links: Arc<PeerLinks>,
    pub dir: TempDir,
    pub store: Store<RealDisk>,
    pub address: PeerAddress,
    inputs: Receiver<Vec<Input>>,
    taken: VecDeque<Input>,
    thread: Option<JoinHandle<()>>,
    _ports: FreePorts,
}

/// A reserved quorum port and election port on which no process listens. No other process is given
/// them while they are held.
pub struct FreePorts {
    quorum: HeldPort,
    election: HeldPort,
}

impl FreePorts {
    pub fn take() -> FreePorts {
        let take = || HeldPort::take(0).unwrap();
        FreePorts { quorum: take(), election: take() }
    }

    pub fn address(&self) -> PeerAddress {
        PeerAddress {
            host: "127.0.0.1".to_owned(),
            quorum_port: self.quorum.address().port(),
            election_port: self.election.address().port(),
        }
    }
}

pub fn own_addresses(address: &PeerAddress) -> OwnAddresses {
    let here = |port| Endpoint { host: address.host.clone(), port };
    OwnAddresses {
        election_binds: vec![here(address.election_port)],
        quorum_binds: vec![here(address.quorum_port)],
        opening: vec![here(address.election_port).to_string()],
    }
}

impl Host {
    pub fn start(id: i64) -> Host {
        Host::start_with(id, |_| {})
    }

    pub fn start_with(id: i64, adjust: impl FnOnce(&mut PeerSettings)) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let ports = FreePorts::take();
        let address = ports.address();
        let mut settings = PeerSettings::new(ServerId(id));
        settings.own = own_addresses(&address);
        adjust(&mut settings);
        let options = StoreOptions { prealloc_bytes: 0, ..StoreOptions::default() };
        let store = Store::open(RealDisk, Dirs::single(dir.path()), options).unwrap();
        let links = Arc::new(PeerLinks::bind(settings, store.clone()).unwrap());
        let (sender, inputs) = channel();
        let running = Arc::clone(&links);
        // The sink must be `Sync`, although only one thread at a time calls it.
        let sender = Mutex::new(sender);
        let thread = std::thread::spawn(move || {
            let sink = move |batch: Vec<Input>| drop(sender.lock().unwrap().send(batch));
            running.run(sink).unwrap();
        });
        let (id, taken) = (ServerId(id), VecDeque::new());
        Host { id, links, dir, store, address, inputs, taken, thread: Some(thread), _ports: ports }
    }

    /// Sets the members that this host knows, with their addresses.
    pub fn knows(&self, others: &[(ServerId, Vec<PeerAddress>)]) {
        let mut membership = Membership::default();
        for (id, addresses) in others {
            let member = Member {
                addresses: addresses.clone(),
                role: PeerRole::Participant,
                client: None,
                secure_client: None,
            };
            membership.members.insert(*id, member);
        }
        self.links.set_members([&membership]);
    }

    pub fn address(&self, port: Port) -> SocketAddr {
        let port = match port {
            Port::Election => self.address.election_port,
            Port::Quorum => self.address.quorum_port,
        };
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Waits for the next input and returns it.
    #[track_caller]
    pub fn next(&mut self) -> Input {
        while self.taken.is_empty() {
            self.taken.extend(self.inputs.recv_timeout(PATIENCE).expect("something happens"));
        }
        self.taken.pop_front().unwrap()
    }

    /// Returns the inputs that no call has returned yet, without waiting.
    pub fn rest(&mut self) -> Vec<Input> {
        self.taken.extend(self.inputs.try_iter().flatten());
        self.taken.drain(..).collect()
    }

    pub fn perform(&self, output: LinkOp) {
        self.links.perform(output);
        self.links.flush();
    }

    pub fn hang_up(&self, link: LinkId) {
        self.perform(LinkOp::Hangup { link, reason: Hangup::RoleEnded });
    }

    /// Dials another host; panics if that fails.
    #[track_caller]
    pub fn dial(&mut self, other: &Host, port: Port) -> LinkId {
        self.knows(&[(other.id, vec![other.address.clone()])]);
        self.perform(LinkOp::Dial { peer: other.id, port, hint: None });
        match self.next() {
            Input::Dialed { peer, port: at, link: Some(link) } => {
                assert_eq!((peer, at), (other.id, port));
                link
            }
            other => panic!("not dialled: {other:?}"),
        }
    }

    /// Waits for a connection to our quorum port and returns its link.
    #[track_caller]
    pub fn accepted(&mut self) -> LinkId {
        match self.next() {
            Input::Accepted { link } => link,
            other => panic!("not accepted: {other:?}"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.links.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the thread of the peer links has failed");
        }
    }
}

/// Returns a leader with its link to a learner, and the learner, which has dialled the leader's
/// quorum port, with its link to the leader.
pub fn leader_and_learner() -> (Host, LinkId, Host, LinkId) {
    let (mut leader, mut learner) = (Host::start(3), Host::start(1));
    let to_leader = learner.dial(&leader, Port::Quorum);
    let to_learner = leader.accepted();
    (leader, to_learner, learner, to_leader)
}
