//! Ids of 63 bits that consist of a time, the number of a worker, and a sequence number. Workers
//! lease their numbers from the tree.
//!
//! # On the tree
//! ```text
//! /ids/snowflake                               persistent: the layout of the ids: `1577836800000 10 12`
//!   workers/3                                  ephemeral: number 3 is in use
//!   times/3                                    persistent: the latest time that an id of number 3 may
//!                                              have, and its writer: `1763277000123 <uuid>`
//! ```
//!
//! # Steps
//! 1. Take the smallest free number by creating its ephemeral node. Read its time node, and write
//!    it conditional on that version: from then on, no former holder can write it.
//! 2. Reserve three seconds by writing a time that far ahead, whenever the reserved time is used
//!    up.
//! 3. Create ids. The time of an id is the clock's, but later than the time found in step 1, not
//!    earlier than that of the last id, and not later than the reserved time. Ids of the same
//!    millisecond differ in the sequence number.
//!
//! # Guarantees
//! No id is returned twice by any client on the path, whatever happens to clocks and sessions. A
//! former holder that has not noticed the end of its session is harmless: its ids are not later
//! than the time it has reserved, and those of the next holder are later. The ids of one handle
//! grow. Ids of different handles are in the order of time as far as their clocks agree. One write
//! in three seconds; no watches.
//!
//! # When things break
//! - The connection is lost: ids are available as long as time is reserved, then `next` waits for
//!   the reconnect.
//! - The session has ended: ids are available as long as time is reserved, then an error. Lease a
//!   number with a new client.
//! - The clock goes back: ids have the time of the last id, as many as there are sequence numbers;
//!   then `next` waits until the clock has caught up. If the clock is behind by more than the
//!   tolerance (default: ten seconds), the error is [`RecipeError::ClockBehind`]. The same holds
//!   for a clock that is behind the ids of the previous holder, also across restarts: such a number
//!   is not leased.
//! - All numbers are in use: [`RecipeError::Exhausted`].
//! - The layout differs from that of the path: [`RecipeError::Misuse`].
//! - The future of [`Snowflake::next`] is dropped: no id is lost.

mod layout;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironkeeper_client::Client;
use tokio::sync::Mutex;

pub use layout::{SnowflakeLayout, SnowflakeParts};
use worker::{Paths, Worker};

use crate::error::{RecipeError, Result};
use crate::naming::uuid::Uuid;
use crate::place::ensure_persistent;
use crate::reads::get_or_none;
use crate::shared::write::{Upon, write_once};

const RESERVE: Duration = Duration::from_secs(3);
const TOLERANCE: Duration = Duration::from_secs(10);

type Clock = dyn Fn() -> i64 + Send + Sync;

/// The settings of a [`Snowflake`].
#[must_use = "nothing happens before a number is leased"]
pub struct SnowflakeBuilder {
    client: Client,
    path: String,
    layout: SnowflakeLayout,
    reserve_ms: i64,
    tolerance_ms: i64,
    clock: Arc<Clock>,
}

impl fmt::Debug for SnowflakeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnowflakeBuilder")
            .field("path", &self.path)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl SnowflakeBuilder {
    /// Sets the layout of the ids. All clients on one path must use the same layout.
    pub fn layout(mut self, layout: SnowflakeLayout) -> SnowflakeBuilder {
        self.layout = layout;
        self
    }

    /// Sets the time that one write reserves. The default is three seconds. A longer time means
    /// fewer writes, and a longer wait for the next holder of the number.
    pub fn reserve(mut self, time: Duration) -> SnowflakeBuilder {
        self.reserve_ms = millis(time).max(1);
        self
    }

    /// Sets how far the clock may be behind before `next` returns an error. The default is ten
    /// seconds, the minimum is the reserved time.
    pub fn tolerance(mut self, time: Duration) -> SnowflakeBuilder {
        self.tolerance_ms = millis(time);
        self
    }

    /// Replaces the system clock by another clock: milliseconds since 1970.
    pub fn clock(mut self, clock: impl Fn() -> i64 + Send + Sync + 'static) -> SnowflakeBuilder {
        self.clock = Arc::new(clock);
        self
    }

    /// Leases the number of a worker.
    pub async fn lease(self) -> Result<Snowflake> {
        if let Some(problem) = self.layout.problem() {
            return Err(RecipeError::Misuse(format!("{}: {problem}", self.path)));
        }
        let paths = Paths::below(self.path.clone());
        self.agree(&paths).await?;
        let tolerance_ms = self.tolerance_ms.max(self.reserve_ms);
        let (client, now_ms) = (&self.client, (self.clock)());
        let workers = self.layout.workers();
        let (worker, last_ms) =
            Worker::lease(client, &paths, workers, now_ms, tolerance_ms).await?;
        // All sequence numbers of that millisecond count as used.
        let sequence = self.layout.sequence_max();
        let number = worker.number;
        Ok(Snowflake {
            path: self.path,
            layout: self.layout,
            number,
            reserve_ms: self.reserve_ms,
            tolerance_ms,
            clock: self.clock,
            state: Mutex::new(State { worker, last_ms, sequence }),
        })
    }

    /// Ensures that all clients on the path have the same layout.
    async fn agree(&self, paths: &Paths) -> Result<()> {
        let (client, ours) = (&self.client, self.layout.to_string());
        let theirs = loop {
            match get_or_none(client, &paths.root).await? {
                Some(node) if !node.data.is_empty() => break node,
                // The first client writes the layout. The next read returns the layout that was
                // written, also after a lost reply.
                Some(node) => {
                    let upon = Upon::stat(&node.stat);
                    match write_once(client, &paths.root, ours.as_bytes(), upon).await {
                        Err(error) if !error.client_error().is_some_and(|e| e.is_retriable()) => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
                None => ensure_persistent(client, &paths.root).await?,
            }
        };
        let text = std::str::from_utf8(&theirs.data).unwrap_or_default();
        match SnowflakeLayout::parse(text) {
            Some(layout) if layout == self.layout => Ok(()),
            Some(layout) => Err(RecipeError::Misuse(format!(
                "{}: ids are laid out as `{layout}` here, not as `{ours}`",
                self.path
            ))),
            None => Err(RecipeError::Malformed {
                path: self.path.clone(),
                why: "not the layout of ids".to_owned(),
            }),
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn system_ms() -> i64 {
    // A clock before 1970 counts as 1970, which is behind all stored times.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// A generator of ids with the number of a worker.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::naming::Snowflake;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let ids = Snowflake::lease(&client, "/ids/snowflake").await?;
///     let (first, second) = (ids.next().await?, ids.next().await?);
///     assert!(second > first);
///     assert_eq!(ids.layout().decode(first).worker, ids.worker());
///     assert_eq!(ids.next_uuid().await?.version(), 7);
///     ids.release().await?;
///     Ok(())
/// }
/// ```
pub struct Snowflake {
    path: String,
    layout: SnowflakeLayout,
    number: u32,
    reserve_ms: i64,
    tolerance_ms: i64,
    clock: Arc<Clock>,
    state: Mutex<State>,
}

impl fmt::Debug for Snowflake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snowflake")
            .field("path", &self.path)
            .field("worker", &self.number)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    worker: Worker,
    /// The time of the last id.
    last_ms: i64,
    /// The sequence number of the last id.
    sequence: u32,
}

impl Snowflake {
    /// Leases the number of a worker, with default settings.
    pub async fn lease(client: &Client, path: impl Into<String>) -> Result<Snowflake> {
        Snowflake::builder(client, path).lease().await
    }

    /// Returns a builder for ids on `path`. Makes no request.
    pub fn builder(client: &Client, path: impl Into<String>) -> SnowflakeBuilder {
        SnowflakeBuilder {
            client: client.clone(),
            path: path.into(),
            layout: SnowflakeLayout::default(),
            reserve_ms: millis(RESERVE),
            tolerance_ms: millis(TOLERANCE),
            clock: Arc::new(system_ms),
        }
    }

    /// Returns the path of the ids.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the number of this worker.
    pub fn worker(&self) -> u32 {
        self.number
    }

    /// Returns the layout of the ids.
    pub fn layout(&self) -> SnowflakeLayout {
        self.layout
    }

    /// Returns the next id.
    pub async fn next(&self) -> Result<i64> {
        let parts = self.next_parts().await?;
        self.layout.encode(parts).ok_or_else(|| {
            let what = "the time does not fit into the ids";
            RecipeError::Exhausted { path: self.path.clone(), what }
        })
    }

    /// Returns the next id as a UUID of version 7: the time, the sequence number and the worker in
    /// this order, then random bits. It is unique on the path, and elsewhere with high probability.
    pub async fn next_uuid(&self) -> Result<Uuid> {
        let SnowflakeParts { time_ms, worker, sequence } = self.next_parts().await?;
        let distinct = (u64::from(sequence) << 20) | u64::from(worker);
        Ok(Uuid::by_time(u64::try_from(time_ms).unwrap_or(0), distinct))
    }

    async fn next_parts(&self) -> Result<SnowflakeParts> {
        let mut state = self.state.lock().await;
        loop {
            let now_ms = (self.clock)();
            let behind_ms = state.last_ms.saturating_sub(now_ms);
            if behind_ms > self.tolerance_ms {
                return Err(RecipeError::ClockBehind { path: self.path.clone(), behind_ms });
            }
            let (time_ms, sequence) = if behind_ms < 0 {
                (now_ms, 0)
            } else if state.sequence < self.layout.sequence_max() {
                (state.last_ms, state.sequence + 1)
            } else {
                // The sequence numbers of that millisecond are used up.
                let wait_ms = u64::try_from(behind_ms).unwrap_or(0) + 1;
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                continue;
            };
            if time_ms > state.worker.reserved_ms {
                state.worker.write(time_ms.saturating_add(self.reserve_ms)).await?;
                // The write may have taken longer than the time that it has reserved.
                continue;
            }
            (state.last_ms, state.sequence) = (time_ms, sequence);
            return Ok(SnowflakeParts { time_ms, worker: self.number, sequence });
        }
    }

    /// Releases the number, and waits until other clients can lease it.
    pub async fn release(self) -> Result<()> {
        self.state.into_inner().worker.release().await
    }
}
