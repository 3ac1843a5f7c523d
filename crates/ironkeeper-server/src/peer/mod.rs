//! The peer links: connections to the other servers of an ensemble, in Apache's protocol.
//!
//! This module performs the link operations of `ironkeeper-zab` ([`LinkOp`]: dial, send, close) and
//! passes events to it as inputs. It handles sockets and bytes, and makes no protocol decisions.
//!
//! ```text
//! the thread that runs the engine ──perform──► outbox of a link ──flush──► kernel
//! thread `peers`: one task per link reads ──► a batch of inputs ──► the sink runs the engine
//! ```
//! A write on a leader with two followers: the thread that prepared it encodes one PROPOSAL into
//! each outbox and passes both to the kernel, with two system calls and no wake-up, while the log
//! thread executes its fsync. The thread `peers` receives the ACKs, runs the engine and sends the
//! COMMITs. Under load, all writes of a batch share these steps.
//!
//! | file | idea |
//! | --- | --- |
//! | `registry` | links by id, addresses of members |
//! | `link`, `outbox` | sending, from any thread |
//! | `link_task` | the task of a link; `ironkeeper_node::Intake` decodes its bytes to inputs |
//! | `link_end` | the close of a link and its log line |
//! | `dial`, `listen`, `permits` | dialled and accepted links, limits on accepted links |
//! | `tree_out`, `snapshot_sender` | snapshots that are sent to learners |
//!
//! Bounds: a packet by `jute.maxbuffer`, a frame on the election port by 512 KiB, the unsent bytes
//! of a link by [`PeerSettings::unsent_bytes_max`], a snapshot by the disk, connections by
//! `permits`.

mod dial;
mod link;
mod link_end;
mod link_task;
mod listen;
mod outbox;
mod permits;
mod registry;
mod settings;
mod snapshot_sender;
mod tree_out;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ironkeeper_node::{Expect, Intake, ReceivedTree};
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_zab::{Input, LinkId, LinkOp, Port};
use thiserror::Error;
use tokio::sync::mpsc;

use link::Link;
use listen::Ports;
use registry::Registry;
pub use settings::{Endpoint, OwnAddresses, PeerSettings};
use tree_out::OutgoingTree;

use crate::rate_limited::Admitted;
use crate::unused_memory;
use crate::wire::{Reader, Stream, Writer};
pub use tree_out::{OwnTree, TreeSource};

/// The longest buffer in a packet of a leader. An Ironkeeper leader sends none longer than the
/// requests of clients permit.
const LEADER_FIELD_BYTES_MAX: usize = 64 << 20;

/// Why the peer links could not be set up.
#[derive(Debug, Error)]
#[error("cannot listen for other servers on {address}: {error}")]
pub struct PeerError {
    pub address: String,
    pub error: io::Error,
}

impl PeerError {
    fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

/// See [`PeerLinks::learner_to_log`].
#[derive(Clone, Copy, Debug)]
pub struct LearnerToLog {
    pub server: Option<ServerId>,
    pub address: SocketAddr,
    /// The number of log lines suppressed since the last one, if any were.
    pub suppressed: Option<u64>,
}

/// A command for the thread `peers`.
#[derive(Debug)]
enum Command {
    Dial {
        peer: ServerId,
        port: Port,
        hint: Option<String>,
    },
    /// Our own addresses have changed.
    Rebind,
    Stop,
}

/// The links to the other servers. All threads may use them.
#[derive(Debug)]
pub struct PeerLinks {
    registry: Arc<Registry>,
    commands: mpsc::UnboundedSender<Command>,
    /// The state that [`PeerLinks::run`] takes.
    start: Mutex<Option<Start>>,
}

#[derive(Debug)]
struct Start {
    commands: mpsc::UnboundedReceiver<Command>,
    ports: Ports,
}

impl PeerLinks {
    /// Binds the ports. Connections are accepted and dialled only in [`PeerLinks::run`].
    pub fn bind(settings: PeerSettings, store: Store<RealDisk>) -> Result<PeerLinks, PeerError> {
        let ports = Ports::open(&settings.own, settings.bind_tries)?;
        let (sender, commands) = mpsc::unbounded_channel();
        Ok(PeerLinks {
            registry: Arc::new(Registry::new(settings, store)),
            commands: sender,
            start: Mutex::new(Some(Start { commands, ports })),
        })
    }

    /// Sets the addresses of the members, from the proposed membership and the one in force. If
    /// both contain a member, the first in the order of `configs` counts.
    pub fn set_members<'m>(&self, configs: impl IntoIterator<Item = &'m Membership>) {
        self.registry.set_members(configs);
    }

    /// Changes the addresses of this server. Open links stay open; only ports that differ are
    /// closed and opened.
    pub fn rebind(&self, own: OwnAddresses) {
        if self.registry.set_own(own) {
            // An error means that the thread has ended, so no port is open.
            let _ = self.commands.send(Command::Rebind);
        }
    }

    /// Simulates a partition between this server and these members, for tests: links are closed,
    /// and new ones fail. An empty set ends the partition.
    pub fn cut_off(&self, members: impl IntoIterator<Item = ServerId>) {
        self.registry.cut_off(members.into_iter().collect());
    }

    /// Runs the thread until [`PeerLinks::stop`]. `sink` receives the inputs for ZAB, in batches
    /// and in order; it may call functions of this type.
    pub fn run(&self, sink: impl Fn(Vec<Input>) + Send + Sync + 'static) -> io::Result<()> {
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Start { mut commands, mut ports }) = start else { return Ok(()) };
        self.registry.set_sink(Arc::new(sink));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let registry = Arc::clone(&self.registry);
            tokio::spawn(async move { unused_memory::release_when(&registry.freed).await });
            ports.serve(&self.registry);
            while let Some(command) = commands.recv().await {
                match command {
                    Command::Dial { peer, port, hint } => {
                        let registry = Arc::clone(&self.registry);
                        tokio::spawn(dial_peer(registry, peer, port, hint));
                    }
                    Command::Rebind => ports.change(&self.registry),
                    Command::Stop => break,
                }
            }
        });
        // The resolution of a host name cannot be interrupted, and its result is not needed.
        runtime.shutdown_background();
        self.registry.close_all();
        Ok(())
    }

    /// Records the server at the other end of a link, for log lines, when it has sent its id.
    pub fn introduce(&self, link: LinkId, peer: ServerId) {
        if let Some(link) = self.registry.link(link) {
            link.set_peer_id(peer);
        }
    }

    /// Returns the server at the other end of a link, if its id is known.
    pub fn server_of(&self, link: LinkId) -> Option<ServerId> {
        self.registry.link(link)?.peer_id()
    }

    /// Returns the learner at the other end of a link, for a log line about its synchronization.
    /// `None` if the link is closed, or if the rate limit suppresses the line.
    pub fn learner_to_log(&self, link: LinkId) -> Option<LearnerToLog> {
        let link = self.registry.link(link)?;
        let Admitted { suppressed } = self.registry.may_log_sync(link.peer_id())?;
        Some(LearnerToLog { server: link.peer_id(), address: link.peer, suppressed })
    }

    /// Returns the members among `ids` without an election link, each with its addresses and the
    /// reason.
    pub fn out_of_touch(&self, ids: impl IntoIterator<Item = ServerId>) -> Vec<(ServerId, String)> {
        let linked_members = self.registry.linked_members();
        let away = ids.into_iter().filter(|id| !linked_members.contains(id));
        away.map(|id| {
            let at: Vec<String> = self
                .registry
                .endpoints(id, Port::Election)
                .iter()
                .map(Endpoint::to_string)
                .collect();
            let why =
                self.registry.why_unreachable(id).unwrap_or_else(|| "not connected".to_owned());
            (id, format!("server {id} ({}): {why}", at.join(", ")))
        })
        .collect()
    }

    /// Ends [`PeerLinks::run`], which closes all connections.
    pub fn stop(&self) {
        // If the thread has ended already, its connections are closed.
        let _ = self.commands.send(Command::Stop);
    }

    /// Performs one operation. The next [`PeerLinks::flush`] sends packets and votes.
    ///
    /// Called in the order of the engine's outputs, by the thread that runs the engine.
    pub fn perform(&self, op: LinkOp) {
        let unsent_max = self.registry.settings.unsent_bytes_max;
        match op {
            LinkOp::Send { link, packet } => {
                if let Some(link) = self.registry.link(link)
                    && link.put_packet(&packet, unsent_max)
                {
                    self.registry.flush_later(link);
                }
            }
            LinkOp::Notify { link, notification } => {
                if let Some(link) = self.registry.link(link)
                    && link.put_vote(&notification, unsent_max)
                {
                    self.registry.flush_later(link);
                }
            }
            LinkOp::Dial { peer, port, hint } => {
                // An error means that the thread has ended: the server is stopping.
                let _ =
                    self.commands.send(Command::Dial { peer, port, hint: hint.map(|hint| *hint) });
            }
            LinkOp::Hangup { link, reason } => {
                drop(self.registry.take_snapshot(link));
                if let Some(link) = self.registry.remove(link) {
                    link.flush();
                    link.hang_up(reason);
                }
            }
            LinkOp::ReceiveSnapshot { link } => {
                if let Some(link) = self.registry.link(link) {
                    link.receive_tree();
                }
            }
        }
    }

    /// Passes the bytes in all outboxes to the kernel, with one call for each link, not for each
    /// packet.
    pub fn flush(&self) {
        self.registry.flush();
    }

    /// Sends a snapshot on this link, after the packets that were sent so far.
    pub fn send_snapshot(&self, link: LinkId, source: Box<dyn TreeSource>) {
        let tree = OutgoingTree::new(source);
        if let Some(link) = self.registry.link(link) {
            link.put_snapshot(tree);
        }
    }

    /// Drops a received snapshot: its leader is no longer followed.
    pub fn forget_snapshot(&self) {
        self.registry.drop_snapshot();
    }

    /// Takes the snapshot that was received on this link. Called when ZAB outputs
    /// `DurableStep::InstallSnapshot`: a later [`LinkOp::Hangup`] drops a snapshot that was not
    /// taken.
    pub fn take_snapshot(&self, link: LinkId) -> Option<ReceivedTree> {
        self.registry.take_snapshot(link)
    }
}

/// Returns the name of a port for log lines.
fn port_name(port: Port) -> &'static str {
    match port {
        Port::Election => "election",
        Port::Quorum => "quorum",
    }
}

/// Dials a member and runs the task of the link.
async fn dial_peer(registry: Arc<Registry>, peer: ServerId, port: Port, hint: Option<String>) {
    if registry.is_cut_off(peer) {
        return registry.report(vec![Input::Dialed { peer, port, link: None }]);
    }
    let mut endpoints = registry.endpoints(peer, port);
    // The hint is the address that the server sent of itself. It is dialled last: it helps if the
    // membership does not contain the server, or an outdated address of it.
    let hint = hint.as_deref().and_then(dial::endpoint);
    let hint = hint.filter(|hint| !endpoints.contains(hint));
    let within = match port {
        Port::Election => registry.settings.election_dial_timeout,
        Port::Quorum => registry.settings.quorum_dial_timeout,
    };
    let mut dialed = dial::dial(&endpoints, within).await;
    if let (Err(_), Some(hint)) = (&dialed, hint) {
        dialed = dial::dial(std::slice::from_ref(&hint), within).await;
        endpoints.push(hint);
    }
    let outcome = match dialed {
        Ok(stream) => open(&registry, stream, port).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(Opened { address, reader, writer, expect }) => {
            let total = Arc::clone(&registry.unsent_total);
            let link = Arc::new(Link::new(registry.next_id(), port, address, writer, total));
            link.set_peer_id(peer);
            link.set_at_member_address();
            registry.note_dialed(peer, Ok(()));
            // The history may contain a transaction that a server with a larger limit logged. A
            // snapshot with the same data would be accepted, so our limit must not reject it.
            let field_max = registry.settings.field_bytes_max.max(LEADER_FIELD_BYTES_MAX);
            let intake = Intake::new(expect, field_max);
            let dialed = Input::Dialed { peer, port, link: Some(link.id()) };
            link_task::run(registry, link, reader, intake, Some(dialed), None).await;
        }
        Err(error) => {
            if port == Port::Election {
                registry.note_dialed(peer, Err(error.to_string()));
            }
            let addrs = endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ");
            let (peer_id, port_name) = (peer.0, port_name(port));
            tracing::debug!(peer = peer_id, addrs, port = port_name, %error, "peer not reachable");
            registry.report(vec![Input::Dialed { peer, port, link: None }]);
        }
    }
}

/// A dialled connection on which our opening is sent.
struct Opened {
    address: SocketAddr,
    reader: Reader,
    writer: Writer,
    /// What the other server sends first.
    expect: Expect,
}

/// Sends our opening, on the election port.
async fn open(registry: &Registry, stream: Stream, port: Port) -> io::Result<Opened> {
    registry.keep_alive(&stream);
    let address = stream.peer();
    let (reader, writer) = stream.split();
    let expect = match port {
        Port::Quorum => Expect::Packets(Sender::Leader),
        Port::Election => {
            let opening = Opening { from: registry.settings.me, addresses: registry.own().opening };
            let mut bytes = Vec::new();
            opening.encode(&mut bytes);
            // In one write: Apache reads the addresses with one call and requires all of them in
            // it.
            writer.write_all(&bytes).await?;
            Expect::Notifications
        }
    };
    Ok(Opened { address, reader, writer, expect })
}

#[cfg(test)]
mod tests;
