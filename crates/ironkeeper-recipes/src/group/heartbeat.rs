//! Heartbeats: who lives, who has died, and who lives but does not get on.
//!
//! # On the tree
//! ```text
//! /heartbeats/workers        container
//!   known/anna               persistent: what anna says about herself; stays when she dies
//!   alive/anna               ephemeral: she lives; its data is the number of her last beat
//! ```
//!
//! # Steps
//! 1. [`Heartbeat::start`]: keep an ephemeral node; then write the persistent one.
//! 2. [`Heartbeat::beat`]: write the next number to the ephemeral node. The session keeps it alive
//!    without beats; a beat says that the work goes on, too.
//! 3. [`HeartbeatMonitor`]: follow both. Whoever is known and has no ephemeral node is dead. Whose number
//!    has not changed for too long is silent.
//! 4. [`Heartbeat::stop`]: remove the persistent node, then the ephemeral one.
//!
//! # Guarantees
//! Who has died is told as dead, also to a monitor that comes later; who has stopped is told as left.
//! Time is measured by the monitor's own clock, from the moment that it has seen the last beat: no two
//! clocks have to agree. A monitor without connection accuses nobody. One watch event per beat and
//! monitor.
//!
//! # When things break
//! - Disconnected: the node stays as long as the session; a beat waits for the reconnect. The monitor keeps
//!   what it knows, and begins to measure anew after the reconnect.
//! - Session over: others see us die; [`Heartbeat::beat`] fails. The monitor ends with
//!   [`Pulse::Ended`].
//! - The ephemeral node deleted by somebody else: told as a death, and alive again when the node has been
//!   created anew.
//! - Dropped without [`Heartbeat::stop`]: told as a death.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, ConnectionState, States};
use tokio::time::Instant;

use crate::cache::{CacheEvent, CacheEvents, TreeCache};
use crate::error::{RecipeError, Result};
use crate::group::roster::{Life, OwnEntry, entries};
use crate::guard::at;

/// One that lives, and says so.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::{Heartbeat, HeartbeatMonitor, Pulse};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let patience = Duration::from_secs(30);
///     let mut monitor = HeartbeatMonitor::open(&client, "/heartbeats/workers", patience).await?;
///     let anna = Heartbeat::start(&client, "/heartbeats/workers", "anna", "10.0.0.1").await?;
///     assert!(matches!(monitor.next().await, Some(Pulse::Alive { id, .. }) if id == "anna"));
///     anna.beat().await?;
///     assert!(matches!(monitor.next().await, Some(Pulse::Beat { number: 1, .. })));
///     drop(anna);
///     assert!(matches!(monitor.next().await, Some(Pulse::Dead { .. })));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Heartbeat {
    entry: OwnEntry,
    beats: AtomicU64,
}

impl Heartbeat {
    /// Begins to live under a name, with some words about ourselves. If the name is in use, waits until
    /// it is free.
    pub async fn start(
        client: &Client,
        path: &str,
        id: &str,
        about: impl Into<Bytes>,
    ) -> Result<Heartbeat> {
        let entry = OwnEntry::enter(client, path, id, about.into(), "0").await?;
        Ok(Heartbeat { entry, beats: AtomicU64::new(0) })
    }

    /// Our name.
    pub fn id(&self) -> &str {
        self.entry.id()
    }

    /// Says that the work goes on, and waits until that is written. Beats that come faster than they can
    /// be written are taken together.
    pub async fn beat(&self) -> Result<()> {
        let number = self.beats.fetch_add(1, Ordering::Relaxed) + 1;
        self.entry.alive().set_data(number.to_string()).await
    }

    /// Ends as planned: nobody takes us for dead.
    pub async fn stop(self) -> Result<()> {
        self.entry.sign_off().await
    }
}

/// What a monitor hears of somebody.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Pulse {
    /// It lives: it has come, or has come back.
    Alive {
        /// Its name.
        id: String,
        /// What it says about itself.
        about: Bytes,
    },
    /// It has said that its work goes on.
    Beat {
        /// Its name.
        id: String,
        /// How many beats there have been since its start.
        number: u64,
    },
    /// It lives, but has not said for too long that its work goes on. The next beat takes it back.
    Silent {
        /// Its name.
        id: String,
    },
    /// It has died.
    Dead {
        /// Its name.
        id: String,
        /// What it said about itself.
        about: Bytes,
    },
    /// It has ended as planned.
    Left {
        /// Its name.
        id: String,
    },
    /// The monitor sees nothing any more: the session is over. Nothing follows.
    Ended(RecipeError),
}

/// How somebody is, as a monitor knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It lives.
    Alive,
    /// It lives, but has not said for too long that its work goes on.
    Silent,
    /// It has died.
    Dead,
}

#[derive(Debug)]
struct Seen {
    about: Bytes,
    /// `None` is dead.
    life: Option<Life>,
    /// When the last beat was seen.
    since: Instant,
    is_silent: bool,
}

/// One that looks after others.
#[derive(Debug)]
pub struct HeartbeatMonitor {
    client: Client,
    cache: TreeCache,
    events: CacheEvents,
    states: States,
    patience: Duration,
    seen: BTreeMap<String, Seen>,
    /// Found out and not told yet.
    news: VecDeque<Pulse>,
    is_over: bool,
}

impl HeartbeatMonitor {
    /// Begins to look after all on `path`. Who lives and says nothing for longer than `patience` is
    /// silent.
    pub async fn open(client: &Client, path: &str, patience: Duration) -> Result<HeartbeatMonitor> {
        let states = client.states();
        let cache = TreeCache::start(client, path);
        cache.initialized().await?;
        Ok(HeartbeatMonitor {
            client: client.clone(),
            events: cache.events(),
            cache,
            states,
            patience,
            seen: BTreeMap::new(),
            news: VecDeque::new(),
            is_over: false,
        })
    }

    /// All who are known, as far as [`HeartbeatMonitor::next`] has told.
    pub fn health(&self) -> BTreeMap<String, Health> {
        let health = |seen: &Seen| match seen {
            Seen { life: None, .. } => Health::Dead,
            Seen { is_silent: true, .. } => Health::Silent,
            _ => Health::Alive,
        };
        self.seen.iter().map(|(id, seen)| (id.clone(), health(seen))).collect()
    }

    /// What happens next; `None` after [`Pulse::Ended`]. The first ones tell how all are who are known. May
    /// be dropped at any await: nothing is lost.
    pub async fn next(&mut self) -> Option<Pulse> {
        loop {
            if self.news.is_empty() && !self.is_over {
                self.compare();
            }
            if let Some(pulse) = self.news.pop_front() {
                return Some(pulse);
            }
            if self.is_over {
                return None;
            }
            let silence = self.seen.values().filter(|seen| seen.life.is_some() && !seen.is_silent);
            // A patience that never ends is one.
            let silence = silence.filter_map(|seen| seen.since.checked_add(self.patience)).min();
            tokio::select! {
                // Silence is the last thing to be believed.
                biased;
                Some(state) = self.states.next() => {
                    // What was not seen meanwhile is not held against anybody.
                    if state != ConnectionState::Suspended {
                        self.begin_anew();
                    }
                }
                event = self.events.next() => match event {
                    Some(CacheEvent::Ended(why)) => {
                        self.news.push_back(Pulse::Ended(why));
                        self.is_over = true;
                    }
                    Some(_) => {}
                    None => self.is_over = true,
                },
                () = at(silence) => self.find_silent(),
            }
        }
    }

    /// Compares what the cache holds with what was told.
    fn compare(&mut self) {
        let now = Instant::now();
        let found = entries(&self.cache);
        self.seen.retain(|id, _| {
            let stays = found.contains_key(id);
            if !stays {
                self.news.push_back(Pulse::Left { id: id.clone() });
            }
            stays
        });
        for (id, entry) in found {
            let known = self.seen.get(&id);
            let about = entry.known.or_else(|| known.map(|seen| seen.about.clone()));
            let about = about.unwrap_or_default();
            let life_before = known.map(|seen| seen.life.clone());
            if life_before.as_ref() == Some(&entry.alive) {
                continue;
            }
            let dead = || Pulse::Dead { id: id.clone(), about: about.clone() };
            let alive = || Pulse::Alive { id: id.clone(), about: about.clone() };
            match (&entry.alive, life_before.flatten()) {
                (None, _) => self.news.push_back(dead()),
                // Both between two looks.
                (Some(life), Some(before)) if life.since != before.since => {
                    self.news.extend([dead(), alive()]);
                }
                (Some(life), Some(_)) if number(&life.sign) > 0 => {
                    let number = number(&life.sign);
                    self.news.push_back(Pulse::Beat { id: id.clone(), number });
                }
                _ => self.news.push_back(alive()),
            }
            self.seen.insert(id, Seen { about, life: entry.alive, since: now, is_silent: false });
        }
    }

    fn begin_anew(&mut self) {
        let now = Instant::now();
        for seen in self.seen.values_mut() {
            seen.since = now;
        }
    }

    fn find_silent(&mut self) {
        if !self.client.is_in_touch() {
            return self.begin_anew();
        }
        let now = Instant::now();
        for (id, seen) in &mut self.seen {
            let is_due = seen.since.checked_add(self.patience).is_some_and(|due| due <= now);
            if is_due && seen.life.is_some() && !seen.is_silent {
                seen.is_silent = true;
                self.news.push_back(Pulse::Silent { id: id.clone() });
            }
        }
    }
}

/// The number of a beat; what somebody else has written there counts as none.
fn number(beat: &[u8]) -> u64 {
    std::str::from_utf8(beat).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
