//! A set of things shared out among the members of a group, each to one of them. kazoo's
//! `SetPartitioner`.
//!
//! # On the tree
//! ```text
//! /partitions/shards                           container
//!   party                                      a shallow party, see [`Party`]
//!     0b7c…e1-anna
//!     53a9…04-berta
//!   locks
//!     shard-1                                  a mutex per thing, with kazoo's names, see
//!     shard-2                                  [`Mutex`](crate::lock::Mutex)
//! ```
//! This is kazoo's layout and kazoo's default rule: its partitioners and ours share out a set together, if things and
//! members have names of letters, digits and plain punctuation.
//!
//! # Steps
//! 1. *Allocating*: wait until the members have not changed for a while. Every member works out the same
//!    shares from the same sorted list.
//! 2. Take the mutex of everything in our share, in the order of their names. If the members change
//!    meanwhile, give all back and begin again.
//! 3. *Acquired*: the share is ours, until
//! 4. *Release*: the members have changed. The share is ours still, and others wait for it: finish, give it
//!    back, and begin again; or
//! 5. *Failure*: it is lost, with the session or by a deletion.
//!
//! # Guarantees
//! A thing belongs to one member at a time, whatever each of them believes about the members: that is up
//! to its mutex, which gives a fencing token for it, too. When the members stay the same for long enough and
//! everybody gives back what is wanted, everything belongs to somebody. One watch event per member and
//! change of the members, and one per mutex and hand-over.
//!
//! Two members with one name, such as one that comes back while its old session still lives, have one share: the
//! later one waits for its mutexes until the other is gone. (kazoo's members count the name twice meanwhile.)
//!
//! # When things break
//! - Disconnected: the share is in doubt ([`Partition::is_valid`]), and stays ours if the session does.
//! - Session over: [`PartitionState::Failure`]; the others share anew.
//! - A member that does not give back what others wait for: they wait. Nothing is taken from anybody.
//! - The future of [`SetPartitioner::acquire`] dropped: all is given back; we remain a member.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_client::{Client, Transaction};

use crate::cache::CacheEvent;
use crate::error::{RecipeError, Result};
use crate::escape::{from_name, to_name};
use crate::group::party::Party;
use crate::guard::Guard;
use crate::lock::{MultiGuard, MultiLock};
use crate::place::{join, name_of};

/// How long the members must not change before shares are taken, unless it is said.
const SETTLING: Duration = Duration::from_secs(1);

/// Where a share is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionState {
    /// It is being worked out and taken.
    Allocating,
    /// It is ours.
    Acquired,
    /// It is ours, and others wait for it, since the members have changed.
    Release,
    /// It is lost.
    Failure,
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PartitionState::Allocating => "allocating",
            PartitionState::Acquired => "acquired",
            PartitionState::Release => "release",
            PartitionState::Failure => "failure",
        })
    }
}

type Rule = dyn Fn(&str, &[String], &[String]) -> Vec<String> + Send + Sync;

/// A member of a group that shares out a set.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::{PartitionState, SetPartitioner};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     async fn work_on(_: Vec<String>) {}
///
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let shards = ["shard-1", "shard-2", "shard-3"];
///     let mut anna = SetPartitioner::join(&client, "/partitions/shards", shards, "anna")
///         .await?
///         .with_settling(Duration::from_millis(10));
///     loop {
///         let share = anna.acquire().await?;
///         assert_eq!(share.items(), shards); // alone, she has them all
///         tokio::select! {
///             () = work_on(share.items()) => {}
///             state = share.ended() => assert_eq!(state, PartitionState::Release),
///         }
///         share.release().await?; // for others, if there are any
///         break;
///     }
///     anna.leave().await?;
///     Ok(())
/// }
/// ```
pub struct SetPartitioner {
    client: Client,
    id: String,
    locks: String,
    items: Vec<String>,
    party: Party,
    settling: Duration,
    rule: Arc<Rule>,
}

impl fmt::Debug for SetPartitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetPartitioner")
            .field("id", &self.id)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}

impl SetPartitioner {
    /// Joins those who share out `items`, about which all should say the same, with a name of our own.
    pub async fn join<I: Into<String>>(
        client: &Client,
        path: &str,
        items: impl IntoIterator<Item = I>,
        id: impl Into<String>,
    ) -> Result<SetPartitioner> {
        let mut items: Vec<String> = items.into_iter().map(Into::into).collect();
        items.sort();
        items.dedup();
        if items.is_empty() {
            return Err(RecipeError::Misuse(format!("{path}: there is nothing to share out")));
        }
        let id = id.into();
        let party = Party::join_shallow(client, join(path, "party"), &id).await?;
        let (client, locks) = (client.clone(), join(path, "locks"));
        let rule = Arc::new(every_nth);
        Ok(SetPartitioner { client, id, locks, items, party, settling: SETTLING, rule })
    }

    /// How long the members must not change before shares are taken: one second, unless it is said. Longer
    /// means fewer changes when many come or go one after another.
    pub fn with_settling(mut self, settling: Duration) -> SetPartitioner {
        self.settling = settling;
        self
    }

    /// Which items are the share of a member, given its name, all members, and all items, both
    /// sorted. All members must have the same rule. Without this, of `n` members each gets every n-th
    /// item.
    pub fn with_rule(
        mut self,
        rule: impl Fn(&str, &[String], &[String]) -> Vec<String> + Send + Sync + 'static,
    ) -> SetPartitioner {
        self.rule = Arc::new(rule);
        self
    }

    /// Our name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The names of all members as they are known now, sorted; our own is always among them.
    pub fn members(&self) -> Vec<String> {
        let mut members = self.party.participants();
        members.push(self.id.clone());
        members.sort();
        members.dedup();
        members
    }

    /// Waits until our share is ours: *allocating*, then *acquired*. It may be empty, when there are
    /// more members than items.
    pub async fn acquire(&mut self) -> Result<Partition<'_>> {
        let this = &*self;
        loop {
            let members = this.settled().await?;
            let locks = this.share(&members)?;
            let locking = async {
                match &locks {
                    Some(locks) => locks.lock().await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::select! {
                biased;
                // What is held so far is given back as the future is dropped.
                changed = this.changed(&members) => changed?,
                held = locking => {
                    let held = held?;
                    if this.members() == members {
                        return Ok(Partition { partitioner: this, members, held });
                    }
                }
            }
        }
    }

    /// Leaves the group: the others share anew.
    pub async fn leave(self) -> Result<()> {
        self.party.leave().await
    }

    /// The locks of our share; `None` if it is empty.
    fn share(&self, members: &[String]) -> Result<Option<MultiLock>> {
        let share = (self.rule)(&self.id, members, &self.items);
        if let Some(foreign) = share.iter().find(|item| self.items.binary_search(item).is_err()) {
            let why = format!("{}: {foreign:?} is not one of the items", self.party.path());
            return Err(RecipeError::Misuse(why));
        }
        if share.is_empty() {
            return Ok(None);
        }
        let paths = share.iter().map(|item| join(&self.locks, &to_name(item)));
        Ok(Some(MultiLock::new(&self.client, paths)?.with_kazoo_names()))
    }

    /// Waits until the members have not changed for a while.
    async fn settled(&self) -> Result<Vec<String>> {
        loop {
            let members = self.members();
            match tokio::time::timeout(self.settling, self.changed(&members)).await {
                Ok(changed) => changed?,
                Err(_) => return Ok(members),
            }
        }
    }

    /// Resolves when the members are not these.
    async fn changed(&self, members: &[String]) -> Result<()> {
        let mut events = self.party.events();
        while self.members() == members {
            match events.next().await {
                Some(CacheEvent::Ended(why)) => return Err(why),
                Some(_) => {}
                None => return Err(RecipeError::Closed { path: self.party.path().to_owned() }),
            }
        }
        Ok(())
    }
}

/// Of `n` members each gets every n-th item, as with kazoo.
fn every_nth(me: &str, members: &[String], items: &[String]) -> Vec<String> {
    let Some(at) = members.iter().position(|member| member == me) else { return Vec::new() };
    items.iter().skip(at).step_by(members.len()).cloned().collect()
}

/// A share that is ours. Give it back with [`Partition::release`]; dropping it does the same in the
/// background.
#[derive(Debug)]
#[must_use = "a share that is dropped is given back"]
pub struct Partition<'a> {
    partitioner: &'a SetPartitioner,
    members: Vec<String>,
    held: Option<MultiGuard>,
}

impl Partition<'_> {
    /// What is ours, sorted.
    pub fn items(&self) -> Vec<String> {
        let mut items: Vec<String> = self.guards().filter_map(item_of).collect();
        items.sort();
        items
    }

    /// The members among whom the set was shared out.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// The guard of an item, with its fencing token; `None` if it is not in our share.
    pub fn guard(&self, item: &str) -> Option<&Guard> {
        self.guards().find(|guard| item_of(guard).as_deref() == Some(item))
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.held.iter().flat_map(|held| held.guards())
    }

    /// Whether, as far as this process knows, all of it is ours. Makes no request.
    pub fn is_valid(&self) -> bool {
        self.held.as_ref().is_none_or(MultiGuard::is_valid)
    }

    /// Where it is in its life, as far as this process knows. Makes no request.
    pub fn state(&self) -> PartitionState {
        let is_lost = self.guards().any(Guard::is_known_lost);
        if is_lost || self.partitioner.client.state().is_final() {
            PartitionState::Failure
        } else if self.partitioner.members() != self.members {
            PartitionState::Release
        } else {
            PartitionState::Acquired
        }
    }

    /// Resolves when the share has to be given back ([`PartitionState::Release`]) or is lost
    /// ([`PartitionState::Failure`]).
    pub async fn ended(&self) -> PartitionState {
        let lost = async {
            match &self.held {
                Some(held) => held.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = lost => PartitionState::Failure,
            changed = self.partitioner.changed(&self.members) => match changed {
                Ok(()) => PartitionState::Release,
                Err(_) => PartitionState::Failure,
            },
        }
    }

    /// Lets a transaction take place only if all of the share is still ours.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        match &self.held {
            Some(held) => held.fence(transaction),
            None => transaction,
        }
    }

    /// Gives it back.
    pub async fn release(self) -> Result<()> {
        match self.held {
            Some(held) => held.release().await,
            None => Ok(()),
        }
    }
}

/// The item that a mutex stands for.
fn item_of(guard: &Guard) -> Option<String> {
    from_name(name_of(guard.place().parent()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_item_is_in_one_share_and_shares_differ_by_one_at_most(
            members in 1_usize..9,
            items in 1_usize..40,
        ) {
            let names = |count: usize| (0..count).map(|n| format!("{n:02}")).collect::<Vec<_>>();
            let (members, items) = (names(members), names(items));
            let shares: Vec<Vec<String>> =
                members.iter().map(|member| every_nth(member, &members, &items)).collect();
            let mut all = shares.concat();
            all.sort();
            prop_assert_eq!(all, items);
            let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
