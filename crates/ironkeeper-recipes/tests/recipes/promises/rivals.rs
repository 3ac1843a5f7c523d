//! Connections lost before and after every request, with a rival that acts before the retry: it
//! takes what the request may have freed, or changes what the request may have changed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::election::{Offer, StaticElection};
use ironkeeper_recipes::lock::{
    MultiLock, Mutex, NonBlockingLease, ReadWriteLock, Semaphore, SemaphoreMutex, SingleNodeLock,
};
use ironkeeper_recipes::naming::{NameService, SegmentIds, SequentialIds};
use ironkeeper_recipes::queue::{IdQueue, Order, PriorityQueue, Queue, SimpleQueue, WorkQueue};
use ironkeeper_recipes::shared::{AtomicLong, Set};
use ironkeeper_recipes::{Guard, Result};
use ironkeeper_testing::Direction;

use crate::world::{World, with_every_cut_and_a_rival};

/// One of the two clients, with the path of the round.
#[derive(Clone)]
struct Actor {
    client: Client,
    path: String,
}

/// Runs `work` and `rival`; `after` checks both results. The rival's is `None` if it did not run.
async fn check<T: 'static>(
    work: impl AsyncFn(Actor) -> T,
    rival: impl AsyncFn(Actor) -> T,
    after: impl AsyncFn(T, Option<T>, Actor),
) {
    let world = World::start().await;
    let steady = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let path = |round: usize| format!("/{direction:?}/{round}");
        let given = Rc::new(RefCell::new(None));
        // Background requests of the work may also be cut, while `after` runs.
        let is_judged = Rc::new(Cell::new(false));
        with_every_cut_and_a_rival(
            &world,
            direction,
            |client, round| {
                let (given, steady, path) = (given.clone(), steady.clone(), path(round));
                let (work, after, is_judged) = (&work, &after, is_judged.clone());
                is_judged.set(false);
                async move {
                    let ours = work(Actor { client, path: path.clone() }).await;
                    is_judged.set(true);
                    let theirs = given.take();
                    after(ours, theirs, Actor { client: steady, path }).await;
                }
            },
            |round| {
                let (given, steady, path) = (given.clone(), steady.clone(), path(round));
                let (rival, is_judged) = (&rival, is_judged.clone());
                async move {
                    if is_judged.get() {
                        return;
                    }
                    let theirs = rival(Actor { client: steady, path }).await;
                    given.replace(Some(theirs));
                }
            },
        )
        .await;
    }
}

/// Releases a lock; a rival that finds it free takes it and keeps it despite the retries.
async fn check_lock<G>(
    lock: impl AsyncFn(&Actor) -> Result<G>,
    try_lock: impl AsyncFn(&Actor) -> Result<Option<G>>,
    release: impl AsyncFn(G) -> Result<()>,
    is_held: impl AsyncFn(&G) -> bool,
) where
    G: 'static,
{
    let is_leaving = Cell::new(false);
    check(
        async |actor| {
            is_leaving.set(false);
            let guard = lock(&actor).await.unwrap();
            is_leaving.set(true);
            release(guard).await.unwrap();
            None
        },
        async |actor| {
            let guard = try_lock(&actor).await.unwrap()?;
            if is_leaving.get() {
                return Some(guard);
            }
            // The first client has not acquired the lock yet.
            release(guard).await.unwrap();
            None
        },
        async |_, taken, actor| {
            if let Some(guard) = taken.flatten() {
                assert!(is_held(&guard).await, "{}: it was taken away", actor.path);
                release(guard).await.unwrap();
            }
            let again = try_lock(&actor).await.unwrap().expect("nobody is left");
            release(again).await.unwrap();
        },
    )
    .await;
}

async fn check_guard(
    lock: impl AsyncFn(&Actor) -> Result<Guard>,
    try_lock: impl AsyncFn(&Actor) -> Result<Option<Guard>>,
) {
    let is_held = async |guard: &Guard| guard.is_valid() && guard.check().await.unwrap();
    check_lock(lock, try_lock, Guard::release, is_held).await;
}

#[tokio::test]
async fn a_released_mutex_is_the_next_ones() {
    let mutex = |actor: &Actor| Mutex::new(&actor.client, &actor.path);
    check_guard(
        async |actor| mutex(actor).lock().await,
        async |actor| mutex(actor).try_lock().await,
    )
    .await;
}

#[tokio::test]
async fn a_released_mutex_with_a_delay_is_the_next_ones() {
    let mutex = |actor: &Actor| {
        Mutex::new(&actor.client, &actor.path).with_lock_delay(Duration::from_millis(1))
    };
    check_guard(
        async |actor| mutex(actor).lock().await,
        async |actor| mutex(actor).try_lock().await,
    )
    .await;
}

#[tokio::test]
async fn a_released_semaphore_is_the_next_ones() {
    let semaphore = |actor: &Actor| Semaphore::new(&actor.client, &actor.path, 1);
    check_guard(
        async |actor| semaphore(actor)?.acquire().await,
        async |actor| semaphore(actor)?.try_acquire().await,
    )
    .await;
    let mutex = |actor: &Actor| SemaphoreMutex::new(&actor.client, &actor.path);
    check_guard(
        async |actor| mutex(actor).lock().await,
        async |actor| mutex(actor).try_lock().await,
    )
    .await;
}

#[tokio::test]
async fn a_released_read_write_lock_is_the_next_writers() {
    let lock = |actor: &Actor| ReadWriteLock::new(&actor.client, &actor.path);
    check_lock(
        async |actor| lock(actor).write().await,
        async |actor| lock(actor).try_write().await,
        async |guard| guard.release().await,
        async |guard| guard.check().await.unwrap(),
    )
    .await;
    // A reader releases, and a writer acquires.
    let read = async |actor: &Actor| lock(actor).read().await;
    let write = async |actor: &Actor| match lock(actor).try_write().await? {
        Some(writing) => writing.downgrade().await.map(Some),
        None => Ok(None),
    };
    check_guard(read, write).await;
}

#[tokio::test]
async fn released_locks_are_the_next_ones_all_or_none() {
    let locks = |actor: &Actor| {
        MultiLock::new(&actor.client, ["a", "b"].map(|name| format!("{}/{name}", actor.path)))
    };
    check_lock(
        async |actor| locks(actor)?.lock().await,
        async |actor| locks(actor)?.try_lock().await,
        async |guard| guard.release().await,
        async |held| {
            let mut all = true;
            for guard in held.guards() {
                all &= guard.check().await.unwrap();
            }
            all
        },
    )
    .await;
}

#[tokio::test]
async fn a_lease_has_one_holder() {
    let hour = Duration::from_secs(3600);
    let obtain = async |actor: Actor, who: &str| {
        let lease = NonBlockingLease::new(&actor.client, &actor.path, hour);
        lease.obtain(who).await.unwrap().is_some()
    };
    check(
        async |actor| obtain(actor, "one").await,
        async |actor| obtain(actor, "two").await,
        async |ours, theirs, actor| assert_ne!(ours, theirs == Some(true), "{}", actor.path),
    )
    .await;
}

/// The work puts two items and takes all; the rival takes one as well. No item is lost or taken
/// twice.
async fn check_queue(
    put: impl AsyncFn(&Actor, &str),
    take: impl AsyncFn(&Actor) -> Option<String>,
) {
    let take_all = async |actor: &Actor, most: usize| {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(item) = take(actor).await
        {
            taken.push(item);
        }
        taken
    };
    check(
        async |actor| {
            put(&actor, "a").await;
            put(&actor, "b").await;
            take_all(&actor, usize::MAX).await
        },
        async |actor| take_all(&actor, 1).await,
        async |mut all, theirs, actor| {
            all.extend(theirs.unwrap_or_default());
            // Items that a client held in the meantime and released.
            all.extend(take_all(&actor, usize::MAX).await);
            all.sort();
            assert_eq!(all, ["a", "b"], "{}", actor.path);
        },
    )
    .await;
}

/// Returns the item after the work on it is done.
async fn work_off<O: Order>(queue: Queue<O>) -> Option<String> {
    let delivery = queue.try_next().await.unwrap()?;
    let item = String::from_utf8_lossy(&delivery.items()[0]).into_owned();
    delivery.done().await.unwrap();
    Some(item)
}

#[tokio::test]
async fn items_are_had_once() {
    let queue = |actor: &Actor| SimpleQueue::new(&actor.client, &actor.path).unwrap();
    check_queue(
        async |actor, item| queue(actor).offer(item.to_owned()).await.unwrap(),
        async |actor| {
            let item = queue(actor).poll().await.unwrap()?;
            Some(String::from_utf8_lossy(&item).into_owned())
        },
    )
    .await;
}

#[tokio::test]
async fn items_are_worked_on_once() {
    let queue = |actor: &Actor| WorkQueue::new(&actor.client, &actor.path).unwrap();
    check_queue(
        async |actor, item| queue(actor).put(item.to_owned()).await.unwrap(),
        async |actor| work_off(queue(actor)).await,
    )
    .await;
}

#[tokio::test]
async fn items_with_ids_are_worked_on_once() {
    let queue = |actor: &Actor| IdQueue::new(&actor.client, &actor.path).unwrap();
    check_queue(
        async |actor, item| queue(actor).put(item, item.to_owned()).await.unwrap(),
        async |actor| work_off(queue(actor)).await,
    )
    .await;
}

#[tokio::test]
async fn items_with_priorities_are_worked_on_once_without_locks() {
    let queue =
        |actor: &Actor| PriorityQueue::new(&actor.client, &actor.path).unwrap().without_locks();
    check_queue(
        async |actor, item| queue(actor).put(1, item.to_owned()).await.unwrap(),
        async |actor| work_off(queue(actor)).await,
    )
    .await;
}

#[tokio::test]
async fn counts_with_receipts_are_counted_once() {
    let add = async |actor: &Actor, delta| {
        let long = AtomicLong::new(&actor.client, &actor.path).with_receipts();
        assert!(long.add(delta).await.unwrap().applied);
        delta
    };
    check(
        async |actor| add(&actor, 1).await + add(&actor, 1).await,
        async |actor| add(&actor, 10).await,
        async |ours, theirs, actor| {
            let sum = AtomicLong::new(&actor.client, &actor.path).get().await.unwrap();
            assert_eq!(sum, ours + theirs.unwrap_or(0), "{}", actor.path);
        },
    )
    .await;
}

#[tokio::test]
async fn of_two_who_are_first_one_is_told_so() {
    let insert = async |actor: Actor| {
        Set::new(&actor.client, &actor.path).unwrap().insert("a").await.unwrap()
    };
    let bind = async |actor: Actor| {
        NameService::new(&actor.client, &actor.path).unwrap().bind("a", "x").await.unwrap()
    };
    let one = async |ours: bool, theirs: Option<bool>, actor: Actor| {
        assert_ne!(ours, theirs == Some(true), "{}", actor.path);
    };
    check(insert, insert, one).await;
    check(bind, bind, one).await;
}

#[tokio::test]
async fn nobody_gets_an_id_of_another() {
    let block = async |actor: Actor| {
        let ids = SegmentIds::new(&actor.client, &actor.path, 2).unwrap();
        let mut given = Vec::new();
        for _ in 0..3 {
            given.push(ids.next().await.unwrap());
        }
        given
    };
    let number = async |actor: Actor| {
        let ids = SequentialIds::new(&actor.client, &actor.path);
        vec![i64::from(ids.next().await.unwrap()), i64::from(ids.next().await.unwrap())]
    };
    let distinct = async |ours: Vec<i64>, theirs: Option<Vec<i64>>, actor: Actor| {
        let mut all = ours;
        all.extend(theirs.unwrap_or_default());
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{}", actor.path);
    };
    check(block, block, distinct).await;
    check(number, number, distinct).await;
}

#[tokio::test]
async fn a_released_single_node_is_the_next_ones() {
    let lock = |actor: &Actor| SingleNodeLock::new(&actor.client, &actor.path);
    check_guard(async |actor| lock(actor).lock().await, async |actor| lock(actor).try_lock().await)
        .await;
    let election = |actor: &Actor| StaticElection::new(&actor.client, &actor.path, "x");
    let offer = async |actor: &Actor| match election(actor).offer().await? {
        Offer::Elected(guard) => Ok(Some(guard)),
        Offer::Leader(_) => Ok(None),
    };
    check_guard(async |actor| election(actor).elected().await, offer).await;
}

#[tokio::test]
async fn a_lease_that_was_ended_is_the_next_ones() {
    let lease = |actor: &Actor| {
        NonBlockingLease::new(&actor.client, &actor.path, Duration::from_secs(3600))
    };
    check_lock(
        async |actor| Ok(lease(actor).obtain("one").await?.expect("it is free")),
        async |actor| lease(actor).obtain("two").await,
        async |held| held.end().await.map(drop),
        async |held| held.clone().end().await.unwrap(),
    )
    .await;
}

/// Servers delete empty containers at any time.
#[tokio::test]
async fn a_lease_is_taken_although_its_container_goes_meanwhile() {
    check(
        async |actor| {
            let lease =
                NonBlockingLease::new(&actor.client, &actor.path, Duration::from_secs(3600));
            lease.obtain("one").await.unwrap().expect("it is free");
        },
        async |actor| drop(actor.client.delete(&actor.path, Version::Any).await),
        async |(), _, _| {},
    )
    .await;
}
