//! Objects that are held under a name until `release`.
//!
//! ```text
//! release NAME      -> NAME released
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ironkeeper_recipes::Guard;
use ironkeeper_recipes::barrier::Membership;
use ironkeeper_recipes::election::LeaderLatch;
use ironkeeper_recipes::group::{GroupMember, Party};
use ironkeeper_recipes::lock::WriteGuard;
use ironkeeper_recipes::node::{PersistentNode, TtlNode};
use ironkeeper_recipes::queue::Delivery;
use ironkeeper_recipes::service::Registration;
use tokio::sync::oneshot;

use crate::{Answer, Anything};

/// An object that can be held.
pub enum Held {
    Guard(Guard),
    Writing(WriteGuard),
    Latch(LeaderLatch),
    /// The work of a selector; it ends on a message.
    Selected(oneshot::Sender<()>),
    Registered(Registration),
    Inside(Membership),
    Delivered(Delivery),
    Member(GroupMember),
    Party(Party),
    /// The loop of a set partitioner; it ends on a message.
    Sharing(oneshot::Sender<()>),
    Node(PersistentNode),
    Ttl(TtlNode),
}

/// The held objects by name.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<HashMap<String, Held>>>);

impl Names {
    /// Stores `held` and returns the reply.
    pub fn hold(&self, name: &str, held: Held) -> String {
        self.names().insert(name.to_owned(), held);
        format!("{name} held")
    }

    pub fn take(&self, name: &str) -> Anything<Held> {
        Ok(self.names().remove(name).ok_or("no such name")?)
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn release(held: Held) -> Anything<()> {
    match held {
        Held::Guard(guard) => guard.release().await?,
        Held::Writing(guard) => guard.release().await?,
        Held::Latch(latch) => latch.close().await?,
        Held::Selected(done) | Held::Sharing(done) => drop(done.send(())),
        Held::Registered(registration) => registration.unregister().await?,
        Held::Inside(membership) => membership.leave().await?,
        Held::Delivered(delivery) => delivery.done().await?,
        Held::Member(member) => member.leave().await?,
        Held::Party(party) => party.leave().await?,
        Held::Node(node) => node.close().await?,
        Held::Ttl(node) => drop(node),
    }
    Ok(())
}

pub async fn obey(names: &Names, words: &[&str]) -> Answer {
    let ["release", name] = words[..] else { return Ok(None) };
    release(names.take(name)?).await?;
    Ok(Some(format!("{name} released")))
}
