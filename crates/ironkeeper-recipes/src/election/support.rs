//! Election with every step told: offer, determine, elected, ready. ZooKeeper's own
//! `LeaderElectionSupport`.
//!
//! # On the tree
//! ```text
//! /election                                     container, removed when empty
//!   _c_<uuid>-n_0000000003                      ephemeral, data: the host; the leader
//!   _c_<uuid>-n_0000000004                      ready: waits for 3
//! ```
//!
//! # Steps
//! Offer: take a place in line. Determine: look who is first. Elected: that is us. Ready: it is not, so
//! watch the one right before us, and determine again when it changes.
//!
//! # Guarantees
//! As the [`LeaderLatch`]: one leader at a time among those whose session lives. Every step comes as an
//! event, in order, the last one being [`ElectionEvent::StopComplete`] or [`ElectionEvent::Failed`]. A
//! change of leaders costs two watch events: one at the next in line, one at the leader that goes, for
//! its own node.
//!
//! # When things break
//! Disconnected: nothing is told; the place stays. Session over or node deleted: `Failed`, with why. To
//! go on, start again, with a new client if the session is over.
//!
//! [`LeaderLatch`]: crate::election::LeaderLatch

use ironkeeper_client::{Client, CreateMode, ErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::election::leadership::Leadership;
use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::place::{Place, patient};
use crate::queue_of_waiters::{Bases, Participant, Standing, participants};

pub(crate) const BASES: Bases = &["n_"];

/// How many steps wait to be read. The election goes on only as far as its events are taken.
const EVENTS_MAX: usize = 16;

/// A step of an election.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// A place in line is about to be taken.
    OfferStart,
    /// It was taken.
    OfferComplete {
        /// Our node.
        path: String,
    },
    /// We look who is first.
    DetermineStart,
    /// We know.
    DetermineComplete,
    /// It is us.
    ElectedStart,
    /// We lead.
    ElectedComplete(Leadership),
    /// It is not us.
    ReadyStart,
    /// We wait for this node.
    ReadyComplete {
        /// The node right before us.
        behind: String,
    },
    /// It is over.
    Failed(RecipeError),
    /// We were asked to stop.
    StopStart,
    /// Our node is gone.
    StopComplete,
}

/// A candidate that tells every step.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::election::{ElectionEvent, ElectionSupport};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut election = ElectionSupport::start(&client, "/election", "host-1");
///     while let Some(event) = election.next().await {
///         match event {
///             ElectionEvent::ElectedComplete(_) => election.stop(),
///             ElectionEvent::Failed(error) => return Err(error.into()),
///             _ => {}
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "LeaderElectionSupport")]
pub struct ElectionSupport {
    client: Client,
    path: String,
    events: mpsc::Receiver<ElectionEvent>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ElectionSupport {
    /// Becomes a candidate on `path`, with the name of a host that others see.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(
        client: &Client,
        path: impl Into<String>,
        host: impl Into<String>,
    ) -> ElectionSupport {
        let (path, host) = (path.into(), host.into());
        let (told, events) = mpsc::channel(EVENTS_MAX);
        let (stop, stopped) = watch::channel(false);
        let candidate = Candidate { client: client.clone(), path: path.clone(), host, told };
        let task = tokio::spawn(candidate.run(stopped));
        ElectionSupport { client: client.clone(), path, events, stop, task }
    }

    /// The next step; `None` after the last one.
    pub async fn next(&mut self) -> Option<ElectionEvent> {
        self.events.recv().await
    }

    /// Asks the candidate to give way. The last event says when it has.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The host that leads.
    pub async fn leader_host(&self) -> Result<Option<String>> {
        Ok(self.participants().await?.first().map(Participant::id))
    }

    /// All candidates, the leader first.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.client, &self.path, BASES).await
    }
}

impl Drop for ElectionSupport {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Candidate {
    client: Client,
    path: String,
    host: String,
    told: mpsc::Sender<ElectionEvent>,
}

impl Candidate {
    async fn tell(&self, event: ElectionEvent) {
        // Nobody listens when the handle is gone, and then this task is being aborted.
        let _ = self.told.send(event).await;
    }

    async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut place = None;
        let failed = tokio::select! {
            biased;
            stopped = stopped.wait_for(|stopped| *stopped) => stopped.is_err().then(|| self.closed()),
            failed = self.stand(&mut place) => Some(failed),
        };
        if let Some(error) = failed {
            return self.tell(ElectionEvent::Failed(error)).await;
        }
        self.tell(ElectionEvent::StopStart).await;
        if let Some(guard) = place.take() {
            let released = Guard::release(guard).await;
            if let Err(error) = released
                && !matches!(error, RecipeError::Lost { .. })
            {
                return self.tell(ElectionEvent::Failed(error)).await;
            }
        }
        self.tell(ElectionEvent::StopComplete).await;
    }

    fn closed(&self) -> RecipeError {
        RecipeError::Closed { path: self.path.clone() }
    }

    /// Returns when it cannot go on. What was taken is left in `kept`, for whoever stops it.
    async fn stand(&self, kept: &mut Option<Guard>) -> RecipeError {
        match self.try_stand(kept).await {
            Ok(never) => never,
            Err(error) => error,
        }
    }

    async fn try_stand(&self, kept: &mut Option<Guard>) -> Result<RecipeError> {
        self.tell(ElectionEvent::OfferStart).await;
        let place = Place::take(
            &self.client,
            &self.path,
            BASES[0],
            self.host.as_bytes(),
            CreateMode::EphemeralSequential,
        )
        .await?;
        let guard = kept.insert(Guard::new(place));
        self.tell(ElectionEvent::OfferComplete { path: guard.path().to_owned() }).await;
        loop {
            self.tell(ElectionEvent::DetermineStart).await;
            let standing = Standing::plain(guard.place(), BASES);
            let in_the_way = standing.look().await?;
            self.tell(ElectionEvent::DetermineComplete).await;
            let Some(behind) = in_the_way else { break };
            self.tell(ElectionEvent::ReadyStart).await;
            let client = &self.client;
            match client.retry(&patient(), || client.get_and_watch(&behind)).await {
                Ok((_, watch)) => {
                    self.tell(ElectionEvent::ReadyComplete { behind }).await;
                    watch.await?;
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.tell(ElectionEvent::ElectedStart).await;
        self.tell(ElectionEvent::ElectedComplete(Leadership::of(guard))).await;
        let why = guard.lost().await;
        Ok(RecipeError::Lost { path: guard.path().to_owned(), why })
    }
}
