//! The steps from a request to a guard that all locks with a queue of contenders share.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode};
use tokio::sync::broadcast;

use crate::error::{RecipeError, Result};
use crate::guard::{Guard, tell};
use crate::lock::event::{EVENTS_MAX, LockEvent, LockEvents};
use crate::place::Place;
use crate::queue_of_waiters::{Bases, Rule, Standing};

/// The properties of a contender, except for its name and its rule.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub(crate) client: Client,
    pub(crate) path: String,
    pub(crate) bases: Bases,
    pub(crate) data: Bytes,
    pub(crate) loses_on_suspend: bool,
    pub(crate) heeds_deadlocks: bool,
    events: broadcast::Sender<LockEvent>,
}

impl LockRequest {
    pub(crate) fn new(client: &Client, path: String, bases: Bases) -> LockRequest {
        LockRequest {
            client: client.clone(),
            path,
            bases,
            data: Bytes::new(),
            loses_on_suspend: false,
            heeds_deadlocks: false,
            events: broadcast::Sender::new(EVENTS_MAX),
        }
    }

    pub(crate) fn events(&self) -> LockEvents {
        LockEvents::new(&self.client, self.events.subscribe())
    }

    /// Creates a contender and waits until it is granted.
    pub(crate) async fn wait(&self, name: &str, rule: Rule) -> Result<Place> {
        let (mut place, listed) = self.queue(name).await?;
        let on_wait = |behind: &str| {
            let (path, behind) = (place.path().to_owned(), behind.to_owned());
            self.tell(LockEvent::Waiting { path, behind });
        };
        let on_deadlock = |cycle: &str| self.tell_of_deadlock(&place, cycle);
        let standing = self.standing(&place, rule);
        let inheritance = match standing.wait_telling(listed, on_wait, on_deadlock).await {
            Ok(inheritance) => inheritance,
            Err(error) => return Err(withdrawn(place, error).await),
        };
        if self.has_one_holder() {
            place.note_turn(inheritance);
        }
        Ok(place)
    }

    /// Creates a contender and deletes it if it is not granted immediately.
    pub(crate) async fn take_if_free(&self, name: &str, rule: Rule) -> Result<Option<Place>> {
        let (mut place, listed) = self.queue(name).await?;
        let standing = self.standing(&place, rule);
        let in_the_way = match listed {
            Some(names) => standing.judge(&names),
            None => standing.look().await,
        };
        let in_the_way = match in_the_way {
            Ok(in_the_way) => in_the_way,
            Err(error) => return Err(withdrawn(place, error).await),
        };
        if in_the_way.is_some() {
            place.withdraw().await?;
            return Ok(None);
        }
        if self.has_one_holder() {
            place.note_turn(None);
        }
        Ok(Some(place))
    }

    /// Returns whether the lock has one holder at a time, so that handovers are possible. With
    /// readers, the contender behind a holder is not necessarily granted next.
    fn has_one_holder(&self) -> bool {
        self.bases.len() == 1
    }

    /// Creates the contender node. Also returns the children of the path after the creation, if the
    /// list request succeeded.
    async fn queue(&self, name: &str) -> Result<(Place, Option<Vec<String>>)> {
        let mode = CreateMode::EphemeralSequential;
        let taking = Place::take_and_list(&self.client, &self.path, name, &self.data, mode);
        let (place, listed) = taking.await?;
        self.tell_of_place(&place);
        Ok((place, listed))
    }

    pub(crate) fn tell_of_place(&self, place: &Place) {
        self.tell(LockEvent::Queued { path: place.path().to_owned() });
    }

    pub(crate) fn tell_of_deadlock(&self, place: &Place, cycle: &str) {
        let (path, cycle) = (place.path().to_owned(), cycle.to_owned());
        self.tell(LockEvent::Deadlocked { path, cycle });
    }

    fn tell(&self, event: LockEvent) {
        tell(Some(&self.events), event);
    }

    fn standing<'a>(&self, place: &'a Place, rule: Rule) -> Standing<'a> {
        let (heeds_deadlocks, inherits) = (self.heeds_deadlocks, self.has_one_holder());
        Standing { place, bases: self.bases, rule, heeds_deadlocks, inherits }
    }

    /// Returns the guard of a granted contender.
    pub(crate) fn grant(&self, place: Place) -> Guard {
        self.tell(LockEvent::Granted { path: place.path().to_owned(), token: place.czxid() });
        Guard::new(place)
            .losing_on_suspend(self.loses_on_suspend)
            .telling(Some(self.events.clone()))
    }
}

/// Deletes the node before the error is returned. A drop would only send the request: a program
/// that ends because of the error would leave its node in line until its session expires, and block
/// all contenders behind it.
async fn withdrawn(place: Place, error: RecipeError) -> RecipeError {
    // If the node cannot be deleted, it is deleted with its session.
    let _ = place.withdraw().await;
    error
}

/// Awaits `acquiring` for at most `patience`. Returns `None` on timeout: dropping the future
/// withdraws the request.
pub(crate) async fn within<T>(
    patience: Duration,
    acquiring: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    match tokio::time::timeout(patience, acquiring).await {
        Ok(acquired) => acquired.map(Some),
        Err(_) => Ok(None),
    }
}
