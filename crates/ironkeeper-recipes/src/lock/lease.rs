//! Leases that are had at once or not at all, and that end by themselves: kazoo's `NonBlockingLease`
//! and `MultiNonBlockingLease`. For jobs that one of many shall do once in a while.
//!
//! # On the tree
//! ```text
//! /leases/nightly
//!   lease_holder           persistent; data: duration in ms, a space, who has it
//!   clock                  persistent; written to read the clock of the servers
//! ```
//! With several slots there are `lease_0`, `lease_1` and so on in place of `lease_holder`.
//!
//! # Steps
//! Create the holder's node. If it is there and ours, write it again: the lease begins anew. If it is
//! another's, write `clock` and compare its time of modification with that of the holder's node: when
//! the duration has passed, write the holder's node with the version that was read.
//!
//! # Guarantees
//! One holder per slot at a time, on the clock of the servers: no clocks of clients have to agree. The
//! lease is not bound to the session: it outlives the process, which is what it is for. No watches.
//!
//! # When things break
//! A lost reply or a dropped future can leave a lease that nobody knows of; it ends with its time, or
//! when the same identifier asks again.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Zxid};
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::{Meant, create_containers, join, patient};

/// Leases that are had at once or not at all.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::NonBlockingLease;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let day = Duration::from_secs(24 * 60 * 60);
///     let lease = NonBlockingLease::new(&client, "/leases/nightly", day);
///     if let Some(tonight) = lease.obtain("host-1").await? {
///         assert!(tonight.is_valid());
///     }
///     assert!(lease.obtain("host-2").await?.is_none());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "MultiNonBlockingLease")]
pub struct NonBlockingLease {
    client: Client,
    path: String,
    duration: Duration,
    slots: Vec<String>,
}

impl NonBlockingLease {
    /// One lease on `path`, for so long.
    pub fn new(client: &Client, path: impl Into<String>, duration: Duration) -> NonBlockingLease {
        let slots = vec!["lease_holder".to_owned()];
        NonBlockingLease { client: client.clone(), path: path.into(), duration, slots }
    }

    /// So many leases at a time. Everybody has to give the same number.
    pub fn with_slots(mut self, count: usize) -> Result<NonBlockingLease> {
        if count == 0 {
            return Err(RecipeError::Misuse("no leases at all".to_owned()));
        }
        self.slots = (0..count).map(|slot| format!("lease_{slot}")).collect();
        Ok(self)
    }

    /// Takes a lease, or renews the one that `identifier` has. `None` if all are taken.
    pub async fn obtain(&self, identifier: &str) -> Result<Option<HeldLease>> {
        // One's own first: otherwise an identifier could have two.
        for own_only in [true, false] {
            for slot in &self.slots {
                if let Some(held) = self.obtain_slot(slot, identifier, own_only).await? {
                    return Ok(Some(held));
                }
            }
        }
        Ok(None)
    }

    async fn obtain_slot(
        &self,
        slot: &str,
        identifier: &str,
        own_only: bool,
    ) -> Result<Option<HeldLease>> {
        let (client, path) = (&self.client, join(&self.path, slot));
        let duration_ms = i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX);
        let data = format!("{duration_ms} {identifier}");
        // From before the request, so that the holder gives up before others may take over.
        let deadline = from_now(self.duration);
        let held = |token: Zxid| {
            Ok(Some(HeldLease { client: client.clone(), path: path.clone(), token, deadline }))
        };
        let node = match client.retry(&patient(), || client.get(&path)).await {
            Ok(node) => node,
            Err(error) if error.kind() == ErrorKind::NoNode && own_only => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NoNode => {
                let mode = CreateMode::Persistent;
                loop {
                    let created = client.create_idempotent(&path, &data, mode, &patient()).await;
                    return match created {
                        Ok(created) => held(created.stat.mzxid),
                        Err(error) if error.kind() == ErrorKind::NodeExists => Ok(None),
                        // Never made, or empty and taken away by the server.
                        Err(error) if error.kind() == ErrorKind::NoNode => {
                            create_containers(client, &path).await?;
                            continue;
                        }
                        Err(error) => Err(error.into()),
                    };
                }
            }
            Err(error) => return Err(error.into()),
        };
        let Some((duration_ms, holder)) = parse(&node.data) else {
            let why = "not a lease".to_owned();
            return Err(RecipeError::Malformed { path, why });
        };
        // Times are cut to milliseconds: the one in which it ends may be still its holder's.
        if holder != identifier
            && (own_only
                || self.server_time_ms().await? <= node.stat.mtime.saturating_add(duration_ms))
        {
            return Ok(None);
        }
        let written = client.set_idempotent(&path, &data, node.stat.version, &patient()).await;
        match written {
            Ok(stat) => held(stat.mzxid),
            // Another was faster.
            Err(error) if matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The clock of the servers, as a write tells it.
    async fn server_time_ms(&self) -> Result<i64> {
        let path = join(&self.path, "clock");
        let stat = self
            .client
            .retry(&patient(), || self.client.set_or_create(&path, "", CreateMode::Persistent))
            .await?;
        Ok(stat.mtime)
    }
}

fn parse(data: &[u8]) -> Option<(i64, &str)> {
    let (duration_ms, holder) = std::str::from_utf8(data).ok()?.split_once(' ')?;
    Some((duration_ms.parse().ok().filter(|ms| *ms >= 0)?, holder))
}

/// A lease that is held until its time is over. Dropping it does not end it.
#[derive(Clone, Debug)]
pub struct HeldLease {
    client: Client,
    path: String,
    token: Zxid,
    deadline: Instant,
}

impl HeldLease {
    /// Whether its time is not over yet, by our own clock.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// Grows with every lease of the slot.
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Ends it before its time, if it is still ours. Says whether it was.
    pub async fn end(self) -> Result<bool> {
        Ok(Meant::Write(self.token).delete(&self.client, &self.path).await?)
    }
}
