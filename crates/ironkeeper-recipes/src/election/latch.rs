//! A leader election in which the leader leads until it leaves: Curator's `LeaderLatch`.
//!
//! # On the tree
//! ```text
//! /leader                                       container, removed when empty
//!   _c_<uuid>-latch-0000000003                  ephemeral, data: the id; the leader
//!   _c_<uuid>-latch-0000000004                  waits for 3
//! ```
//!
//! # Steps
//! The candidate's task joins the queue as for a [`Mutex`](crate::lock::Mutex). It leads when its
//! node is the first, and then watches its own node. If another client deletes that node, the
//! candidate joins the queue again, at the end. When the predecessor is deleted, the candidate
//! lists the children again and keeps its node.
//!
//! # Guarantees
//! At most one leader among the latches whose session is open and whose state is
//! [`LatchState::Leading`]; a candidate leads only if the current session owns its node. Fencing
//! tokens increase from leader to leader. A change of leaders costs two watch events: one at the
//! next candidate, and one at the leader that leaves, for its own node.
//!
//! # When things break
//! - The connection is lost: the state of a leader becomes [`LatchState::InDoubt`], which is not
//!   leading; after the reconnect it leads again if its node still exists. A waiting candidate
//!   keeps waiting.
//! - The session has ended: [`LatchState::Ended`], and every wait returns an error. A new client is
//!   needed.
//! - The node or its parent is deleted: the candidate joins the queue with a new node, and creates
//!   the missing parents.
//! - The latch is dropped: its node is deleted.

use ironkeeper_client::{Client, ConnectionState, CreateMode};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::election::leadership::Leadership;
use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lost::Lost;
use crate::place::Place;
use crate::queue_of_waiters::{Bases, Participant, Standing, participants};

pub(crate) const BASES: Bases = &["latch-"];

/// The state of a latch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LatchState {
    /// The candidate is in the queue, or about to join it.
    Waiting,
    /// The candidate leads.
    Leading(Leadership),
    /// The candidate led when the connection was lost. It must not act as the leader.
    InDoubt(Leadership),
    /// The latch was closed, its session has ended, or the server rejects its requests. This state
    /// is final.
    Ended(Option<RecipeError>),
}

/// A candidate that leads once it is first in the queue, until it leaves.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::election::LeaderLatch;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let latch = LeaderLatch::start(&client, "/leader", "host-1");
///     let leadership = latch.leading().await?;
///     assert!(latch.has_leadership());
///     assert_eq!(latch.leader().await?.unwrap().id(), "host-1");
///     // Writes that the server rejects when another candidate leads:
///     leadership.transaction().commit().await?;
///     latch.close().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "LeaderElection")]
pub struct LeaderLatch {
    client: Client,
    path: String,
    id: String,
    state: watch::Receiver<LatchState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl LeaderLatch {
    /// Becomes a candidate on `path`, with an id that is visible to other clients.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(client: &Client, path: impl Into<String>, id: impl Into<String>) -> LeaderLatch {
        let (path, id) = (path.into(), id.into());
        let (told, state) = watch::channel(LatchState::Waiting);
        let (stop, stopped) = watch::channel(false);
        let candidate = Candidate { client: client.clone(), path: path.clone(), id: id.clone() };
        let task = tokio::spawn(candidate.run(told, stopped));
        LeaderLatch { client: client.clone(), path, id, state, stop, task }
    }

    /// Returns the id of this candidate.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the current state.
    pub fn state(&self) -> LatchState {
        self.state.borrow().clone()
    }

    /// Returns a receiver of the state: `changed().await`, then `borrow()`.
    #[doc(alias = "LeaderLatchListener")]
    pub fn states(&self) -> watch::Receiver<LatchState> {
        self.state.clone()
    }

    /// Returns whether this candidate leads, as far as this process knows.
    #[doc(alias = "is_leader")]
    pub fn has_leadership(&self) -> bool {
        match &*self.state.borrow() {
            LatchState::Leading(leadership) => leadership.is_connected(),
            _ => false,
        }
    }

    /// Waits until this candidate leads.
    #[doc(alias = "await")]
    #[doc(alias = "wait_for_leadership")]
    pub async fn leading(&self) -> Result<Leadership> {
        let mut states = self.state.clone();
        let reached = states
            .wait_for(|state| matches!(state, LatchState::Leading(_) | LatchState::Ended(_)))
            .await;
        match reached.as_deref() {
            Ok(LatchState::Leading(leadership)) => Ok(leadership.clone()),
            Ok(LatchState::Ended(Some(error))) => Err(error.clone()),
            _ => Err(RecipeError::Closed { path: self.path.clone() }),
        }
    }

    /// Waits until a leadership has ended: it was lost, given up, or its session has ended.
    /// [`LatchState::InDoubt`] is not an end.
    #[doc(alias = "notLeader")]
    #[doc(alias = "leadership_lost")]
    #[doc(alias = "lost")]
    pub async fn over(&self, leadership: &Leadership) {
        let mut states = self.state.clone();
        // `Err` means that the task has ended, and with it the leadership.
        let _ = states
            .wait_for(|state| match state {
                LatchState::Leading(now) | LatchState::InDoubt(now) => {
                    now.fencing_token() != leadership.fencing_token()
                }
                _ => true,
            })
            .await;
    }

    /// Returns all candidates, the leader first.
    #[doc(alias = "getParticipants")]
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.client, &self.path, BASES).await
    }

    /// Returns the leader.
    #[doc(alias = "getLeader")]
    pub async fn leader(&self) -> Result<Option<Participant>> {
        Ok(self.participants().await?.into_iter().next())
    }

    /// Gives up the leadership or the candidacy. When this returns `Ok`, the node is deleted.
    pub async fn close(mut self) -> Result<()> {
        self.stop.send_replace(true);
        match (&mut self.task).await {
            Ok(closed) => closed,
            Err(_) => Err(RecipeError::Closed { path: self.path.clone() }),
        }
    }
}

impl Drop for LeaderLatch {
    fn drop(&mut self) {
        // Aborting the task drops its node, which deletes it.
        self.task.abort();
    }
}

struct Candidate {
    client: Client,
    path: String,
    id: String,
}

impl Candidate {
    async fn run(
        self,
        told: watch::Sender<LatchState>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let result = self.stand(&told, &mut stopped).await;
        told.send_replace(LatchState::Ended(result.as_ref().err().cloned()));
        result
    }

    /// Runs until it is stopped (`Ok`) or until a final error.
    async fn stand(
        &self,
        told: &watch::Sender<LatchState>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        loop {
            let taking = Place::take(
                &self.client,
                &self.path,
                BASES[0],
                self.id.as_bytes(),
                CreateMode::EphemeralSequential,
            );
            let place = tokio::select! {
                biased;
                () = asked_to_stop(stopped) => return Ok(()),
                place = taking => place?,
            };
            let standing = Standing::plain(&place, BASES);
            let waited = tokio::select! {
                biased;
                () = asked_to_stop(stopped) => {
                    place.withdraw().await?;
                    return Ok(());
                }
                waited = standing.wait(|_| {}) => waited,
            };
            match waited {
                Ok(()) => {}
                Err(RecipeError::NodeGone { .. }) => continue,
                Err(error) => return Err(error),
            }
            let guard = Guard::new(place);
            let leading = tokio::select! {
                biased;
                () = asked_to_stop(stopped) => None,
                lost = self.lead(&guard, told) => Some(lost),
            };
            match leading {
                Some(Lost::SessionEnded) => {
                    let path = guard.path().to_owned();
                    return Err(RecipeError::Lost { path, why: Lost::SessionEnded });
                }
                Some(_) => {
                    told.send_replace(LatchState::Waiting);
                }
                None => {
                    // Leave the state `Leading` before the deletion of the node.
                    told.send_replace(LatchState::Waiting);
                    return match guard.release().await {
                        Err(RecipeError::Lost { .. }) => Ok(()),
                        other => other,
                    };
                }
            }
        }
    }

    /// Publishes `Leading` and `InDoubt` until the leadership is lost.
    async fn lead(&self, guard: &Guard, told: &watch::Sender<LatchState>) -> Lost {
        let leadership = Leadership::of(guard);
        let mut states = self.client.states();
        let doubts = async {
            loop {
                let now = self.client.state();
                told.send_replace(match now {
                    _ if now.takes_writes() => LatchState::Leading(leadership.clone()),
                    // A server without a quorum does not receive the node of a new leader.
                    ConnectionState::Suspended | ConnectionState::ReadOnly => {
                        LatchState::InDoubt(leadership.clone())
                    }
                    _ => LatchState::Waiting,
                });
                // After a reconnect, check the node before the state becomes `Leading` again.
                loop {
                    match states.next().await {
                        Some(state) if state.takes_writes() => {
                            if matches!(guard.check().await, Ok(true)) {
                                break;
                            }
                        }
                        Some(_) => break,
                        None => std::future::pending().await,
                    }
                }
            }
        };
        tokio::select! {
            biased;
            lost = guard.lost() => lost,
            () = doubts => Lost::SessionEnded,
        }
    }
}

async fn asked_to_stop(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        // The latch was dropped, and has aborted this task.
        std::future::pending::<()>().await;
    }
}
