//! The life of one link, on the thread of the peer links.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_engine::snapshot::Slice;
use ironkeeper_proto::{Packet, ServerId};
use ironkeeper_zab::{Hangup, Input, Port};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout};

use super::dial;
use super::intake::{Intake, TREE_STEP_BYTES};
use super::link::{End, Link};
use super::outbox::Sent;
use super::places::Place;
use super::switchboard::Switchboard;
use super::tree_out::OutgoingTree;

/// How long the last bytes may take to leave after the machine has hung up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the names of a member may take to be resolved when it has dialled us.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);

/// Bytes in an outbox whose memory is given back to the operating system when the link ends.
const LARGE_OUTBOX_BYTES: usize = 1 << 20;

/// Serves a link until it ends. `announce` tells the machine that it is there; a link that has not
/// been announced yet, because its opening is awaited, is not told to have ended either. `place` is
/// that of a connection to one of our ports, whose first message has to come in time.
pub(super) async fn run(
    board: Arc<Switchboard>,
    link: Arc<Link>,
    reader: OwnedReadHalf,
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
    reader: OwnedReadHalf,
    intake: Intake,
    announced: bool,
    /// Until when the peer must have said who it is, while it has not.
    unnamed_until: Option<Instant>,
    /// If it has dialled us.
    place: Option<Place>,
    tree: Option<TreeBeingSent>,
}

struct TreeBeingSent {
    tree: OutgoingTree,
    slice: Vec<u8>,
    sent: usize,
    /// Bytes of it that nobody was told of.
    unreported: usize,
    /// Bytes of the whole tree so far.
    total: u64,
    is_last: bool,
}

/// The tree was exchanged for another one while it was being sent.
const TREE_LOST: &str = "the tree it was being sent is gone";

/// Why a link has ended.
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
                // What has been read behind the SNAP is the beginning of the tree.
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

    /// Reports everything that has arrived as a whole.
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
        // What came before the garbage is as good as ever.
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

    /// The first message of a server that has dialled us names it.
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

    /// Sends while the kernel takes it: slices of a tree, or what is in the outbox.
    fn send(&mut self) -> io::Result<()> {
        if let Some(sending) = &mut self.tree {
            match self.link.writer.try_write(&sending.slice[sending.sent..]) {
                Ok(count) => {
                    sending.sent += count;
                    sending.unreported += count;
                    sending.total += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if sending.unreported >= TREE_STEP_BYTES {
                sending.unreported = 0;
                self.board.report(vec![Input::TreeMoved { link: self.link.id() }]);
            }
            if sending.sent < sending.slice.len() {
                return Ok(());
            }
            // One slice at a time: other links want their turn.
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
        // The tree is read outside of the link's lock: it waits for the gate.
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
        // What was half sent goes home before the machine can think of sending it again.
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
                // Without a listener what was said last would be lost.
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

    /// A connection was lost. Any server can open one and have it fail, so such lines are counted.
    fn tell_failure(&self, why: &str) {
        let (who, port, now) = (self.who(), self.link.port, std::time::Instant::now());
        let line = format!("lost the connection with {who} ({port:?} port): {why}");
        let is_member = self.link.peer_id().is_some_and(|id| self.board.is_member(id));
        let repeats = &self.board.repeats;
        // Members are few, and each has a line of its own.
        let line = match is_member {
            true => repeats.line(line, now),
            false => repeats.line_of("lost a connection", line, now),
        };
        if let Some(line) = line {
            tracing::info!("{line}");
        }
    }

    /// The other server, as far as it is known. Its port is left out: it changes with each
    /// connection.
    fn who(&self) -> String {
        let ip = self.link.peer.ip().to_canonical();
        match self.link.peer_id() {
            Some(id) => format!("server {id} at {ip}"),
            None => format!("a server at {ip}"),
        }
    }

    /// Hands the rest of the outbox to the kernel, up to a tree, which nobody waits for any more.
    async fn say_last_words(&mut self) {
        loop {
            let sent = self.link.send(&mut self.link.side());
            if sent != Some(Sent::Blocked) || self.link.writer.writable().await.is_err() {
                return;
            }
        }
    }
}

/// Whether this is an address of this server, if it is a member. Without a connection with the
/// member that is not asked for, and no name has to be resolved.
async fn is_at_home(board: &Switchboard, id: ServerId, ip: IpAddr) -> bool {
    let known = board.election_ips(id);
    if !board.is_member(id) || known.is_empty() || known.contains(&ip) {
        return true;
    }
    let endpoints = board.endpoints(id, Port::Election);
    timeout(LOOK_UP_MAX, dial::any_is_at(endpoints, ip)).await.unwrap_or(false)
}

/// What an operator should hear of when we hang up: servers that are not what they should be.
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

/// Refusals of one kind are counted together.
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
