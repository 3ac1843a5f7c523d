//! The task of one link, on the thread of the peer links.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_node::Intake;
use ironkeeper_proto::{Packet, ServerId};
use ironkeeper_zab::{Input, Port};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use super::dial;
use super::link::Link;
use super::link_end::{self, Ended, Loss};
use super::outbox::Sent;
use super::permits::Permit;
use super::registry::Registry;
use super::snapshot_sender::SnapshotSender;
use crate::rate_limited::Admitted;
use crate::wire::Reader;

/// The maximum time for resolving the names of a member that has dialled us.
const LOOKUP_MAX: Duration = Duration::from_secs(1);

/// If an outbox with this many bytes is dropped, memory is returned to the operating system.
const LARGE_OUTBOX_BYTES: usize = 1 << 20;

/// Serves a link until it ends. `announce` notifies ZAB of the link; the end of a link that is not
/// announced yet, because its first message has not arrived, is not reported either. `permit` is
/// that of an accepted connection, whose first message has to arrive in time.
pub(super) async fn run(
    registry: Arc<Registry>,
    link: Arc<Link>,
    reader: Reader,
    intake: Intake,
    announce: Option<Input>,
    permit: Option<Permit>,
) {
    registry.insert(&link);
    let mut task = LinkTask {
        announced: announce.is_some(),
        registry,
        link,
        reader,
        intake,
        first_message_until: None,
        permit,
        snapshot: None,
    };
    if task.permit.is_some() {
        task.first_message_until = Some(Instant::now() + task.registry.settings.opening_timeout);
    }
    if let Some(announce) = announce {
        task.registry.report(vec![announce]);
    }
    let ended = task.serve().await;
    let LinkTask { registry, link, snapshot, announced, .. } = task;
    let was_large = link.state().outbox.unsent_bytes() > LARGE_OUTBOX_BYTES;
    registry.remove(link.id());
    // A partly sent snapshot is returned before ZAB can send it again.
    let snapshot_cut = snapshot.is_some();
    drop(snapshot);
    match ended {
        Ended::HungUp(reason) => {
            link_end::close_as_requested(&registry, &link, reason, snapshot_cut).await;
        }
        Ended::Lost(loss) => {
            link_end::close_lost(&registry, &link, &loss);
            if announced {
                registry.report(vec![Input::Closed { link: link.id() }]);
            }
        }
    }
    if was_large {
        registry.freed.notify_one();
    }
}

struct LinkTask {
    registry: Arc<Registry>,
    link: Arc<Link>,
    reader: Reader,
    intake: Intake,
    announced: bool,
    /// The deadline for the peer's first message; `None` after it has arrived.
    first_message_until: Option<Instant>,
    /// The permit, if the peer has dialled us.
    permit: Option<Permit>,
    snapshot: Option<SnapshotSender>,
}

enum Event {
    Woken,
    Read(io::Result<usize>),
    Writable(io::Result<()>),
    Late,
}

impl LinkTask {
    async fn serve(&mut self) -> Ended {
        loop {
            let (task_sends, receive_tree) = {
                let mut state = self.link.state();
                if let Some(end) = state.end.take() {
                    return Ended::from(end);
                }
                (state.task_sends, std::mem::take(&mut state.receive_tree))
            };
            if receive_tree {
                // The bytes read after the SNAP packet are the beginning of the snapshot.
                if let Err(broken) = self.intake.receive_tree(&self.registry.store) {
                    return Ended::failed(broken.to_string());
                }
                if let Err(ended) = self.receive().await {
                    return ended;
                }
            }
            match self.next_event(task_sends).await {
                Event::Woken => {}
                Event::Read(Ok(0)) => return Loss::ClosedByPeer.into(),
                Event::Read(Ok(_)) => {
                    if let Err(ended) = self.receive().await {
                        return ended;
                    }
                }
                Event::Writable(Ok(())) => {
                    if let Err(error) = self.send() {
                        return Ended::failed(error.to_string());
                    }
                }
                Event::Read(Err(error)) | Event::Writable(Err(error)) => {
                    return Ended::failed(error.to_string());
                }
                Event::Late => return Ended::failed("no first message in time"),
            }
        }
    }

    async fn next_event(&mut self, task_sends: bool) -> Event {
        let reads = self.intake.wants_bytes();
        if reads {
            self.intake.make_room();
        }
        let late = async {
            match self.first_message_until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.link.signal.notified() => Event::Woken,
            outcome = self.link.writer.writable(), if task_sends => Event::Writable(outcome),
            count = self.reader.read_buf(&mut self.intake.unread), if reads => Event::Read(count),
            () = late => Event::Late,
        }
    }

    /// Reports all complete packets that have arrived.
    async fn receive(&mut self) -> Result<(), Ended> {
        let mut inputs = Vec::new();
        let outcome = self.intake.decode(self.link.id(), &mut inputs);
        if let Some(received) = self.intake.received.take() {
            self.registry.keep_snapshot(self.link.id(), received);
        }
        if self.first_message_until.is_some()
            && let Some(first) = inputs.first_mut()
        {
            self.first_message_until = None;
            if let Input::Opened { opening, from_its_address, .. } = first {
                let ip = self.link.peer.ip().to_canonical();
                *from_its_address = is_at_member_address(&self.registry, opening.from, ip).await;
                if *from_its_address {
                    self.link.set_at_member_address();
                }
            }
            self.identify(first)?;
            self.announced = true;
        }
        // Packets before the malformed bytes are valid.
        if !inputs.is_empty() {
            self.registry.report(inputs);
        }
        if let Err(broken) = &outcome {
            let addr = link_end::ip(&self.link);
            let line = format!("malformed from {addr}: {broken}");
            let admitted =
                self.registry.line_limit.admit_kind("malformed", line, Instant::now().into_std());
            if let Some(Admitted { suppressed }) = admitted {
                tracing::warn!(%addr, error = %broken, suppressed, "malformed bytes from a peer");
            }
        }
        outcome.map_err(|broken| Ended::failed(broken.to_string()))
    }

    /// Records the server id in the first message of a server that has dialled us.
    fn identify(&mut self, first: &Input) -> Result<(), Ended> {
        let id = match first {
            Input::Opened { opening, .. } => {
                self.registry.check_opening(opening);
                Some(opening.from)
            }
            Input::Packet {
                packet: Packet::FollowerInfo { info, .. } | Packet::ObserverInfo { info, .. },
                ..
            } => info.server,
            _ => None,
        };
        if let Some(id) = id {
            self.link.set_peer_id(id);
            if self.registry.is_cut_off(id) {
                return Err(Loss::ClosedByPeer.into());
            }
        }
        let is_member = id.is_some_and(|id| self.registry.is_member(id));
        if !is_member {
            self.link.set_non_member();
        }
        match &self.permit {
            Some(permit) if !permit.assign(id, is_member) => {
                Err(Ended::failed("too many connections of non-members"))
            }
            _ => Ok(()),
        }
    }

    /// Sends as much as the stream accepts: slices of a snapshot, or the outbox.
    fn send(&mut self) -> io::Result<()> {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.send(&self.link.writer)?;
            if snapshot.takes_step() {
                self.registry.report(vec![Input::TreeMoved { link: self.link.id() }]);
            }
            if !snapshot.advance()? {
                return Ok(());
            }
            let (server, bytes) = (self.link.peer_id(), snapshot.total());
            if let Some(Admitted { suppressed }) = self.registry.may_log_sync(server) {
                let (peer, addr) = (server.map(|id| id.0), self.link.peer);
                tracing::info!(peer, %addr, bytes, suppressed, "snapshot sent to a learner");
            }
            self.snapshot = None;
            self.link.state().outbox.snapshot_sent();
        }
        let tree = {
            let mut state = self.link.state();
            match self.link.send(&mut state) {
                Some(Sent::All) => {
                    state.task_sends = false;
                    None
                }
                Some(Sent::Snapshot) => state.outbox.take_snapshot(),
                Some(Sent::Blocked) | None => None,
            }
        };
        // Without the link's lock, because the first slice waits for the gate.
        if let Some(tree) = tree {
            self.snapshot = Some(SnapshotSender::new(tree)?);
        }
        Ok(())
    }
}

/// Returns whether `ip` is an address of this server, if it is a member. Without an election link
/// to the member there is nothing to compare: returns true without resolving a name.
async fn is_at_member_address(registry: &Registry, id: ServerId, ip: IpAddr) -> bool {
    let known = registry.election_ips(id);
    if !registry.is_member(id) || known.is_empty() || known.contains(&ip) {
        return true;
    }
    let endpoints = registry.endpoints(id, Port::Election);
    timeout(LOOKUP_MAX, dial::any_is_at(endpoints, ip)).await.unwrap_or(false)
}
