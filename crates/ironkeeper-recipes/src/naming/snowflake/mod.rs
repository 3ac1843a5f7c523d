//! Ids of 63 bits made of a time, the number of a worker, and a count, with numbers that are leased from
//! the tree.
//!
//! # On the tree
//! ```text
//! /ids/snowflake                               persistent: the layout of the ids: `1577836800000 10 12`
//!   workers/3                                  ephemeral: number 3 is in use
//!   times/3                                    persistent: no id of number 3 is later than this, and who
//!                                              has written that: `1763277000123 <uuid>`
//! ```
//!
//! # Steps
//! 1. Take the smallest number that is free, by its ephemeral node. Read its time, and write it from the
//!    version that was read: from then on, nobody else can.
//! 2. Reserve three seconds by writing a time that far ahead, whenever the last one is used up.
//! 3. Hand out ids: the time is that of the clock, but later than the one found at first, never earlier than
//!    that of the last id, and never later than the one that is reserved. Ids of the same millisecond
//!    are counted.
//!
//! # Guarantees
//! No id is handed out twice by anybody on the path, whatever happens to clocks and sessions. A holder
//! whose session is over and who does not know it is no danger: its ids are no later than what it has reserved,
//! and those of its heir are later. The ids of one handle grow. Of two handles, the ids are in the order
//! of time as far as their clocks agree. One write in three seconds; nobody is woken.
//!
//! # When things break
//! - Disconnected: ids go on as long as time is reserved, then wait for the reconnect.
//! - Session over: the same, then an error. Lease a number with a new client.
//! - The clock goes back: ids go on with the time of the last one, as many as the count allows; then they
//!   wait until the clock has caught up. If it is further behind than is tolerated (ten seconds, unless it
//!   is said): [`RecipeError::ClockBehind`]. The same goes for a clock that is behind the ids of whoever had
//!   the number before, also across restarts: such a number is not leased.
//! - All numbers in use: [`RecipeError::Exhausted`].
//! - Another layout than the others on the path: [`RecipeError::Misuse`].
//! - The future of [`Snowflake::next`] dropped: no id is lost.

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

/// How ids are made.
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
    /// How many bits are for what. All on one path have to say the same.
    pub fn layout(mut self, layout: SnowflakeLayout) -> SnowflakeBuilder {
        self.layout = layout;
        self
    }

    /// How much time one write reserves: three seconds, unless it is said. Longer means fewer writes, and a
    /// longer wait for whoever takes the number over.
    pub fn reserve(mut self, time: Duration) -> SnowflakeBuilder {
        self.reserve_ms = millis(time).max(1);
        self
    }

    /// How far the clock may be behind before that is an error: ten seconds, unless it is said. Not less
    /// than is reserved.
    pub fn tolerance(mut self, time: Duration) -> SnowflakeBuilder {
        self.tolerance_ms = millis(time);
        self
    }

    /// Another clock than the system's: milliseconds since 1970.
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
        // As if the whole count of that millisecond had been used.
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

    /// Makes sure that all on the path have the same layout.
    async fn agree(&self, paths: &Paths) -> Result<()> {
        let (client, ours) = (&self.client, self.layout.to_string());
        let theirs = loop {
            match get_or_none(client, &paths.root).await? {
                Some(node) if !node.data.is_empty() => break node,
                // The first one says it. Whoever it is, the next look finds it, also after a lost reply.
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
    // A clock before 1970 is far behind everything.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// Makes ids under the number of a worker.
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
    /// Its count.
    sequence: u32,
}

impl Snowflake {
    /// Leases the number of a worker, with everything as it is unless it is said.
    pub async fn lease(client: &Client, path: impl Into<String>) -> Result<Snowflake> {
        Snowflake::builder(client, path).lease().await
    }

    /// Ids on `path`. Makes no request.
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

    /// The path of the ids.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Our number.
    pub fn worker(&self) -> u32 {
        self.number
    }

    /// How many bits are for what.
    pub fn layout(&self) -> SnowflakeLayout {
        self.layout
    }

    /// The next id.
    pub async fn next(&self) -> Result<i64> {
        let parts = self.next_parts().await?;
        self.layout.encode(parts).ok_or_else(|| {
            let what = "the time does not fit into the ids";
            RecipeError::Exhausted { path: self.path.clone(), what }
        })
    }

    /// The next id as a UUID of version 7: the time, the count and the worker in this order, then chance. It
    /// is as unique on the path, and elsewhere by chance.
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
                // The count of that millisecond is used up.
                let wait_ms = u64::try_from(behind_ms).unwrap_or(0) + 1;
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                continue;
            };
            if time_ms > state.worker.reserved_ms {
                state.worker.write(time_ms.saturating_add(self.reserve_ms)).await?;
                // The write may have taken longer than what it has reserved.
                continue;
            }
            (state.last_ms, state.sequence) = (time_ms, sequence);
            return Ok(SnowflakeParts { time_ms, worker: self.number, sequence });
        }
    }

    /// Gives the number back, and waits until others can have it.
    pub async fn release(self) -> Result<()> {
        self.state.into_inner().worker.release().await
    }
}
