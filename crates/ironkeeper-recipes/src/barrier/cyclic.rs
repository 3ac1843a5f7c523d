//! A barrier that opens for a fixed number of parties, round after round. The `CyclicBarrier` of
//! menagerie and of java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /barriers/step                           persistent; its version is the number of the round
//!   _c_<uuid>-round-7-0000000021           ephemeral: a party of round 7 that waits
//! ```
//! The data records how the last rounds ended, one per line: `6 passed 20` (the parties with
//! sequence numbers up to 20 passed) or `6 reset`.
//!
//! # Steps
//! 1. Read the barrier: its version is the round. Create an ephemeral sequential node for it.
//! 2. Read and watch the barrier; list its children. A party that finds the round complete ends it
//!    with one transaction, which checks that the version is still that of the round and that the
//!    nodes of all counted parties still exist.
//! 3. When the round has ended, the data shows which parties passed. A party that came too late
//!    starts again at 1.
//!
//! # Guarantees
//! A round ends with exactly as many parties as the size of the barrier, and the nodes of all of
//! them exist in the transaction that ends the round. A party that times out
//! ([`CyclicBarrier::wait_within`]) either withdrew before the end of the round or passed with the
//! others: the server decides, by the version. One watch event per waiting party and round; an
//! arrival causes no event.
//!
//! # When things break
//! - Disconnected: the wait continues after the reconnect.
//! - Session ended: the wait returns an error; the party does not count any more.
//! - Own node deleted by another client: [`RecipeError::NodeGone`] at the next read.
//! - [`CyclicBarrier::reset`]: all waiting parties get [`RecipeError::Broken`].
//! - The future dropped: the party withdraws, and the round needs another party.

use std::fmt::Write as _;
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Node, Version};
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::{Place, create_containers, join, patient, unprotected};

/// How many ended rounds the data records. A party whose round ended earlier than that cannot know
/// whether it passed, and gets [`RecipeError::Broken`].
const ROUNDS_REMEMBERED: usize = 32;

/// The largest size: the checks of more parties would not fit into one transaction.
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

/// A round that ended with all its parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The number of the round.
    pub round: i32,
    /// Whether this party has the highest sequence number of the round. Exactly one party has.
    pub is_last: bool,
}

/// How a round ended for one party.
enum End {
    Passed(Arrival),
    /// The party came too late for this round.
    NotCounted,
    Reset,
    /// The data does not record the round any more.
    Forgotten,
}

impl CyclicBarrier {
    /// Creates a barrier on `path` for `size` parties. All parties should use the same size. Sends
    /// no request.
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Result<CyclicBarrier> {
        if size == 0 || size > SIZE_MAX {
            let why = format!("a cyclic barrier is for 1 to {SIZE_MAX} parties, not {size}");
            return Err(RecipeError::Misuse(why));
        }
        Ok(CyclicBarrier { client: client.clone(), path: path.into(), size })
    }

    /// Returns the path of the barrier.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits until all parties have arrived.
    pub async fn wait(&self) -> Result<Arrival> {
        let arrived = self.wait_until(None).await?;
        Ok(arrived.expect("without a deadline nobody gives up"))
    }

    /// Waits until all parties have arrived, at most for `patience`. Returns `None` if the party
    /// withdrew before the round was complete. The withdrawal needs a reply of the server, so the
    /// wait continues while there is no connection.
    pub async fn wait_within(&self, patience: Duration) -> Result<Option<Arrival>> {
        self.wait_until(Some(from_now(patience))).await
    }

    /// Ends the round: all waiting parties get an error. The next round starts without parties.
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
            // If the lost request was applied, it has ended `round`; a repeated reset would break
            // the next round.
            match end_of(&self.read().await?, round, 0) {
                End::Reset => return Ok(()),
                End::Forgotten => return Err(lost.into()),
                End::Passed(_) | End::NotCounted => {}
            }
        }
    }

    /// Returns how many parties wait for the end of the round.
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
                // `Place` deletes the node in the background: the other parties do not read it any
                // more.
                End::Passed(arrival) => return Ok(Some(arrival)),
                End::NotCounted => {}
                End::Reset | End::Forgotten => {
                    return Err(RecipeError::Broken { path: self.path.clone() });
                }
            }
        }
    }

    /// Waits for the end of a round. Returns `None` if the party withdrew before.
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
                // Deleted by another client, or by the end of the session.
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
                // If the event and the deadline are ready together, the event counts.
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

    /// Tries to end the round. If the transaction is rejected, the caller's next read shows why.
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

    /// Withdraws the party if the round has not ended. Returns whether it withdrew.
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
                    // After a lost reply, BadVersion can mean that the withdrawal was applied and
                    // the round ended after it.
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

    /// Returns the node of the barrier, and creates the node if it does not exist.
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

    /// Returns the parties of a round in the order of their arrival. `me` is the reference for the
    /// wrap-around of sequence numbers.
    async fn line(&self, round: i32, me: i32) -> Result<Vec<(i32, String)>> {
        let client = &self.client;
        let names = client.retry(&patient(), || client.children(&self.path)).await?;
        let mut line: Vec<(i32, String)> =
            names.into_iter().filter_map(|name| Some((sequence(&name, round)?, name))).collect();
        line.sort_by_key(|(sequence, _)| sequence.wrapping_sub(me));
        Ok(line)
    }
}

/// Returns the sequence number of a party of this round.
fn sequence(name: &str, round: i32) -> Option<i32> {
    unprotected(name)?.strip_prefix(&format!("round-{round}-"))?.parse().ok()
}

/// Returns the new data of the barrier, with the end of the round that `node` shows.
fn ended(node: &Node, how: &str) -> String {
    let mut data = format!("{} {how}\n", node.stat.version);
    let before = std::str::from_utf8(&node.data).unwrap_or_default();
    for line in before.lines().take(ROUNDS_REMEMBERED - 1) {
        let _ = writeln!(data, "{line}");
    }
    data
}

/// Returns how the data records the end of a round.
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
