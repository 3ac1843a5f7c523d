//! Leases that are obtained without waiting or not at all, and that expire: kazoo's
//! `NonBlockingLease` and `MultiNonBlockingLease`. For periodic jobs that one of many processes
//! executes.
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
//! Create the holder's node. If it exists and contains the own identifier, write it again, which
//! renews the lease. If it contains another identifier, write `clock` and compare the `mtime` of
//! both nodes: if the duration has passed, write the holder's node with the version that was read.
//!
//! # Guarantees
//! One holder per slot at a time, by the clock of the servers: the clocks of clients need not
//! agree. The lease is not bound to the session and purposely outlasts the process. No watches.
//!
//! # When things break
//! A lost reply or a dropped future can leave a lease that no process holds as a [`HeldLease`]. It
//! expires, or is renewed when the same identifier calls [`NonBlockingLease::obtain`] again.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Zxid};
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::{Meant, create_containers, join, patient};

/// Leases that are obtained without waiting or not at all.
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
    /// Returns a recipe for one lease on `path` with this duration. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, duration: Duration) -> NonBlockingLease {
        let slots = vec!["lease_holder".to_owned()];
        NonBlockingLease { client: client.clone(), path: path.into(), duration, slots }
    }

    /// Sets the number of simultaneous leases. All users of the path must use the same number.
    pub fn with_slots(mut self, count: usize) -> Result<NonBlockingLease> {
        if count == 0 {
            return Err(RecipeError::Misuse("no leases at all".to_owned()));
        }
        self.slots = (0..count).map(|slot| format!("lease_{slot}")).collect();
        Ok(self)
    }

    /// Obtains a lease, or renews the one of `identifier`. Returns `None` if other identifiers hold
    /// all leases.
    pub async fn obtain(&self, identifier: &str) -> Result<Option<HeldLease>> {
        // First pass: renew an own lease. Otherwise an identifier could obtain two.
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
        // Computed before the request, so that the holder stops before others may take over.
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
                        // The parent was never created, or the server deleted the empty container.
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
        // The times are truncated to ms; treat the last millisecond as still held.
        if holder != identifier
            && (own_only
                || self.server_time_ms().await? <= node.stat.mtime.saturating_add(duration_ms))
        {
            return Ok(None);
        }
        let written = client.set_idempotent(&path, &data, node.stat.version, &patient()).await;
        match written {
            Ok(stat) => held(stat.mzxid),
            // Another client wrote or deleted the node first.
            Err(error) if matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the time of the servers, which is the `mtime` of a write.
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

/// A lease that is held until it expires. Dropping it does not end the lease.
#[derive(Clone, Debug)]
pub struct HeldLease {
    client: Client,
    path: String,
    token: Zxid,
    deadline: Instant,
}

impl HeldLease {
    /// Returns whether the lease has not expired yet, by the clock of this process.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// Returns a number that increases with every lease of the slot.
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Ends the lease before it expires. Returns whether it was still held.
    pub async fn end(self) -> Result<bool> {
        Ok(Meant::Write(self.token).delete(&self.client, &self.path).await?)
    }
}
