//! Heartbeats: which participants are alive, which are dead, and which are alive but make no
//! progress.
//!
//! # On the tree
//! ```text
//! /heartbeats/workers        container
//!   known/anna               persistent: anna's description of herself; stays after her session
//!   alive/anna               ephemeral: anna's session is open; data: the number of her last beat
//! ```
//!
//! # Steps
//! 1. [`Heartbeat::start`]: keep an ephemeral node; then write the persistent one.
//! 2. [`Heartbeat::beat`]: write the next number to the ephemeral node. The session keeps the node
//!    without beats; a beat shows that the work also makes progress.
//! 3. [`HeartbeatMonitor`]: follow both nodes. A participant with a persistent node and no
//!    ephemeral node is dead. A participant whose number has not changed for `patience` is silent.
//! 4. [`Heartbeat::stop`]: delete the persistent node, then the ephemeral one.
//!
//! # Guarantees
//! A participant whose session has ended is reported as dead, also to monitors that open later; one
//! that has stopped is reported as left. The monitor measures time with its own clock, from the
//! moment at which it received the last beat: no clocks have to agree. A disconnected monitor
//! reports no participant as silent or dead. One watch event per beat and monitor.
//!
//! # When things break
//! - The connection is lost: the ephemeral node stays as long as the session; a beat waits for the
//!   reconnect. The monitor keeps its state, and restarts the measurement of time after the
//!   reconnect.
//! - The session has ended: monitors report the participant as dead; [`Heartbeat::beat`] fails. A
//!   monitor ends with [`Pulse::Ended`].
//! - Another client deletes the ephemeral node: the participant is reported as dead, and as alive
//!   when the node has been created again.
//! - The `Heartbeat` is dropped without [`Heartbeat::stop`]: reported as dead.

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

/// A participant that reports that it is alive.
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
    /// Starts a participant with a name and a description of itself. If the name is in use, waits
    /// until it is free.
    pub async fn start(
        client: &Client,
        path: &str,
        id: &str,
        about: impl Into<Bytes>,
    ) -> Result<Heartbeat> {
        let entry = OwnEntry::enter(client, path, id, about.into(), "0").await?;
        Ok(Heartbeat { entry, beats: AtomicU64::new(0) })
    }

    /// Returns the name of this participant.
    pub fn id(&self) -> &str {
        self.entry.id()
    }

    /// Reports that the work makes progress, and waits until the beat is written. Beats that arrive
    /// faster than they can be written are combined.
    pub async fn beat(&self) -> Result<()> {
        let number = self.beats.fetch_add(1, Ordering::Relaxed) + 1;
        self.entry.alive().set_data(number.to_string()).await
    }

    /// Ends as planned: monitors report [`Pulse::Left`], not [`Pulse::Dead`].
    pub async fn stop(self) -> Result<()> {
        self.entry.sign_off().await
    }
}

/// An event of a participant, as seen by a monitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Pulse {
    /// The participant has started, or is alive again.
    Alive {
        /// The name of the participant.
        id: String,
        /// The description of the participant.
        about: Bytes,
    },
    /// The participant has sent a beat.
    Beat {
        /// The name of the participant.
        id: String,
        /// The number of beats since the start of the participant.
        number: u64,
    },
    /// The participant is alive, but has sent no beat for too long. The next beat ends this state.
    Silent {
        /// The name of the participant.
        id: String,
    },
    /// The participant has a persistent node and no ephemeral node: its session has ended.
    Dead {
        /// The name of the participant.
        id: String,
        /// The description of the participant.
        about: Bytes,
    },
    /// The participant has stopped as planned.
    Left {
        /// The name of the participant.
        id: String,
    },
    /// The monitor has ended, because its session has ended. This is the last event.
    Ended(RecipeError),
}

/// The state of a participant, as known to a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The participant is alive.
    Alive,
    /// The participant is alive, but has sent no beat for too long.
    Silent,
    /// The participant has a persistent node and no ephemeral node: its session has ended.
    Dead,
}

#[derive(Debug)]
struct Seen {
    about: Bytes,
    /// `None` if the participant is dead.
    life: Option<Life>,
    /// The time at which the last beat was received.
    since: Instant,
    is_silent: bool,
}

/// A monitor of all participants on a path.
#[derive(Debug)]
pub struct HeartbeatMonitor {
    client: Client,
    cache: TreeCache,
    events: CacheEvents,
    states: States,
    patience: Duration,
    seen: BTreeMap<String, Seen>,
    /// Detected events that were not returned yet.
    news: VecDeque<Pulse>,
    is_over: bool,
}

impl HeartbeatMonitor {
    /// Starts to monitor all participants on `path`. A participant that is alive and sends no beat
    /// for longer than `patience` is silent.
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

    /// Returns the state of all known participants, as of the last [`HeartbeatMonitor::next`].
    pub fn health(&self) -> BTreeMap<String, Health> {
        let health = |seen: &Seen| match seen {
            Seen { life: None, .. } => Health::Dead,
            Seen { is_silent: true, .. } => Health::Silent,
            _ => Health::Alive,
        };
        self.seen.iter().map(|(id, seen)| (id.clone(), health(seen))).collect()
    }

    /// Returns the next event; `None` after [`Pulse::Ended`]. The first events report the state of
    /// all known participants. The future may be dropped at any await: no event is lost.
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
            // If the sum overflows, there is no deadline.
            let silence = silence.filter_map(|seen| seen.since.checked_add(self.patience)).min();
            tokio::select! {
                // `biased`: the deadline is checked last, after all pending events.
                biased;
                Some(state) = self.states.next() => {
                    // Beats during the disconnection were not received, so restart the measurement.
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

    /// Compares the content of the cache with the state that was reported.
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
                // The node was deleted and created again between two comparisons.
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

/// Returns the number of a beat; 0 for other data, which another client has written.
fn number(beat: &[u8]) -> u64 {
    std::str::from_utf8(beat).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
