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
use super::switchboard::Switchboard;
use super::tree_out::OutgoingTree;
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
const TREE_LOST: &str = "the tree it was being sent is gone";

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
                        End::TooSlow => Ended::Failed("it does not read what it is sent".into()),
                        End::Broken(error) => Ended::Failed(error.to_string()),
                        End::Crowded => Ended::Failed("other connections need its place".into()),
                        End::CutOff => Ended::Failed("it is cut off".into()),
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
                Event::Late => return Ended::Failed("it did not say who it is".into()),
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
            let ip = self.link.peer.ip();
            let line = format!("a server at {ip} was not understood: {broken}");
            self.board.repeats.warn_of("not understood", line);
        }
        outcome.map_err(|broken| Ended::Failed(broken.to_string()))
    }

    /// Records the server id in the first message of a server that has dialled us.
    fn name(&mut self, first: &Input) -> Result<(), Ended> {
        let id = match first {
            Input::Opened { opening, .. } => {
                if let Some(doubt) = self.board.doubt(opening) {
                    self.board.repeats.warn_of("doubt", doubt);
                }
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
                Err(Ended::Failed("too many servers that are no members are connected".into()))
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
            if self.board.may_log_sync(server).is_some() {
                let (server, address) = (server.map(|id| id.0), self.link.peer);
                tracing::info!(server, %address, bytes, "sent the whole tree (SNAP)");
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
        let (id, peer, port) = (self.link.id(), self.link.peer, self.link.port);
        self.board.remove(id);
        // A partly sent snapshot is returned before ZAB can send it again.
        let tree_cut = self.tree.take().is_some();
        match ended {
            Ended::HungUp(reason) => {
                match refusal(reason) {
                    Some(why) => {
                        let line = format!("hung up on {}: {why}", self.who());
                        self.board.repeats.warn_of(kind(reason), line);
                    }
                    None => tracing::debug!("hung up on {peer} ({port:?} port): {reason:?}"),
                }
                // Without this the last packets would be lost.
                if !tree_cut {
                    let _ = timeout(LAST_WORDS, self.say_last_words()).await;
                }
                self.link.close();
            }
            Ended::Gone | Ended::Failed(_) => {
                match ended {
                    Ended::Failed(why) => self.tell_failure(&why),
                    _ if port == Port::Quorum && self.link.peer_id().is_some() => {
                        self.tell_failure("closed there");
                    }
                    _ => tracing::debug!("{peer} has hung up ({port:?} port)"),
                }
                self.link.close();
                if self.announced {
                    self.board.report(vec![Input::Closed { link: id }]);
                }
            }
        }
    }

    /// Logs a lost connection. Any server can open one and have it fail, so such lines are limited.
    fn tell_failure(&self, why: &str) {
        let (who, port, now) = (self.who(), self.link.port, std::time::Instant::now());
        let line = format!("lost the connection with {who} ({port:?} port): {why}");
        let is_member = self.link.peer_id().is_some_and(|id| self.board.is_member(id));
        let repeats = &self.board.repeats;
        // Members are few, so each has its own limit.
        let line = match is_member {
            true => repeats.line(line, now),
            false => repeats.line_of("lost a connection", line, now),
        };
        if let Some(line) = line {
            tracing::info!("{line}");
        }
    }

    /// Returns the name of the other server, as far as it is known. Without its port, which changes
    /// with each connection.
    fn who(&self) -> String {
        let ip = self.link.peer.ip().to_canonical();
        match self.link.peer_id() {
            Some(id) => format!("server {id} at {ip}"),
            None => format!("a server at {ip}"),
        }
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

/// Returns the warning for the operator when we close a link because the peer is misconfigured.
fn refusal(reason: Hangup) -> Option<String> {
    Some(match reason {
        Hangup::OwnId => "it has the number of this one (myid), which must be another".to_owned(),
        Hangup::NewerConfig => {
            "it has seen a newer configuration of the members than the one in force here".to_owned()
        }
        Hangup::LearnerAhead => "it has transactions that this server does not have".to_owned(),
        Hangup::Connected => {
            "it calls itself a server that is connected already: do two servers have the same number \
             (myid)?"
                .to_owned()
        }
        Hangup::OtherAddress => {
            "it calls itself a member that is connected from another address, and its own address \
             is none of that member: do two servers have the same number (myid)?"
                .to_owned()
        }
        Hangup::Protocol(what) => format!("it broke the protocol: {what}"),
        Hangup::Silent => "it was silent, or acknowledged nothing, for too long".to_owned(),
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
