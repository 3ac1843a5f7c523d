//! A leader that stays leader until it goes: Curator's `LeaderLatch`.
//!
//! # On the tree
//! ```text
//! /leader                                       container, removed when empty
//!   _c_<uuid>-latch-0000000003                  ephemeral, data: the id; the leader
//!   _c_<uuid>-latch-0000000004                  waits for 3
//! ```
//!
//! # Steps
//! Stand in line as for a [`Mutex`](crate::lock::Mutex), in a task of its own. Lead when first; then
//! watch the own node. If somebody deletes it, stand in line again, at the end. A predecessor that is
//! gone means another look at the line, never a new place in it.
//!
//! # Guarantees
//! At most one leader among latches whose session lives and whose state is [`LatchState::Leading`]; a
//! node makes a leader only if the current session owns it. Tokens grow from leader to leader. A change
//! of leaders costs two watch events: one at the next in line, one at the leader that goes, for its own
//! node.
//!
//! # When things break
//! - Disconnected: a leader is [`LatchState::InDoubt`], which is not leading; after the reconnect it
//!   leads on if its node is still there. A waiter goes on waiting.
//! - Session over: [`LatchState::Ended`], and every wait ends with an error. A new client is needed.
//! - Node or parent deleted: back in line with a new node, parents made anew.
//! - The latch dropped: its node goes.

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

/// Where a latch stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LatchState {
    /// In line, or about to be.
    Waiting,
    /// The leader.
    Leading(Leadership),
    /// It was the leader when the connection broke. Not to be taken for leading.
    InDoubt(Leadership),
    /// It was closed, or its session is over, or the server refuses; final.
    Ended(Option<RecipeError>),
}

/// A candidate that leads when its turn comes, and until it goes.
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
    /// Becomes a candidate on `path`, with an id that others see.
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

    /// The id that others see.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it stands.
    pub fn state(&self) -> LatchState {
        self.state.borrow().clone()
    }

    /// Follows its state: `changed().await`, then `borrow()`.
    #[doc(alias = "LeaderLatchListener")]
    pub fn states(&self) -> watch::Receiver<LatchState> {
        self.state.clone()
    }

    /// Whether it leads, as far as this process knows.
    #[doc(alias = "is_leader")]
    pub fn has_leadership(&self) -> bool {
        match &*self.state.borrow() {
            LatchState::Leading(leadership) => leadership.is_connected(),
            _ => false,
        }
    }

    /// Waits until it leads.
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

    /// Resolves when a leadership is over: lost, given up or ended with the session. While it is in
    /// doubt it is not over.
    #[doc(alias = "notLeader")]
    #[doc(alias = "leadership_lost")]
    #[doc(alias = "lost")]
    pub async fn over(&self, leadership: &Leadership) {
        let mut states = self.state.clone();
        // An error says that the task is gone, and the leadership with it.
        let _ = states
            .wait_for(|state| match state {
                LatchState::Leading(now) | LatchState::InDoubt(now) => {
                    now.fencing_token() != leadership.fencing_token()
                }
                _ => true,
            })
            .await;
    }

    /// All candidates, the leader first.
    #[doc(alias = "getParticipants")]
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.client, &self.path, BASES).await
    }

    /// Who leads.
    #[doc(alias = "getLeader")]
    pub async fn leader(&self) -> Result<Option<Participant>> {
        Ok(self.participants().await?.into_iter().next())
    }

    /// Gives up leadership or candidacy. The node is gone when this returns.
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
        // Its place in line is dropped with the task, and withdrawn by that.
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

    /// Until it is stopped, which is no error, or cannot go on.
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
                    // Nobody shall think that it leads while the node goes.
                    told.send_replace(LatchState::Waiting);
                    return match guard.release().await {
                        Err(RecipeError::Lost { .. }) => Ok(()),
                        other => other,
                    };
                }
            }
        }
    }

    /// Tells of leadership and of doubts until it is over.
    async fn lead(&self, guard: &Guard, told: &watch::Sender<LatchState>) -> Lost {
        let leadership = Leadership::of(guard);
        let mut states = self.client.states();
        let doubts = async {
            loop {
                let now = self.client.state();
                told.send_replace(match now {
                    _ if now.takes_writes() => LatchState::Leading(leadership.clone()),
                    // A server that is cut off does not hear who else is elected.
                    ConnectionState::Suspended | ConnectionState::ReadOnly => {
                        LatchState::InDoubt(leadership.clone())
                    }
                    _ => LatchState::Waiting,
                });
                // The node is looked at again before a reconnected leader leads on.
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
        // The latch is gone, and has aborted this task.
        std::future::pending::<()>().await;
    }
}
