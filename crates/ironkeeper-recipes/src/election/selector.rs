//! A leader election in which the elected candidate runs a future and then releases the leadership.
//! Curator's `LeaderSelector`.
//!
//! # On the tree
//! ```text
//! /leader                                       container, removed when empty
//!   _c_<uuid>-lock-0000000003                   ephemeral, data: the id; the leader
//!   _c_<uuid>-lock-0000000004                   waits for 3
//! ```
//! With [`LeaderSelector::with_kazoo_names`] the names are those of kazoo's `Election`: see
//! [`Mutex`].
//!
//! # Steps
//! 1. Lock the [`Mutex`] on the path.
//! 2. Run the work until it completes, the leadership is lost, or an [`Interrupter`] interrupts it.
//!    In the last two cases the future of the work is dropped.
//! 3. Release the mutex; [`LeaderSelector::lead_repeatedly`] then starts over.
//!
//! # Guarantees
//! Those of the mutex: one leader at a time, in the order of the requests, with increasing fencing
//! tokens. Work that fails does not end the candidacy: only the end of the session and
//! [`Interrupter::stop`] do. A change of leaders costs two watch events: one at the next candidate,
//! and one at the leader that leaves.
//!
//! # When things break
//! - The connection is lost: the work continues; its writes should be fenced
//!   ([`Leadership::fence`]). With [`LeaderSelector::losing_on_suspend`] the work ends at once, as
//!   Curator advises.
//! - The session has ended, or the node is deleted: the work ends with [`Led::Lost`].
//! - The future is dropped: the work and the candidacy end, and the node is deleted.

use std::future::Future;

use ironkeeper_client::Client;
use tokio::sync::watch;

use crate::election::leadership::Leadership;
use crate::error::{RecipeError, Result};
use crate::lock::Mutex;
use crate::lost::Lost;
use crate::queue_of_waiters::Participant;

/// The result of a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "LeadershipOutcome")]
pub enum Led<T> {
    /// The work completed with this output.
    Done(T),
    /// An [`Interrupter`] interrupted the work.
    Interrupted,
    /// The leadership was lost.
    Lost(Lost),
}

/// A candidate that runs a future when it is elected.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::election::{LeaderSelector, Led};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let selector = LeaderSelector::new(&client, "/leader", "host-1");
///     let led = selector.lead(async |leadership| leadership.fencing_token().as_i64() > 0).await?;
///     assert_eq!(led, Led::Done(true));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "Election")]
#[doc(alias = "LeaderElection")]
#[doc(alias = "LeaderSelectorListener")]
pub struct LeaderSelector {
    mutex: Mutex,
    interrupts: watch::Sender<Interrupts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interrupts {
    /// The number of calls of [`Interrupter::interrupt`].
    count: u64,
    is_stopped: bool,
}

impl LeaderSelector {
    /// Creates a candidate on `path`, with an id that is visible to other clients. Makes no
    /// request.
    pub fn new(client: &Client, path: impl Into<String>, id: impl Into<String>) -> LeaderSelector {
        LeaderSelector {
            mutex: Mutex::new(client, path).with_data(id.into()),
            interrupts: watch::Sender::new(Interrupts::default()),
        }
    }

    /// Uses node names that kazoo's `Election` understands. All candidates must use the same names.
    pub fn with_kazoo_names(mut self) -> LeaderSelector {
        self.mutex = self.mutex.with_kazoo_names();
        self
    }

    /// Ends the work already when the connection is lost, not only when the session has ended.
    #[doc(alias = "lose_on_disconnect")]
    #[doc(alias = "CancelLeadershipException")]
    pub fn losing_on_suspend(mut self) -> LeaderSelector {
        self.mutex = self.mutex.losing_on_suspend();
        self
    }

    /// Returns a handle that can interrupt the leadership or end the candidacy.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { interrupts: self.interrupts.clone() }
    }

    /// Waits until this candidate is elected, runs the work once, and releases the leadership.
    #[doc(alias = "takeLeadership")]
    pub async fn lead<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(Leadership) -> F,
    ) -> Result<Led<T>> {
        let mut interrupts = self.interrupts.subscribe();
        let guard = tokio::select! {
            biased;
            () = stopped(&mut interrupts) => {
                return Err(RecipeError::Closed { path: self.mutex.path().to_owned() });
            }
            guard = self.mutex.lock() => guard?,
        };
        // Interruptions before this point do not apply to this leadership.
        let before = interrupts.borrow().count;
        let led = tokio::select! {
            // Completed work counts as done, even if it is interrupted or the leadership is lost at
            // the same time.
            biased;
            done = work(Leadership::of(&guard)) => Led::Done(done),
            lost = guard.lost() => Led::Lost(lost),
            _ = interrupts.wait_for(|now| now.count != before || now.is_stopped) => {
                Led::Interrupted
            }
        };
        match guard.release().await {
            Err(RecipeError::Lost { why, .. }) => Ok(match led {
                Led::Interrupted => Led::Lost(why),
                led => led,
            }),
            Err(error) => Err(error),
            Ok(()) => Ok(led),
        }
    }

    /// Leads repeatedly, each time after joining the queue at its end, until the session ends or
    /// [`Interrupter::stop`] is called. `ended` receives the result of each leadership, including
    /// the output of the work.
    #[doc(alias = "autoRequeue")]
    pub async fn lead_repeatedly<T, F: Future<Output = T>>(
        &self,
        mut work: impl FnMut(Leadership) -> F,
        mut ended: impl FnMut(Led<T>),
    ) -> Result<()> {
        loop {
            match self.lead(&mut work).await {
                Ok(led) => {
                    let is_over = led_until_the_end(&led);
                    ended(led);
                    if is_over {
                        let path = self.mutex.path().to_owned();
                        return Err(RecipeError::Lost { path, why: Lost::SessionEnded });
                    }
                }
                // Another client deleted the node of the waiting candidate: rejoin the queue.
                Err(RecipeError::NodeGone { .. }) => {}
                Err(RecipeError::Closed { .. }) if self.interrupts.borrow().is_stopped => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns all candidates, the leader first.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.mutex.participants().await
    }

    /// Returns the leader.
    pub async fn leader(&self) -> Result<Option<Participant>> {
        Ok(self.participants().await?.into_iter().next())
    }
}

fn led_until_the_end<T>(led: &Led<T>) -> bool {
    matches!(led, Led::Lost(Lost::SessionEnded))
}

async fn stopped(interrupts: &mut watch::Receiver<Interrupts>) {
    if interrupts.wait_for(|now| now.is_stopped).await.is_err() {
        // All senders were dropped, so no stop can follow.
        std::future::pending::<()>().await;
    }
}

/// A handle that interrupts the leadership of a [`LeaderSelector`].
#[derive(Clone, Debug)]
pub struct Interrupter {
    interrupts: watch::Sender<Interrupts>,
}

impl Interrupter {
    /// Ends the current leadership, if there is one: its work is dropped. A second call for the
    /// same leadership has no effect.
    #[doc(alias = "interruptLeadership")]
    pub fn interrupt(&self) {
        self.interrupts.send_modify(|now| now.count += 1);
    }

    /// Ends the leadership and the candidacy permanently.
    pub fn stop(&self) {
        self.interrupts.send_modify(|now| now.is_stopped = true);
    }
}
