//! The life of one link, on the thread of the peer links.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_engine::snapshot::Slice;
use ironkeeper_proto::Packet;
use ironkeeper_zab::{Hangup, Input};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout};

use super::intake::{Intake, TREE_STEP_BYTES};
use super::link::{End, Link};
use super::outbox::Sent;
use super::switchboard::Switchboard;
use super::tree_out::OutgoingTree;

/// How long the last bytes may take to leave after the machine has hung up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a learner that comes before we know that we lead is kept waiting. Apache's learners would
/// begin a new election if they were hung up on; they try for half a second if nobody listens.
const EARLY_LEARNER: Duration = Duration::from_millis(500);
/// How often such a learner is offered again.
const EARLY_LEARNER_RETRY: Duration = Duration::from_millis(10);

/// Serves a link until it ends. `announce` tells the machine that it is there; a link that has not
/// been announced yet, because its opening is awaited, is not told to have ended either.
pub(super) async fn run(
    board: Arc<Switchboard>,
    link: Arc<Link>,
    reader: OwnedReadHalf,
    intake: Intake,
    announce: Option<Input>,
) {
    board.insert(&link);
    let mut task = LinkTask {
        announced: announce.is_some(),
        learner: matches!(announce, Some(Input::Accepted { .. })).then(EarlyLearner::new),
        board,
        link,
        reader,
        intake,
        opening_until: None,
        tree: None,
    };
    if let Some(announce) = announce {
        task.board.report(vec![announce]);
    } else {
        task.opening_until = Some(Instant::now() + task.board.settings.opening_timeout);
    }
    let end = task.serve().await;
    task.end(end).await;
}

struct LinkTask {
    board: Arc<Switchboard>,
    link: Arc<Link>,
    reader: OwnedReadHalf,
    intake: Intake,
    announced: bool,
    /// Somebody who has dialled our quorum port.
    learner: Option<EarlyLearner>,
    /// Until when the peer must have said who it is.
    opening_until: Option<Instant>,
    tree: Option<TreeBeingSent>,
}

/// What is needed to offer a learner again that has come too early.
struct EarlyLearner {
    until: Instant,
    /// How it has introduced itself. It says nothing more before it is answered.
    greeting: Option<Packet>,
}

impl EarlyLearner {
    fn new() -> EarlyLearner {
        EarlyLearner { until: Instant::now() + EARLY_LEARNER, greeting: None }
    }

    fn listen(&mut self, inputs: &[Input]) {
        if self.greeting.is_none()
            && let Some(Input::Packet { packet, .. }) = inputs.first()
        {
            self.greeting = Some(packet.clone());
        }
    }
}

struct TreeBeingSent {
    tree: OutgoingTree,
    slice: Vec<u8>,
    sent: usize,
    /// Bytes of it that nobody was told of.
    unreported: usize,
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
            match self.serve_once().await {
                Ended::HungUp(Hangup::NotLeading) if self.may_offer_again() => {
                    tokio::time::sleep(EARLY_LEARNER_RETRY).await;
                    self.offer_again();
                }
                ended => return ended,
            }
        }
    }

    fn may_offer_again(&self) -> bool {
        self.learner.as_ref().is_some_and(|learner| Instant::now() < learner.until)
    }

    /// Presents the learner once more, as a new link: we may lead by now.
    fn offer_again(&mut self) {
        self.link.rename(self.board.next_id());
        let link = self.link.id();
        self.board.insert(&self.link);
        let mut inputs = vec![Input::Accepted { link }];
        if let Some(packet) = self.learner.as_ref().and_then(|learner| learner.greeting.clone()) {
            inputs.push(Input::Packet { link, packet });
        }
        self.board.report(inputs);
    }

    async fn serve_once(&mut self) -> Ended {
        loop {
            let (task_sends, receive_tree) = {
                let mut side = self.link.side();
                if let Some(end) = side.end.take() {
                    return match end {
                        End::HungUp(reason) => Ended::HungUp(reason),
                        End::TooSlow => Ended::Failed("it does not read what it is sent".into()),
                        End::Broken(error) => Ended::Failed(error.to_string()),
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
                if let Err(ended) = self.take_in() {
                    return ended;
                }
            }
            match self.next(task_sends).await {
                Event::Woken => {}
                Event::Read(Ok(0)) => return Ended::Gone,
                Event::Read(Ok(_)) => {
                    if let Err(ended) = self.take_in() {
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
            match self.opening_until {
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
    fn take_in(&mut self) -> Result<(), Ended> {
        let mut inputs = Vec::new();
        let outcome = self.intake.decode(self.link.id(), &mut inputs);
        if let Some(received) = self.intake.received.take() {
            self.board.keep_tree(self.link.id(), received);
        }
        if self.opening_until.is_some() && !self.intake.awaits_opening() {
            self.opening_until = None;
            if let Some(Input::Opened { opening, .. }) = inputs.first() {
                self.link.set_peer_id(opening.from);
                if let Some(doubt) = self.board.doubt(opening) {
                    self.board.repeats.warn(doubt);
                }
                if self.board.is_cut_off(opening.from) {
                    return Err(Ended::Gone);
                }
            }
            self.announced = true;
        }
        // What came before the garbage is as good as ever.
        if !inputs.is_empty() {
            if let Some(learner) = &mut self.learner {
                learner.listen(&inputs);
            }
            self.board.report(inputs);
        }
        if let Err(broken) = &outcome {
            let ip = self.link.peer.ip();
            self.board.repeats.warn(format!("a server at {ip} was not understood: {broken}"));
        }
        outcome.map_err(|broken| Ended::Failed(broken.to_string()))
    }

    /// Sends while the kernel takes it: slices of a tree, or what is in the outbox.
    fn send(&mut self) -> io::Result<()> {
        if let Some(sending) = &mut self.tree {
            match self.link.writer.try_write(&sending.slice[sending.sent..]) {
                Ok(count) => {
                    sending.sent += count;
                    sending.unreported += count;
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
            let mut sending = TreeBeingSent { tree, slice, sent: 0, unreported: 0, is_last: false };
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
                        let ip = peer.ip();
                        self.board.repeats.warn(format!("refused a server at {ip}: {why}"));
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
                    Ended::Failed(why) => {
                        tracing::info!("lost the connection with {peer} ({port:?} port): {why}");
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

/// What an operator should hear of when we hang up: servers that are not what they should be.
fn refusal(reason: Hangup) -> Option<String> {
    Some(match reason {
        Hangup::OwnId => "it has the number of this one (myid), which must be another".to_owned(),
        Hangup::NewerConfig => {
            "it has seen a newer configuration of the members than the one in force here".to_owned()
        }
        Hangup::LearnerAhead => "it has transactions that this server does not have".to_owned(),
        Hangup::Protocol(what) => format!("it broke the protocol: {what}"),
        Hangup::Silent => "it was silent, or acknowledged nothing, for too long".to_owned(),
        _ => return None,
    })
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
