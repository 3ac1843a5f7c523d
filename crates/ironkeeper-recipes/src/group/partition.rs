//! A set of items that is divided among the members of a group, each item to one member. kazoo's
//! `SetPartitioner`.
//!
//! # On the tree
//! ```text
//! /partitions/shards                           container
//!   party                                      a shallow party, see [`Party`]
//!     0b7c…e1-anna
//!     53a9…04-berta
//!   locks
//!     shard-1                                  a mutex per item, with kazoo's names, see
//!     shard-2                                  [`Mutex`](crate::lock::Mutex)
//! ```
//! This is kazoo's layout and kazoo's default rule: a `SetPartitioner` and kazoo's partitioners can
//! divide a set together, if the names of items and members consist of letters, digits and plain
//! punctuation.
//!
//! # Steps
//! 1. *Allocating*: wait until the members have not changed for a while. Every member computes the
//!    same shares from the same sorted list.
//! 2. Lock the mutex of each item in the share, in the order of the names. If the members change
//!    meanwhile, release all and start over.
//! 3. *Acquired*: the member holds the share, until step 4 or 5.
//! 4. *Release*: the members have changed. The member still holds the share, and other members wait
//!    for it: finish the work, release the share, and start over.
//! 5. *Failure*: the share is lost, because the session has ended or a node was deleted.
//!
//! # Guarantees
//! An item belongs to at most one member at a time, even if the members have different views of the
//! group, because the item's mutex decides. The mutex also provides a fencing token. When the
//! members do not change for long enough and each member releases its share on *Release*, every
//! item belongs to a member. One watch event per member and change of the members, and one per
//! mutex and change of its holder.
//!
//! Two members with the same name, for example one that returns while its old session is still
//! open, have the same share: the later one waits for the mutexes until the earlier one releases
//! them or its session ends. (kazoo's members count the name twice meanwhile.)
//!
//! # When things break
//! - The connection is lost: the share is in doubt ([`Partition::is_valid`]). The member keeps it
//!   if the session is reconnected.
//! - The session has ended: [`PartitionState::Failure`]; the other members divide the set again.
//! - A member does not release a share that other members wait for: they wait. No share is taken
//!   from its holder.
//! - The future of [`SetPartitioner::acquire`] is dropped: all mutexes are released; the member
//!   stays in the group.

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

/// The default of [`SetPartitioner::with_settling`].
const SETTLING: Duration = Duration::from_secs(1);

/// The state of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionState {
    /// The share is being computed and locked.
    Allocating,
    /// The member holds the share.
    Acquired,
    /// The member holds the share, but the members have changed and other members wait for it.
    Release,
    /// The share is lost.
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

/// A member of a group that divides a set.
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
    /// Joins the members that divide `items`, with the name `id`. All members should pass the same
    /// items.
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

    /// Sets how long the members must not change before shares are locked. The default is one
    /// second. A longer time means fewer changes of the shares when many members join or leave one
    /// after another.
    pub fn with_settling(mut self, settling: Duration) -> SetPartitioner {
        self.settling = settling;
        self
    }

    /// Sets the rule that returns the share of a member, given its name, all members, and all
    /// items, both sorted. All members must use the same rule. By default each of `n` members gets
    /// every n-th item.
    pub fn with_rule(
        mut self,
        rule: impl Fn(&str, &[String], &[String]) -> Vec<String> + Send + Sync + 'static,
    ) -> SetPartitioner {
        self.rule = Arc::new(rule);
        self
    }

    /// Returns the name of this member.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the names of all known members, sorted, always including this member.
    pub fn members(&self) -> Vec<String> {
        let mut members = self.party.participants();
        members.push(self.id.clone());
        members.sort();
        members.dedup();
        members
    }

    /// Waits until this member holds its share: *allocating*, then *acquired*. The share is empty
    /// if there are more members than items and none is left for this member.
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
                // Dropping the future of `locking` releases the mutexes that it has locked.
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

    /// Leaves the group: the other members divide the set again.
    pub async fn leave(self) -> Result<()> {
        self.party.leave().await
    }

    /// Returns the locks of this member's share; `None` if it is empty.
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

    /// Waits until the members differ from `members`.
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

/// The default rule, as in kazoo: each of `n` members gets every n-th item.
fn every_nth(me: &str, members: &[String], items: &[String]) -> Vec<String> {
    let Some(at) = members.iter().position(|member| member == me) else { return Vec::new() };
    items.iter().skip(at).step_by(members.len()).cloned().collect()
}

/// A share that a member holds. Release it with [`Partition::release`]; dropping it does the same
/// in the background.
#[derive(Debug)]
#[must_use = "a share that is dropped is given back"]
pub struct Partition<'a> {
    partitioner: &'a SetPartitioner,
    members: Vec<String>,
    held: Option<MultiGuard>,
}

impl Partition<'_> {
    /// Returns the items of the share, sorted.
    pub fn items(&self) -> Vec<String> {
        let mut items: Vec<String> = self.guards().filter_map(item_of).collect();
        items.sort();
        items
    }

    /// Returns the members among which the set was divided.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Returns the guard of an item, with its fencing token; `None` if the item is not in the
    /// share.
    pub fn guard(&self, item: &str) -> Option<&Guard> {
        self.guards().find(|guard| item_of(guard).as_deref() == Some(item))
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.held.iter().flat_map(|held| held.guards())
    }

    /// Returns whether, as far as this process knows, all items are held. Makes no request.
    pub fn is_valid(&self) -> bool {
        self.held.as_ref().is_none_or(MultiGuard::is_valid)
    }

    /// Returns the state of the share, as far as this process knows. Makes no request.
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

    /// Waits until the share has to be released ([`PartitionState::Release`]) or is lost
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

    /// Adds checks to a transaction, so that the server applies it only if all items are still
    /// held.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        match &self.held {
            Some(held) => held.fence(transaction),
            None => transaction,
        }
    }

    /// Releases the share.
    pub async fn release(self) -> Result<()> {
        match self.held {
            Some(held) => held.release().await,
            None => Ok(()),
        }
    }
}

/// Returns the item of a mutex.
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
