//! Leadership as a piece of work: whoever is elected does it and gives way. Curator's
//! `LeaderSelector`.
//!
//! # On the tree
//! ```text
//! /leader                                       container, removed when empty
//!   _c_<uuid>-lock-0000000003                   ephemeral, data: the id; the leader
//!   _c_<uuid>-lock-0000000004                   waits for 3
//! ```
//! With [`LeaderSelector::with_kazoo_names`] the names are those of kazoo's `Election`: see [`Mutex`].
//!
//! # Steps
//! 1. Take the [`Mutex`] on the path.
//! 2. Do the work, until it is done, the leadership is lost, or somebody interrupts it: the future of
//!    the work is dropped in the last two cases.
//! 3. Give the mutex back; with [`LeaderSelector::lead_repeatedly`], begin again.
//!
//! # Guarantees
//! As the mutex: one leader at a time, in the order of asking, growing tokens. A work that fails does
//! not end the candidacy: only the end of the session and [`Interrupter::stop`] do. A change of leaders
//! costs two watch events, one at the next in line and one at the leader that goes.
//!
//! # When things break
//! - Disconnected: the work goes on; its writes should be fenced ([`Leadership::fence`]). With
//!   [`LeaderSelector::losing_on_suspend`] it ends at once, as Curator advises.
//! - Session over, or the node deleted: the work ends with [`Led::Lost`].
//! - The future dropped: work and candidacy end, the node goes.

use std::future::Future;

use ironkeeper_client::Client;
use tokio::sync::watch;

use crate::election::leadership::Leadership;
use crate::error::{RecipeError, Result};
use crate::lock::Mutex;
use crate::lost::Lost;
use crate::queue_of_waiters::Participant;

/// How a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "LeadershipOutcome")]
pub enum Led<T> {
    /// The work was done.
    Done(T),
    /// Somebody interrupted it.
    Interrupted,
    /// The leadership was lost.
    Lost(Lost),
}

/// A candidate that does a piece of work when it is elected.
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
    /// How many leaderships have been interrupted.
    count: u64,
    is_stopped: bool,
}

impl LeaderSelector {
    /// A candidate on `path`, with an id that others see. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, id: impl Into<String>) -> LeaderSelector {
        LeaderSelector {
            mutex: Mutex::new(client, path).with_data(id.into()),
            interrupts: watch::Sender::new(Interrupts::default()),
        }
    }

    /// Names that kazoo's `Election` understands. All candidates have to do so.
    pub fn with_kazoo_names(mut self) -> LeaderSelector {
        self.mutex = self.mutex.with_kazoo_names();
        self
    }

    /// Ends the work when the connection breaks, not only when the session is over.
    #[doc(alias = "lose_on_disconnect")]
    #[doc(alias = "CancelLeadershipException")]
    pub fn losing_on_suspend(mut self) -> LeaderSelector {
        self.mutex = self.mutex.losing_on_suspend();
        self
    }

    /// For whoever shall be able to interrupt the leadership, or to end the candidacy.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { interrupts: self.interrupts.clone() }
    }

    /// Waits to be elected, does the work once, and gives way.
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
        // Only what comes from here on is meant for this leadership.
        let before = interrupts.borrow().count;
        let led = tokio::select! {
            // What is done is done, whatever else happened at the same moment.
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

    /// Leads again and again, each time from the end of the line, until the session is over or somebody
    /// stops it. `ended` is told how each leadership ended, whatever the work gave.
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
                // Somebody deleted our node while we waited: back to the end of the line.
                Err(RecipeError::NodeGone { .. }) => {}
                Err(RecipeError::Closed { .. }) if self.interrupts.borrow().is_stopped => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// All candidates, the leader first.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.mutex.participants().await
    }

    /// Who leads.
    pub async fn leader(&self) -> Result<Option<Participant>> {
        Ok(self.participants().await?.into_iter().next())
    }
}

fn led_until_the_end<T>(led: &Led<T>) -> bool {
    matches!(led, Led::Lost(Lost::SessionEnded))
}

async fn stopped(interrupts: &mut watch::Receiver<Interrupts>) {
    if interrupts.wait_for(|now| now.is_stopped).await.is_err() {
        // Nobody is left who could.
        std::future::pending::<()>().await;
    }
}

/// Interrupts the leadership of a [`LeaderSelector`].
#[derive(Clone, Debug)]
pub struct Interrupter {
    interrupts: watch::Sender<Interrupts>,
}

impl Interrupter {
    /// Ends the leadership there is now, if there is one: its work is dropped. Doing so twice is the
    /// same as once.
    #[doc(alias = "interruptLeadership")]
    pub fn interrupt(&self) {
        self.interrupts.send_modify(|now| now.count += 1);
    }

    /// Ends the leadership and the candidacy for good.
    pub fn stop(&self) {
        self.interrupts.send_modify(|now| now.is_stopped = true);
    }
}
