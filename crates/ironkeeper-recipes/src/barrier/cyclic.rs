//! A barrier that opens for a number of parties at a time, again and again. The `CyclicBarrier` of
//! menagerie and of java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /barriers/step                           persistent; its version is the number of the round
//!   _c_<uuid>-round-7-0000000021           ephemeral: a party of round 7 that waits
//! ```
//! The data says how the last rounds ended, one per line: `6 passed 20` (the parties up to number 20
//! went on) or `6 reset`.
//!
//! # Steps
//! 1. Read the barrier: its version is the round. Create an ephemeral sequential node for it.
//! 2. Read and watch the barrier; list its children. Whoever finds the number complete ends the round by
//!    one transaction: the version must still be that of the round, and all who are counted must still
//!    be there.
//! 3. When the round is over, the data says who went on. Who came too late begins again at 1.
//!
//! # Guarantees
//! A round ends with exactly as many parties as the barrier is for, all of them present in the very
//! transaction that ends it. A party that gives up after a time ([`CyclicBarrier::wait_within`])
//! either withdrew before the end of the round or went on with the others: the server decides, by the
//! version. One watch event per waiting party and round; an arrival wakes nobody.
//!
//! # When things break
//! - Disconnected: the wait goes on after the reconnect.
//! - Session over: the wait ends with an error; the party does not count any more.
//! - Our node deleted by somebody else: [`RecipeError::NodeGone`] at the next look.
//! - [`CyclicBarrier::reset`]: all who wait get [`RecipeError::Broken`].
//! - The future dropped: the party withdraws, and the round goes on with another one.

use std::fmt::Write as _;
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Node, Version};
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::{Place, create_containers, join, patient, unprotected};

/// A party that is this many rounds late cannot tell any more what became of its own.
const ROUNDS_REMEMBERED: usize = 32;

/// More would not fit into one transaction.
const SIZE_MAX: usize = 4096;

/// A barrier for a number of parties, round after round.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::barrier::CyclicBarrier;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let barrier = CyclicBarrier::new(&client, "/barriers/step", 2)?;
///     let other = tokio::spawn({
///         let barrier = barrier.clone();
///         async move {
///             barrier.wait().await?;
///             barrier.wait().await
///         }
///     });
///     barrier.wait().await?; // both have done the first step
///     let second = barrier.wait().await?; // and the second
///     assert_eq!(second.round, other.await??.round);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ZkCyclicBarrier")]
pub struct CyclicBarrier {
    client: Client,
    path: String,
    size: usize,
}

/// A round that ended with all parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Its number.
    pub round: i32,
    /// Whether this party was the last to come. Exactly one is.
    pub is_last: bool,
}

/// What became of a round, for one party.
enum End {
    Passed(Arrival),
    /// It came too late for this one.
    NotCounted,
    Reset,
    /// Too long ago.
    Forgotten,
}

impl CyclicBarrier {
    /// A barrier on `path` for `size` parties, who should all say the same number. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Result<CyclicBarrier> {
        if size == 0 || size > SIZE_MAX {
            let why = format!("a cyclic barrier is for 1 to {SIZE_MAX} parties, not {size}");
            return Err(RecipeError::Misuse(why));
        }
        Ok(CyclicBarrier { client: client.clone(), path: path.into(), size })
    }

    /// The path of the barrier.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits until all parties are here.
    pub async fn wait(&self) -> Result<Arrival> {
        let arrived = self.wait_until(None).await?;
        Ok(arrived.expect("without a deadline nobody gives up"))
    }

    /// Waits this long at most. `None` if the party withdrew before all were here. That takes an
    /// answer of the server: while there is no connection the wait goes on.
    pub async fn wait_within(&self, patience: Duration) -> Result<Option<Arrival>> {
        self.wait_until(Some(from_now(patience))).await
    }

    /// Ends the round for all who wait, with an error. The next one begins with nobody.
    pub async fn reset(&self) -> Result<()> {
        let client = &self.client;
        loop {
            let node = self.read().await?;
            let data = ended(&node, "reset");
            let round = node.stat.version;
            let mut doubt = None;
            let refused = loop {
                match client.set(&self.path, &data, round).await {
                    Ok(_) => return Ok(()),
                    Err(error) if error.is_retriable() => {
                        if error.happened() == Happened::Maybe {
                            doubt = Some(error);
                        }
                        // Waits for the next connection.
                        client.retry(&patient(), || client.sync(&self.path)).await?;
                    }
                    Err(error) => break error,
                }
            };
            if !matches!(refused.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) {
                return Err(refused.into());
            }
            let Some(lost) = doubt else { continue };
            // Nobody of the next round may hear of a reset that has ended this one.
            match end_of(&self.read().await?, round, 0) {
                End::Reset => return Ok(()),
                End::Forgotten => return Err(lost.into()),
                End::Passed(_) | End::NotCounted => {}
            }
        }
    }

    /// How many wait for the round to end.
    pub async fn waiting(&self) -> Result<usize> {
        let round = self.read().await?.stat.version;
        Ok(self.line(round, 0).await?.len())
    }

    async fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<Arrival>> {
        loop {
            let round = self.read().await?.stat.version;
            let name = format!("round-{round}-");
            let mode = CreateMode::EphemeralSequential;
            let place = Place::take(&self.client, &self.path, &name, b"", mode).await?;
            let Some(end) = self.stand(&place, round, deadline).await? else { return Ok(None) };
            match end {
                // The node goes in the background: the others do not look at it any more.
                End::Passed(arrival) => return Ok(Some(arrival)),
                End::NotCounted => {}
                End::Reset | End::Forgotten => {
                    return Err(RecipeError::Broken { path: self.path.clone() });
                }
            }
        }
    }

    /// Waits for the end of a round. `None` if we withdrew before.
    async fn stand(
        &self,
        place: &Place,
        round: i32,
        deadline: Option<Instant>,
    ) -> Result<Option<End>> {
        let client = &self.client;
        let gone = || RecipeError::NodeGone { path: place.path().to_owned() };
        let me = sequence(place.name(), round).ok_or_else(gone)?;
        loop {
            let (node, watch) =
                client.retry(&patient(), || client.get_and_watch(&self.path)).await?;
            if node.stat.version != round {
                return Ok(Some(end_of(&node, round, me)));
            }
            let line = self.line(round, me).await?;
            if !line.iter().any(|(_, name)| name == place.name()) {
                // Deleted by somebody else, or by the end of our session.
                return Err(gone());
            }
            if line.len() >= self.size {
                self.end_round(&node, &line[..self.size]).await?;
                continue;
            }
            let Some(deadline) = deadline else {
                watch.await?;
                continue;
            };
            tokio::select! {
                // Whoever is let through at the last moment is through.
                biased;
                event = watch => { event?; }
                () = tokio::time::sleep_until(deadline) => {
                    if self.withdraw(place, round).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Tries to end the round. If it does not succeed, the next look shows why.
    async fn end_round(&self, node: &Node, counted: &[(i32, String)]) -> Result<()> {
        let client = &self.client;
        let (last, _) = counted.last().expect("a barrier is for one party at least");
        let data = ended(node, &format!("passed {last}"));
        let done = client
            .retry(&patient(), || {
                let end = client.transaction().set(&self.path, &data, node.stat.version);
                let check = |end: ironkeeper_client::Transaction, (_, name): &(i32, String)| {
                    end.check(&join(&self.path, name), Version::Any)
                };
                counted.iter().fold(end, check).commit()
            })
            .await;
        match done {
            Err(error) if !matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Gives up, if the round is not over. Says whether that was so.
    async fn withdraw(&self, place: &Place, round: i32) -> Result<bool> {
        let client = &self.client;
        let mut unsure = false;
        loop {
            let withdrawal =
                client.transaction().check(&self.path, round).delete(place.path(), Version::Any);
            match withdrawal.commit().await {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::NoNode && unsure => return Ok(true),
                Err(error) if matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) => {
                    // With BadVersion after a lost reply it may be our withdrawal that came first.
                    if !unsure {
                        return Ok(false);
                    }
                    let found = client.retry(&patient(), || client.exists(place.path())).await?;
                    return Ok(found.is_none());
                }
                Err(error) if error.is_retriable() => {
                    unsure |= error.happened() == Happened::Maybe;
                    // Waits for the next connection.
                    client.retry(&patient(), || client.exists(&self.path)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The node of the barrier, which is created if it is not there.
    async fn read(&self) -> Result<Node> {
        let client = &self.client;
        loop {
            match client.retry(&patient(), || client.get(&self.path)).await {
                Ok(node) => return Ok(node),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
            create_containers(client, &self.path).await?;
            let mode = CreateMode::Persistent;
            match client.retry(&patient(), || client.create(&self.path, "", mode)).await {
                Err(error)
                    if !matches!(error.kind(), ErrorKind::NodeExists | ErrorKind::NoNode) =>
                {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }

    /// The parties of a round in the order of their coming, as seen from `me`.
    async fn line(&self, round: i32, me: i32) -> Result<Vec<(i32, String)>> {
        let client = &self.client;
        let names = client.retry(&patient(), || client.children(&self.path)).await?;
        let mut line: Vec<(i32, String)> =
            names.into_iter().filter_map(|name| Some((sequence(&name, round)?, name))).collect();
        line.sort_by_key(|(sequence, _)| sequence.wrapping_sub(me));
        Ok(line)
    }
}

/// The number of a party of this round.
fn sequence(name: &str, round: i32) -> Option<i32> {
    unprotected(name)?.strip_prefix(&format!("round-{round}-"))?.parse().ok()
}

/// The data after the end of the round that `node` shows.
fn ended(node: &Node, how: &str) -> String {
    let mut data = format!("{} {how}\n", node.stat.version);
    let before = std::str::from_utf8(&node.data).unwrap_or_default();
    for line in before.lines().take(ROUNDS_REMEMBERED - 1) {
        let _ = writeln!(data, "{line}");
    }
    data
}

/// What the data says about a round.
fn end_of(node: &Node, round: i32, me: i32) -> End {
    let text = std::str::from_utf8(&node.data).unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split(' ');
        if words.next().and_then(|number| number.parse().ok()) != Some(round) {
            continue;
        }
        let last = words.next().filter(|how| *how == "passed").and(words.next());
        return match last.and_then(|last| last.parse::<i32>().ok()) {
            Some(last) if me.wrapping_sub(last) <= 0 => {
                End::Passed(Arrival { round, is_last: me == last })
            }
            Some(_) => End::NotCounted,
            None => End::Reset,
        };
    }
    End::Forgotten
}
