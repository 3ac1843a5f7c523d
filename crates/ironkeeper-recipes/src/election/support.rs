//! An election that reports every step: offer, determine, elected, ready. ZooKeeper's own
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
//! - Offer: create an ephemeral sequential node.
//! - Determine: list the nodes to find the first one.
//! - Elected: the own node is the first.
//! - Ready: it is not; watch the node right before it, and determine again when that node changes.
//!
//! # Guarantees
//! Those of the [`LeaderLatch`]: one leader at a time among candidates whose session is open. Every
//! step is reported as an event, in order; the last event is [`ElectionEvent::StopComplete`] or
//! [`ElectionEvent::Failed`]. A change of leaders costs two watch events: one at the next
//! candidate, and one at the leader that leaves, for its own node.
//!
//! # When things break
//! The connection is lost: no event is reported, and the node stays. The session has ended or the
//! node was deleted: `Failed`, with the reason. To continue, start again, with a new client if the
//! session has ended.
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

/// The capacity of the event queue. When it is full, the election waits for the reader.
const EVENTS_MAX: usize = 16;

/// A step of an election.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// The candidate is about to create its node.
    OfferStart,
    /// The candidate has created its node.
    OfferComplete {
        /// The node of this candidate.
        path: String,
    },
    /// The candidate is about to list the nodes.
    DetermineStart,
    /// The candidate knows its predecessor, if it has one.
    DetermineComplete,
    /// The candidate's node is the first.
    ElectedStart,
    /// The candidate leads.
    ElectedComplete(Leadership),
    /// The candidate's node is not the first.
    ReadyStart,
    /// The candidate watches its predecessor.
    ReadyComplete {
        /// The node right before that of this candidate.
        behind: String,
    },
    /// The candidacy has ended with an error.
    Failed(RecipeError),
    /// The candidate was asked to stop.
    StopStart,
    /// The candidate's node is deleted.
    StopComplete,
}

/// A candidate that reports every step.
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
    /// Becomes a candidate on `path`, with a host name that is visible to other clients.
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

    /// Returns the next step; `None` after the last one.
    pub async fn next(&mut self) -> Option<ElectionEvent> {
        self.events.recv().await
    }

    /// Asks the candidate to stop. The last event reports that it has stopped.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns the host that leads.
    pub async fn leader_host(&self) -> Result<Option<String>> {
        Ok(self.participants().await?.first().map(Participant::id))
    }

    /// Returns all candidates, the leader first.
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
        // The receiver is closed only when the handle was dropped, which also aborts this task.
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

    /// Returns the error that ends the candidacy. The guard of the created node stays in `kept`, so
    /// that `run` can release it after a stop.
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
