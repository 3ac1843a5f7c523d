//! The common part of the double barrier and the sized barrier: members gather below a path, enter
//! together, and leave together.
//!
//! The barrier is open if the node `ready` exists and is valid; the member that completes the
//! number creates it. `ready` may be stale, left by an earlier round whose last member's session
//! ended. It is valid iff `ready.mzxid > own.czxid`, or some present member's `czxid <
//! ready.mzxid`. A member that completes a round and finds a stale `ready` writes to it; for the
//! waiting members that write has the effect of a creation. The event of the creation or write is
//! sufficient by itself: members of kazoo delete `ready` as soon as they leave, possibly before
//! other members have read it.

use std::collections::BTreeSet;

use ironkeeper_client::{Client, CreateMode, ErrorKind, EventType, Stat, Version};

use super::tidy_watch::TidyWatch;
use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::naming::Uuid;
use crate::place::{Place, join, name_of, patient, unprotected};

/// The node that marks the number as complete.
const READY: &str = "ready";
const MEMBER: &str = "member";

/// How many members have to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Fixed(usize),
    /// The number is the data of the barrier's node, in decimal.
    InData,
}

#[derive(Clone, Debug)]
pub(super) struct Gathering {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) size: Size,
}

impl Gathering {
    pub(super) async fn enter(&self) -> Result<Membership> {
        // Before the own node is created: an error leaves nothing to withdraw, and `enter` does not
        // create a barrier that has no size.
        self.read_size().await?;
        let mode = CreateMode::Ephemeral;
        let place = Place::take(&self.client, &self.path, MEMBER, b"", mode).await?;
        let client = &self.client;
        let ready_path = join(&self.path, READY);
        loop {
            let (ready, watch) =
                client.retry(&patient(), || client.exists_and_watch(&ready_path)).await?;
            let ready_written = TidyWatch::new(client, watch);
            let (size, resized) = self.read_size().await?;
            let members = self.members().await?;
            if !members.contains(place.name()) {
                return Err(RecipeError::NodeGone { path: place.path().to_owned() });
            }
            if ready.as_ref().is_some_and(|ready| is_newer(ready, &place)) {
                break;
            }
            if members.len() >= size {
                self.open(&ready_path, &place).await?;
                break;
            }
            if let Some(ready) = &ready
                && self.is_round_on(ready, &members).await?
            {
                break;
            }
            let opened = match resized {
                None => Some(ready_written.fired().await?),
                Some(resized) => tokio::select! {
                    biased;
                    fired = ready_written.fired() => Some(fired?),
                    fired = resized.fired() => fired.map(|_| None)?,
                },
            };
            // `ready` was written after the own node was created. A later read may not find it: a
            // leaving member of Curator or kazoo deletes it without waiting for the members that
            // have not seen it yet.
            if matches!(opened, Some(EventType::NodeCreated | EventType::NodeDataChanged)) {
                break;
            }
        }
        if !place.is_of_this_session() {
            return Err(RecipeError::ForeignSession { path: place.path().to_owned() });
        }
        Ok(Membership { guard: Guard::new(place), path: self.path.clone() })
    }

    /// Returns how many members are inside.
    pub(super) async fn count(&self) -> Result<usize> {
        match self.members().await {
            Err(error) if error.kind() == Some(ErrorKind::NoNode) => Ok(0),
            members => Ok(members?.len()),
        }
    }

    async fn members(&self) -> Result<BTreeSet<String>> {
        members(&self.client, &self.path).await
    }

    async fn read_size(&self) -> Result<(usize, Option<TidyWatch>)> {
        if let Size::Fixed(size) = self.size {
            return Ok((size, None));
        }
        let client = &self.client;
        let (node, watch) = client.retry(&patient(), || client.get_and_watch(&self.path)).await?;
        let watch = TidyWatch::new(client, watch);
        let text = std::str::from_utf8(&node.data).unwrap_or_default();
        match text.trim().parse() {
            Ok(size) if size > 0 => Ok((size, Some(watch))),
            _ => {
                let why = format!("{:?} is not the size of a barrier", node.data);
                Err(RecipeError::Malformed { path: self.path.clone(), why })
            }
        }
    }

    /// Notifies all waiting members by creating `ready` or writing to it. If several members find
    /// the number complete at the same time, one of them does it.
    async fn open(&self, ready_path: &str, place: &Place) -> Result<()> {
        let client = &self.client;
        loop {
            let created = client
                .retry(&patient(), || client.create(ready_path, "", CreateMode::Persistent))
                .await;
            match created {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NodeExists => {}
                Err(error) => return Err(error.into()),
            }
            let found = client.retry(&patient(), || client.exists(ready_path)).await?;
            let Some(found) = found else { continue };
            if is_newer(&found, place) {
                return Ok(());
            }
            let set = client.retry(&patient(), || client.set(ready_path, "", found.version)).await;
            match set {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::BadVersion) => {
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether a member that was present when `ready` was written is still inside: then the
    /// round continues, and a member that came after the count belongs to it.
    async fn is_round_on(&self, ready: &Stat, members: &BTreeSet<String>) -> Result<bool> {
        let client = &self.client;
        for name in members {
            let path = join(&self.path, name);
            let found = client.retry(&patient(), || client.exists(&path)).await?;
            if found.is_some_and(|stat| stat.czxid < ready.mzxid) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether `name` is that of a member: of this recipe, of Curator (a UUID) or of kazoo (a
/// UUID without dashes). Other children are neither counted nor waited for.
fn is_member(name: &str) -> bool {
    let is_of_kazoo = || name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    unprotected(name) == Some(MEMBER) || name.parse::<Uuid>().is_ok() || is_of_kazoo()
}

fn is_newer(ready: &Stat, place: &Place) -> bool {
    ready.mzxid > place.czxid()
}

async fn members(client: &Client, path: &str) -> Result<BTreeSet<String>> {
    let names = client.retry(&patient(), || client.children(path)).await?;
    Ok(names.into_iter().filter(|name| is_member(name)).collect())
}

/// The membership in a round of a barrier. [`Membership::leave`] leaves together with the other
/// members; dropping the membership leaves at once.
#[derive(Debug)]
#[must_use = "a membership that is dropped leaves at once"]
pub struct Membership {
    guard: Guard,
    path: String,
}

impl Membership {
    /// Returns the guard of the member's node. It is lost when the session ends or another client
    /// deletes the node.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Leaves the barrier and waits until all members that are inside now have left.
    ///
    /// Dropping the future leaves at once, so that the other members do not wait for this one.
    pub async fn leave(self) -> Result<()> {
        let Membership { guard, path } = self;
        let client = guard.client().clone();
        let me = guard.node_name().to_owned();
        let mut staying = Some(guard);
        // A member that comes later belongs to the next round and is not waited for.
        let round = present(&client, &path, None).await?;
        let mut left = round.clone();
        loop {
            if let Some(guard) = &staying
                && !left.contains(&me)
            {
                return Err(RecipeError::NodeGone { path: guard.path().to_owned() });
            }
            let (Some(lowest), Some(highest)) = (left.first(), left.last()) else { return Ok(()) };
            let awaited = match &staying {
                Some(_) if left.len() == 1 => {
                    // The last member. All members that waited for `ready` have left.
                    let ready_path = join(&path, READY);
                    let deleted =
                        client.retry(&patient(), || client.delete(&ready_path, Version::Any)).await;
                    match deleted {
                        Err(error) if error.kind() != ErrorKind::NoNode => return Err(error.into()),
                        _ => {}
                    }
                    return release(staying.take()).await;
                }
                Some(_) if *lowest == me => highest,
                _ => lowest,
            };
            let awaited = join(&path, awaited);
            let watch = match client.retry(&patient(), || client.get_and_watch(&awaited)).await {
                Ok((_, watch)) => Some(watch),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(watch) = watch {
                // The member with the lowest name keeps its node until all other members have left.
                // They delete theirs at once, and wait for it.
                if name_of(&awaited) == left[0] {
                    release(staying.take()).await?;
                }
                watch.await?;
            }
            left = present(&client, &path, Some(&round)).await?;
        }
    }

    /// Leaves as [`Membership::leave`] does, waiting at most for `patience`; then this member
    /// leaves alone. Returns whether all members have left.
    pub async fn leave_within(self, patience: std::time::Duration) -> Result<bool> {
        match tokio::time::timeout(patience, self.leave()).await {
            Ok(left) => left.map(|()| true),
            Err(_) => Ok(false),
        }
    }
}

/// Returns the names of the present members, sorted; only those in `of`, if it is given.
async fn present(client: &Client, path: &str, of: Option<&[String]>) -> Result<Vec<String>> {
    let names = match members(client, path).await {
        Err(error) if error.kind() == Some(ErrorKind::NoNode) => BTreeSet::new(),
        names => names?,
    };
    let is_of = |name: &String| of.is_none_or(|round| round.contains(name));
    Ok(names.into_iter().filter(is_of).collect())
}

async fn release(guard: Option<Guard>) -> Result<()> {
    match guard {
        Some(guard) => guard.release().await,
        None => Ok(()),
    }
}
