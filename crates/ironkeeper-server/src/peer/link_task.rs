//! The task of one link, on the thread of the peer links.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_engine::snapshot::Slice;
use ironkeeper_node::{Intake, TREE_STEP_BYTES};
use ironkeeper_proto::{Packet, ServerId};
use ironkeeper_zab::{Hangup, Input, Port};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use super::dial;
use super::link::{End, Link};
use super::outbox::Sent;
use super::places::Place;
use super::port_name;
use super::switchboard::Switchboard;
use super::tree_out::OutgoingTree;
use crate::rate_limited::Admitted;
use crate::wire::Reader;

/// The maximum time for sending the last bytes after ZAB has closed the link.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The maximum time for resolving the names of a member that has dialled us.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);

/// If an outbox with this many bytes is dropped, memory is returned to the operating system.
const LARGE_OUTBOX_BYTES: usize = 1 << 20;

/// Serves a link until it ends. `announce` notifies ZAB of the link; the end of a link that is not
/// announced yet, because its first message has not arrived, is not reported either. `place` is the
/// permit of an accepted connection, whose first message has to arrive in time.
pub(super) async fn run(
    board: Arc<Switchboard>,
    link: Arc<Link>,
    reader: Reader,
    intake: Intake,
    announce: Option<Input>,
    place: Option<Place>,
) {
    board.insert(&link);
    let mut task = LinkTask {
        announced: announce.is_some(),
        board,
        link,
        reader,
        intake,
        unnamed_until: None,
        place,
        tree: None,
    };
    if task.place.is_some() {
        task.unnamed_until = Some(Instant::now() + task.board.settings.opening_timeout);
    }
    if let Some(announce) = announce {
        task.board.report(vec![announce]);
    }
    let end = task.serve().await;
    let board = Arc::clone(&task.board);
    let was_large = task.link.side().outbox.unsent_bytes() > LARGE_OUTBOX_BYTES;
    task.end(end).await;
    if was_large {
        board.freed.notify_one();
    }
}

struct LinkTask {
    board: Arc<Switchboard>,
    link: Arc<Link>,
    reader: Reader,
    intake: Intake,
    announced: bool,
    /// The deadline for the peer's first message; `None` after it has arrived.
    unnamed_until: Option<Instant>,
    /// The permit, if the peer has dialled us.
    place: Option<Place>,
    tree: Option<TreeBeingSent>,
}

struct TreeBeingSent {
    tree: OutgoingTree,
    slice: Vec<u8>,
    sent: usize,
    /// Bytes of the snapshot that were not reported yet.
    unreported: usize,
    /// Bytes of the snapshot sent so far.
    total: u64,
    is_last: bool,
}

/// The tree was replaced while its snapshot was being sent.
const TREE_LOST: &str = "the tree of the snapshot was replaced";

/// The reason why a link has ended.
enum Ended {
    HungUp(Hangup),
    Gone,
    Failed(String),
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
                let mut side = self.link.side();
                if let Some(end) = side.end.take() {
                    return match end {
                        End::HungUp(reason) => Ended::HungUp(reason),
                        End::TooSlow => Ended::Failed("the peer does not read".into()),
                        End::Broken(error) => Ended::Failed(error.to_string()),
                        End::Crowded => {
                            Ended::Failed("closed to make room for other connections".into())
                        }
                        End::CutOff => Ended::Failed("cut off by a test".into()),
                    };
                }
                (side.task_sends, std::mem::take(&mut side.receive_tree))
            };
            if receive_tree {
                // The bytes read after the SNAP packet are the beginning of the snapshot.
                if let Err(broken) = self.intake.receive_tree(&self.board.store) {
                    return Ended::Failed(broken.to_string());
                }
                if let Err(ended) = self.take_in().await {
                    return ended;
                }
            }
            match self.next(task_sends).await {
                Event::Woken => {}
                Event::Read(Ok(0)) => return Ended::Gone,
                Event::Read(Ok(_)) => {
                    if let Err(ended) = self.take_in().await {
                        return ended;
                    }
                }
                Event::Writable(Ok(())) => {
                    if let Err(error) = self.send() {
                        return Ended::Failed(error.to_string());
                    }
                }
                Event::Read(Err(error)) | Event::Writable(Err(error)) => {
                    return Ended::Failed(error.to_string());
                }
                Event::Late => return Ended::Failed("no first message in time".into()),
            }
        }
    }

    async fn next(&mut self, task_sends: bool) -> Event {
        let reads = self.intake.wants_bytes();
        if reads {
            self.intake.make_room();
        }
        let late = async {
            match self.unnamed_until {
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
    async fn take_in(&mut self) -> Result<(), Ended> {
        let mut inputs = Vec::new();
        let outcome = self.intake.decode(self.link.id(), &mut inputs);
        if let Some(received) = self.intake.received.take() {
            self.board.keep_tree(self.link.id(), received);
        }
        if self.unnamed_until.is_some()
            && let Some(first) = inputs.first_mut()
        {
            self.unnamed_until = None;
            if let Input::Opened { opening, from_its_address, .. } = first {
                let ip = self.link.peer.ip().to_canonical();
                *from_its_address = is_at_home(&self.board, opening.from, ip).await;
                if *from_its_address {
                    self.link.set_at_home();
                }
            }
            self.name(first)?;
            self.announced = true;
        }
        // Packets before the malformed bytes are valid.
        if !inputs.is_empty() {
            self.board.report(inputs);
        }
        if let Err(broken) = &outcome {
            let addr = self.ip();
            let line = format!("malformed from {addr}: {broken}");
            let admitted = self.board.line_limit.admit_kind("malformed", line, now());
            if let Some(Admitted { suppressed }) = admitted {
                tracing::warn!(%addr, error = %broken, suppressed, "malformed bytes from a peer");
            }
        }
        outcome.map_err(|broken| Ended::Failed(broken.to_string()))
    }

    /// Records the server id in the first message of a server that has dialled us.
    fn name(&mut self, first: &Input) -> Result<(), Ended> {
        let id = match first {
            Input::Opened { opening, .. } => {
                self.board.check_opening(opening);
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
            if self.board.is_cut_off(id) {
                return Err(Ended::Gone);
            }
        }
        let is_member = id.is_some_and(|id| self.board.is_member(id));
        if !is_member {
            self.link.set_stranger();
        }
        match &self.place {
            Some(place) if !place.name(id, is_member) => {
                Err(Ended::Failed("too many connections of non-members".into()))
            }
            _ => Ok(()),
        }
    }

    /// Sends as much as the kernel accepts: slices of a snapshot, or the outbox.
    fn send(&mut self) -> io::Result<()> {
        if let Some(sending) = &mut self.tree {
            let rest = &sending.slice[sending.sent..];
            if !rest.is_empty() {
                let count = self.link.writer.try_write(rest)?;
                sending.sent += count;
                sending.unreported += count;
                sending.total += count as u64;
            }
            if sending.unreported >= TREE_STEP_BYTES {
                sending.unreported = 0;
                self.board.report(vec![Input::TreeMoved { link: self.link.id() }]);
            }
            if sending.sent < sending.slice.len() {
                return Ok(());
            }
            // One slice at a time: other links have their turn.
            if !sending.is_last {
                return sending.next_slice();
            }
            let (server, bytes) = (self.link.peer_id(), sending.total);
            if let Some(Admitted { suppressed }) = self.board.may_log_sync(server) {
                let (peer, addr) = (server.map(|id| id.0), self.link.peer);
                tracing::info!(peer, %addr, bytes, suppressed, "snapshot sent to a learner");
            }
            self.tree = None;
            self.link.side().outbox.tree_sent();
        }
        let tree = {
            let mut side = self.link.side();
            match self.link.send(&mut side) {
                Some(Sent::All) => {
                    side.task_sends = false;
                    None
                }
                Some(Sent::Tree) => side.outbox.take_tree(),
                Some(Sent::Blocked) | None => None,
            }
        };
        // The slice is read without the link's lock, because it waits for the gate.
        if let Some(tree) = tree {
            let slice = Vec::new();
            let mut sending =
                TreeBeingSent { tree, slice, sent: 0, unreported: 0, total: 0, is_last: false };
            sending.next_slice()?;
            self.tree = Some(sending);
        }
        Ok(())
    }

    async fn end(mut self, ended: Ended) {
        let (id, port) = (self.link.id(), self.link.port);
        self.board.remove(id);
        // A partly sent snapshot is returned before ZAB can send it again.
        let tree_cut = self.tree.take().is_some();
        match ended {
            Ended::HungUp(reason) => {
                self.log_hangup(reason);
                // Without this the last packets would be lost.
                if !tree_cut {
                    let _ = timeout(LAST_WORDS, self.say_last_words()).await;
                }
                self.link.close();
            }
            Ended::Gone | Ended::Failed(_) => {
                match ended {
                    Ended::Failed(error) => self.log_lost(&error),
                    _ if port == Port::Quorum && self.link.peer_id().is_some() => {
                        self.log_lost("closed by the peer");
                    }
                    _ => {
                        let (addr, port) = (self.link.peer, port_name(port));
                        tracing::debug!(%addr, port, "peer link closed by the peer");
                    }
                }
                self.link.close();
                if self.announced {
                    self.board.report(vec![Input::Closed { link: id }]);
                }
            }
        }
    }

    /// Logs a lost connection. Any server can open one and have it fail, so such lines are limited.
    fn log_lost(&self, error: &str) {
        let (peer, addr, port) = (self.peer(), self.ip(), port_name(self.link.port));
        let line = format!("lost {peer:?} at {addr}, {port}: {error}");
        let is_member = self.link.peer_id().is_some_and(|id| self.board.is_member(id));
        let limit = &self.board.line_limit;
        // Members are few, so each has its own limit.
        let admitted = match is_member {
            true => limit.admit(line, now()),
            false => limit.admit_kind("lost", line, now()),
        };
        if let Some(Admitted { suppressed }) = admitted {
            tracing::info!(peer, %addr, port, error, suppressed, "peer link lost");
        }
    }

    /// Logs that ZAB has closed the link: a warning if the peer is misconfigured.
    fn log_hangup(&self, reason: Hangup) {
        let (peer, addr, port) = (self.peer(), self.ip(), port_name(self.link.port));
        let Some(text) = misconfiguration(reason) else {
            return tracing::debug!(peer, %addr, port, ?reason, "peer link closed");
        };
        let line = format!("closed {peer:?} at {addr}: {text}");
        let admitted = self.board.line_limit.admit_kind(kind(reason), line, now());
        if let Some(Admitted { suppressed }) = admitted {
            tracing::warn!(peer, %addr, port, reason = text, suppressed, "peer rejected");
        }
    }

    /// Returns the id of the peer, if it is known.
    fn peer(&self) -> Option<i64> {
        self.link.peer_id().map(|id| id.0)
    }

    /// Returns the address of the peer without the port, which changes with each connection.
    fn ip(&self) -> IpAddr {
        self.link.peer.ip().to_canonical()
    }

    /// Passes the rest of the outbox to the kernel, up to a snapshot, which is not needed any more.
    async fn say_last_words(&mut self) {
        loop {
            let sent = self.link.send(&mut self.link.side());
            if sent != Some(Sent::Blocked) || self.link.writer.writable().await.is_err() {
                return;
            }
        }
    }
}

/// Returns whether `ip` is an address of this server, if it is a member. Without an election link
/// to the member there is nothing to compare: returns true without resolving a name.
async fn is_at_home(board: &Switchboard, id: ServerId, ip: IpAddr) -> bool {
    let known = board.election_ips(id);
    if !board.is_member(id) || known.is_empty() || known.contains(&ip) {
        return true;
    }
    let endpoints = board.endpoints(id, Port::Election);
    timeout(LOOK_UP_MAX, dial::any_is_at(endpoints, ip)).await.unwrap_or(false)
}

/// Returns the present time, for the limits of log lines.
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Returns the reason for the operator when we close a link because the peer is misconfigured.
fn misconfiguration(reason: Hangup) -> Option<String> {
    Some(match reason {
        Hangup::OwnId => "the id of this server, a duplicate myid".to_owned(),
        Hangup::NewerConfig => "a newer membership than the one in force here".to_owned(),
        Hangup::LearnerAhead => "transactions that this server does not have".to_owned(),
        Hangup::Connected => "a connected peer has this id, possibly a duplicate myid".to_owned(),
        Hangup::OtherAddress => {
            "a member with this id is connected from another address, possibly a duplicate myid"
                .to_owned()
        }
        Hangup::Protocol(what) => format!("protocol violation: {what}"),
        Hangup::Silent => "timed out: no packets or no acknowledgements".to_owned(),
        _ => return None,
    })
}

/// Returns the kind of a closed link; warnings of one kind share a limit.
fn kind(reason: Hangup) -> &'static str {
    match reason {
        Hangup::OwnId => "own id",
        Hangup::NewerConfig => "newer configuration",
        Hangup::LearnerAhead => "learner ahead",
        Hangup::Connected => "connected already",
        Hangup::OtherAddress => "other address",
        Hangup::Silent => "silent",
        _ => "protocol",
    }
}

impl TreeBeingSent {
    fn next_slice(&mut self) -> io::Result<()> {
        self.slice.clear();
        self.sent = 0;
        match self.tree.next_slice(&mut self.slice) {
            Slice::More => {}
            Slice::Done => self.is_last = true,
            Slice::Lost => return Err(io::Error::other(TREE_LOST)),
        }
        Ok(())
    }
}
