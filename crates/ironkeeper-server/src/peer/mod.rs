//! The peer links: connections to the other servers of an ensemble, in Apache's protocol.
//!
//! The machine of `ironkeeper-zab` says what to do with its outputs (dial, send, hang up) and is told
//! what happened with its inputs. This module knows sockets and bytes, and decides nothing.
//!
//! ```text
//! whoever holds the engine ──perform──► outbox of a link ──flush──► kernel
//! thread `peers`: one task per link reads ──► a batch of inputs ──► the sink, which runs the engine
//! ```
//! *Sketch* of a write on a leader with two followers: the thread that judged it encodes one PROPOSAL
//! into each outbox and hands both to the kernel, two system calls and no wake-up, while the log
//! thread is at its fsync. The acknowledgements arrive at `peers`, which runs the engine itself and
//! sends the COMMITs. Under load all of this is shared by as many writes as came together.
//!
//! | file | idea |
//! | --- | --- |
//! | `switchboard` | links by name, addresses of members |
//! | `link`, `outbox` | sending, from any thread |
//! | `link_task`, `intake` | the life of a link, bytes to inputs |
//! | `dial`, `listen`, `places` | how links come to be, and which of them are kept |
//! | `tree_out`, `tree_in`, `tree_scanner` | whole trees between leader and learner |
//!
//! What is bounded: a packet by `jute.maxbuffer`, a frame by half a megabyte, what a peer leaves unread
//! by [`PeerSettings::unsent_bytes_max`], a tree by the disk, connections by `places`.

mod dial;
mod intake;
mod link;
mod link_task;
mod listen;
mod outbox;
mod places;
mod settings;
mod switchboard;
mod tree_in;
mod tree_out;
mod tree_scanner;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_store::Store;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_zab::{Input, LinkId, Output, Port};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

pub use intake::{Broken, Expect, Intake};
use link::Link;
pub use link::encode_vote;
use listen::Ports;
pub use settings::{Endpoint, OwnAddresses, PeerSettings};
use switchboard::Switchboard;
pub use tree_in::ReceivedTree;
use tree_out::OutgoingTree;

use crate::unused_memory;
pub use tree_out::{OwnTree, TreeSource};

/// The longest buffer in a packet of a leader. Ours send none that is longer than what clients may cause.
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
    pub address: std::net::SocketAddr,
    /// Lines that were not written since the last one.
    pub held_back: u64,
}

/// What only the thread itself can do.
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

/// The connections to the other servers. Usable from all threads.
#[derive(Debug)]
pub struct PeerLinks {
    board: Arc<Switchboard>,
    commands: mpsc::UnboundedSender<Command>,
    /// What the thread takes with it when it starts.
    start: Mutex<Option<Start>>,
}

#[derive(Debug)]
struct Start {
    commands: mpsc::UnboundedReceiver<Command>,
    ports: Ports,
}

impl PeerLinks {
    /// Takes hold of the ports. Nothing is accepted or dialled before [`PeerLinks::run`].
    pub fn bind(settings: PeerSettings, store: Store<RealDisk>) -> Result<PeerLinks, PeerError> {
        let ports = Ports::open(&settings.own, settings.bind_tries)?;
        let (sender, commands) = mpsc::unbounded_channel();
        Ok(PeerLinks {
            board: Arc::new(Switchboard::new(settings, store)),
            commands: sender,
            start: Mutex::new(Some(Start { commands, ports })),
        })
    }

    /// Says where the members are: those of the configuration in force, and of one that is proposed.
    pub fn set_members<'m>(&self, configs: impl IntoIterator<Item = &'m Membership>) {
        self.board.set_members(configs);
    }

    /// Our own addresses are others now. Links that are open stay so; ports are changed as far as they
    /// differ.
    pub fn rebind(&self, own: OwnAddresses) {
        if self.board.set_own(own) {
            // Without a thread nobody listens.
            let _ = self.commands.send(Command::Rebind);
        }
    }

    /// Makes it look as if the network between us and these members were gone: connections break, and
    /// new ones fail. For tests of what an ensemble does then. An empty set heals everything.
    pub fn cut_off(&self, members: impl IntoIterator<Item = ServerId>) {
        self.board.cut_off(members.into_iter().collect());
    }

    /// The thread's life, until [`PeerLinks::stop`]. What happens is told to `sink`, in batches and in
    /// order; it may call back into this.
    pub fn run(&self, sink: impl Fn(Vec<Input>) + Send + Sync + 'static) -> io::Result<()> {
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Start { mut commands, mut ports }) = start else { return Ok(()) };
        self.board.set_sink(Arc::new(sink));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let board = Arc::clone(&self.board);
            tokio::spawn(async move { unused_memory::release_when(&board.freed).await });
            ports.serve(&self.board);
            while let Some(command) = commands.recv().await {
                match command {
                    Command::Dial { peer, port, hint } => {
                        let board = Arc::clone(&self.board);
                        tokio::spawn(dial_peer(board, peer, port, hint));
                    }
                    Command::Rebind => ports.change(&self.board),
                    Command::Stop => break,
                }
            }
        });
        // A name that is being resolved cannot be interrupted, and nobody waits for it.
        runtime.shutdown_background();
        self.board.close_all();
        Ok(())
    }

    /// Names the server at the other end of a link, for the log, once it has said who it is.
    pub fn introduce(&self, link: LinkId, peer: ServerId) {
        if let Some(link) = self.board.link(link) {
            link.set_peer_id(peer);
        }
    }

    /// The server at the other end of a link, if it has named itself.
    pub fn server_of(&self, link: LinkId) -> Option<ServerId> {
        self.board.link(link)?.peer_id()
    }

    /// The learner at the other end of a link, for a line of the log about its synchronization.
    /// `None` if it is gone, or has had its lines for now.
    pub fn learner_to_log(&self, link: LinkId) -> Option<LearnerToLog> {
        let link = self.board.link(link)?;
        let held_back = self.board.may_log_sync(link.peer_id())?;
        Some(LearnerToLog { server: link.peer_id(), address: link.peer, held_back })
    }

    /// Which of these members cannot be reached now, with their addresses and the reason.
    pub fn out_of_touch(&self, ids: impl IntoIterator<Item = ServerId>) -> Vec<(ServerId, String)> {
        let in_touch = self.board.in_touch();
        let away = ids.into_iter().filter(|id| !in_touch.contains(id));
        away.map(|id| {
            let at: Vec<String> =
                self.board.endpoints(id, Port::Election).iter().map(Endpoint::to_string).collect();
            let why = self.board.why_unreachable(id).unwrap_or_else(|| "not connected".to_owned());
            (id, format!("server {id} ({}): {why}", at.join(", ")))
        })
        .collect()
    }

    /// Ends [`PeerLinks::run`]; all connections are closed.
    pub fn stop(&self) {
        // If the thread is gone already, so are its connections.
        let _ = self.commands.send(Command::Stop);
    }

    /// Does what the machine wants of the network; other outputs are none of ours. What is to be sent
    /// leaves with the next [`PeerLinks::flush`].
    ///
    /// To be called in the machine's order, that is, by whoever holds the engine.
    pub fn perform(&self, output: Output) {
        let unsent_max = self.board.settings.unsent_bytes_max;
        match output {
            Output::Send { link, packet } => {
                if let Some(link) = self.board.link(link)
                    && link.put_packet(&packet, unsent_max)
                {
                    self.board.flush_later(link);
                }
            }
            Output::Notify { link, notification } => {
                if let Some(link) = self.board.link(link)
                    && link.put_vote(&notification, unsent_max)
                {
                    self.board.flush_later(link);
                }
            }
            Output::Dial { peer, port, hint } => {
                // Without a thread there is nobody to dial.
                let _ =
                    self.commands.send(Command::Dial { peer, port, hint: hint.map(|hint| *hint) });
            }
            Output::Hangup { link, reason } => {
                drop(self.board.take_tree(link));
                if let Some(link) = self.board.remove(link) {
                    link.flush();
                    link.hang_up(reason);
                }
            }
            Output::ReceiveSnapshot { link } => {
                if let Some(link) = self.board.link(link) {
                    link.receive_tree();
                }
            }
            _ => {}
        }
    }

    /// Hands everything that was performed to the kernel: one call for each link, however many packets.
    pub fn flush(&self) {
        self.board.flush();
    }

    /// Sends a tree behind what was sent on this link so far.
    pub fn send_snapshot(&self, link: LinkId, source: Box<dyn TreeSource>) {
        let tree = OutgoingTree::new(source);
        if let Some(link) = self.board.link(link) {
            link.put_tree(tree);
        }
    }

    /// Whatever tree has arrived whole belongs to a leader that was given up.
    pub fn forget_snapshot(&self) {
        self.board.drop_tree();
    }

    /// The tree that was received on this link. To be called when the machine's `InstallSnapshot` is
    /// performed: a hang-up behind it throws away what was not taken.
    pub fn take_snapshot(&self, link: LinkId) -> Option<ReceivedTree> {
        self.board.take_tree(link)
    }
}

/// Dials, and serves what comes of it.
async fn dial_peer(board: Arc<Switchboard>, peer: ServerId, port: Port, hint: Option<String>) {
    if board.is_cut_off(peer) {
        return board.report(vec![Input::Dialed { peer, port, link: None }]);
    }
    let mut endpoints = board.endpoints(peer, port);
    // What a server says of itself helps where the configuration does not know it, or is outdated.
    let hint = hint.as_deref().and_then(dial::endpoint);
    let hint = hint.filter(|hint| !endpoints.contains(hint));
    let within = match port {
        Port::Election => board.settings.election_dial_timeout,
        Port::Quorum => board.settings.quorum_dial_timeout,
    };
    let mut dialed = dial::dial(&endpoints, within).await;
    if let (Err(_), Some(hint)) = (&dialed, hint) {
        dialed = dial::dial(std::slice::from_ref(&hint), within).await;
        endpoints.push(hint);
    }
    let outcome = match dialed {
        Ok(stream) => open(&board, stream, port).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok((stream, expect)) => match stream.peer_addr() {
            Ok(address) => {
                let (reader, writer) = stream.into_split();
                let total = Arc::clone(&board.unsent_total);
                let link = Arc::new(Link::new(board.next_id(), port, address, writer, total));
                link.set_peer_id(peer);
                link.set_at_home();
                board.note_dialed(peer, Ok(()));
                // From a leader we would take a whole tree, so a transaction that another server, with
                // other limits, has once logged must not keep us away from it.
                let field_max = board.settings.field_bytes_max.max(LEADER_FIELD_BYTES_MAX);
                let intake = Intake::new(expect, field_max);
                let dialed = Input::Dialed { peer, port, link: Some(link.id()) };
                link_task::run(board, link, reader, intake, Some(dialed), None).await;
            }
            Err(_) => board.report(vec![Input::Dialed { peer, port, link: None }]),
        },
        Err(error) => {
            if port == Port::Election {
                board.note_dialed(peer, Err(error.to_string()));
            }
            let at = endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ");
            tracing::debug!("server {peer} cannot be reached at {at} ({port:?} port): {error}");
            board.report(vec![Input::Dialed { peer, port, link: None }]);
        }
    }
}

/// Says who we are, where that is the custom.
async fn open(
    board: &Switchboard,
    mut stream: TcpStream,
    port: Port,
) -> io::Result<(TcpStream, Expect)> {
    board.keep_alive(&stream);
    if port == Port::Quorum {
        return Ok((stream, Expect::Packets(Sender::Leader)));
    }
    let opening = Opening { from: board.settings.me, addresses: board.own().opening };
    let mut bytes = Vec::new();
    opening.encode(&mut bytes);
    // In one write: Apache reads the addresses with one call and wants them whole.
    stream.write_all(&bytes).await?;
    Ok((stream, Expect::Notifications))
}

#[cfg(test)]
mod tests;
