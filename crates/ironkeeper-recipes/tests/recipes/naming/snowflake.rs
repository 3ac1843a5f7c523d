//! Ids composed of a time, a worker number and a count.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::naming::{Snowflake, SnowflakeBuilder, SnowflakeLayout};
use ironkeeper_recipes::{Lost, RecipeError};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/ids/s";
const WORKERS: &str = "/ids/s/workers";

/// A clock that only `turn` advances.
#[derive(Clone)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn new() -> Clock {
        Clock(Arc::new(AtomicI64::new(SnowflakeLayout::default().epoch_ms + 1_000_000)))
    }

    fn turn(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }

    fn ids(&self, client: &Client) -> SnowflakeBuilder {
        self.ids_on(client, PATH)
    }

    fn ids_on(&self, client: &Client, path: &str) -> SnowflakeBuilder {
        let now = self.0.clone();
        Snowflake::builder(client, path).clock(move || now.load(Ordering::SeqCst))
    }

    /// Leases a worker number and advances the clock to a time without ids.
    async fn lease(&self, client: &Client) -> Snowflake {
        let ids = self.ids(client).lease().await.unwrap();
        self.turn(1);
        ids
    }
}

#[tokio::test]
async fn many_handles_have_numbers_of_their_own_and_never_the_same_id() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            let ids = Snowflake::lease(&client, PATH).await.unwrap();
            let mut made = Vec::new();
            for _ in 0..5_000 {
                made.push(ids.next().await.unwrap());
            }
            assert!(made.is_sorted());
            assert!(made.iter().all(|id| ids.layout().decode(*id).worker == ids.worker()));
            (ids, made)
        }));
    }
    let mut all = BTreeSet::new();
    let mut workers = BTreeSet::new();
    let mut handles = Vec::new();
    for task in tasks {
        let (ids, made) = task.await.unwrap();
        workers.insert(ids.worker());
        all.extend(made);
        handles.push(ids);
    }
    assert_eq!(workers.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(all.len(), 5 * 5_000);
}

#[tokio::test]
async fn a_full_count_waits_for_the_next_millisecond() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let ids = clock.lease(&client).await;
    let mut last = 0;
    for sequence in 0..4096 {
        let id = ids.next().await.unwrap();
        assert!(id > last && ids.layout().decode(id).sequence == sequence);
        last = id;
    }
    let waiting = tokio::spawn(async move { ids.next().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    clock.turn(1);
    assert_eq!(waiting.await.unwrap().unwrap() >> 22, (last >> 22) + 1);
}

#[tokio::test]
async fn a_clock_that_goes_back_a_little_makes_no_id_twice_and_one_that_goes_back_far_none() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let ids = clock.lease(&client).await;
    let first = ids.next().await.unwrap();
    clock.turn(-5_000);
    let second = ids.next().await.unwrap();
    assert_eq!(second, first + 1, "the time of the last one, and the next count");
    clock.turn(-5_001);
    let refused = ids.next().await.unwrap_err();
    assert!(matches!(refused, RecipeError::ClockBehind { behind_ms: 10_001, .. }), "{refused}");
    clock.turn(10_002);
    assert!(ids.next().await.unwrap() > second);
}

#[tokio::test]
async fn a_clock_behind_the_last_id_of_a_number_does_not_get_it_across_restarts() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let ids = clock.lease(&client).await;
    let before = ids.next().await.unwrap();
    ids.release().await.unwrap();
    // An hour back: the number is free, but its ids have later times. Another number has no ids.
    clock.turn(-3_600_000);
    let other = clock.lease(&client).await;
    assert_eq!(other.worker(), 1);
    other.release().await.unwrap();
    // Without another number, the lease fails.
    let layout = SnowflakeLayout { worker_bits: 0, ..SnowflakeLayout::default() };
    let only = || clock.ids_on(&client, "/ids/only").layout(layout);
    clock.turn(3_600_000);
    only().lease().await.unwrap().release().await.unwrap();
    clock.turn(-3_600_000);
    let refused = only().lease().await.unwrap_err();
    assert!(matches!(refused, RecipeError::ClockBehind { .. }), "{refused}");
    // Only a little behind: the lease succeeds, and its ids are larger than the last one.
    clock.turn(3_600_000 + 100);
    let again = clock.ids(&client).lease().await.unwrap();
    assert_eq!(again.worker(), 0);
    let waiting = tokio::spawn(async move { again.next().await.unwrap() });
    clock.turn(3_000);
    assert!(waiting.await.unwrap() > before);
}

#[tokio::test]
async fn a_stale_holder_and_its_heir_never_make_the_same_id() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let clock = Clock::new();
    let stale = clock.lease(&one).await;
    let mut all = vec![stale.next().await.unwrap()];
    // Its node is deleted, and it has not noticed.
    two.delete(&format!("{WORKERS}/0"), Version::Any).await.unwrap();
    let heir = clock.ids(&two).lease().await.unwrap();
    assert_eq!(heir.worker(), stale.worker());
    for _ in 0..100 {
        clock.turn(10);
        all.push(stale.next().await.unwrap());
    }
    // The next holder has waited until the time reserved by the first one has passed.
    clock.turn(3_000);
    for _ in 0..100 {
        all.push(heir.next().await.unwrap());
    }
    let refused = stale.next().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Lost { why: Lost::Expired, .. }), "{refused}");
    let count = all.len();
    assert!(all.is_sorted());
    all.dedup();
    assert_eq!(all.len(), count);
    // The release of the stale holder does not delete the node of the next holder.
    stale.release().await.unwrap();
    assert_eq!(children(&two, WORKERS).await, ["0"]);
}

#[tokio::test]
async fn ids_go_on_without_connection_and_session_as_long_as_time_is_reserved() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let ids = clock.lease(&client).await;
    ids.next().await.unwrap();
    world.end_session(&client).await;
    clock.turn(2_999);
    ids.next().await.unwrap();
    clock.turn(2);
    assert!(ids.next().await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn all_numbers_in_use_and_another_layout_are_told() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let layout = SnowflakeLayout { worker_bits: 1, ..SnowflakeLayout::default() };
    let one = clock.ids(&client).layout(layout).lease().await.unwrap();
    let _two = clock.ids(&client).layout(layout).lease().await.unwrap();
    let refused = clock.ids(&client).layout(layout).lease().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Exhausted { .. }), "{refused}");
    one.release().await.unwrap();
    let refused = clock.ids(&client).lease().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let three = clock.ids(&client).layout(layout).lease().await.unwrap();
    assert_eq!((three.worker(), three.path()), (0, PATH));
    let too_many = SnowflakeLayout { worker_bits: 21, ..layout };
    let refused = clock.ids(&client).layout(too_many).lease().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    // Dropping a holder frees its number in the background.
    drop(three);
    until_children(&client, WORKERS, 1).await;
    // The time of an id must fit into its bits.
    let late = SnowflakeLayout { epoch_ms: i64::MAX, ..SnowflakeLayout::default() };
    let ids = Snowflake::builder(&client, "/ids/late").layout(late).lease().await.unwrap();
    let refused = ids.next().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Exhausted { .. }), "{refused}");
}

#[tokio::test]
async fn uuids_sort_by_time_and_tell_it() {
    let world = World::start().await;
    let (client, clock) = (world.client().await, Clock::new());
    let ids = clock.lease(&client).await;
    let mut last = ids.next_uuid().await.unwrap();
    for round in 0..200 {
        clock.turn(i64::from(round % 10 == 0));
        let next = ids.next_uuid().await.unwrap();
        assert!(next > last && next.version() == 7);
        last = next;
    }
    assert_eq!(last.time_ms(), Some(clock.0.load(Ordering::SeqCst).unsigned_abs()));
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_number_in_use_and_then_none() {
    let world = World::start().await;
    let watching = world.client().await;
    let clock = Clock::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let (watching, clock) = (watching.clone(), clock.clone());
            async move {
                let path = format!("/ids/cut-{direction:?}-{round}");
                let workers = format!("{path}/workers");
                let ids = clock.ids_on(&client, &path).lease().await.unwrap();
                let first = ids.next().await.unwrap();
                clock.turn(5_000);
                assert!(ids.next().await.unwrap() > first);
                assert_eq!(children(&watching, &workers).await, ["0"]);
                ids.release().await.unwrap();
                assert_eq!(children(&watching, &workers).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_lease_and_an_id_dropped_at_any_await_leave_nothing_and_lose_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let clock = Clock::new();
    for polls in 0.. {
        let done = drop_after_polls(clock.ids(&client).lease(), polls).await;
        let is_done = done.is_some();
        drop(done);
        client.sync("/").await.unwrap();
        until_children(&watching, WORKERS, 0).await;
        if is_done {
            break;
        }
    }
    let ids = clock.ids(&client).reserve(Duration::from_millis(1)).lease().await.unwrap();
    let mut last = 0;
    for polls in 0..10 {
        clock.turn(10);
        // The write of the time may have been applied without a reply.
        drop(drop_after_polls(ids.next(), polls).await);
        clock.turn(10);
        let next = ids.next().await.unwrap();
        assert!(next > last);
        last = next;
    }
}
