//! `AtomicValue`, `AtomicNumber`, and `CachedCounter`, which fetches blocks.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{CreateMode, Happened, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::shared::{AtomicInteger, AtomicLong, AtomicValue, CachedCounter};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, while_away, with_every_cut};

const PATH: &str = "/atomic/n";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn numbers_have_curators_bytes() {
    let world = World::start().await;
    let client = world.client().await;
    let long = AtomicLong::new(&client, PATH);
    assert_eq!(long.get().await.unwrap(), 0);
    assert!(long.initialize(258).await.unwrap());
    assert!(!long.initialize(1).await.unwrap());
    assert_eq!(client.get(PATH).await.unwrap().data[..], [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(long.subtract(259).await.unwrap().after, Some(-1));
    assert_eq!(client.get(PATH).await.unwrap().data[..], [0xff; 8]);
    let refused = AtomicInteger::new(&client, PATH).increment().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
    let integer = AtomicInteger::new(&client, "/atomic/i");
    integer.set(3).await.unwrap();
    assert_eq!(client.get("/atomic/i").await.unwrap().data[..], [0, 0, 0, 3]);
    // Curator reads an empty node as zero.
    client.set("/atomic/i", "", Version::Any).await.unwrap();
    assert_eq!(integer.increment().await.unwrap().after, Some(1));
}

#[tokio::test]
async fn a_sum_that_does_not_fit_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let integer = AtomicInteger::new(&client, PATH);
    integer.set(i32::MAX).await.unwrap();
    let refused = integer.increment().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    assert_eq!(integer.get().await.unwrap(), i32::MAX);
}

#[tokio::test]
async fn compare_and_set_compares() {
    let world = World::start().await;
    let client = world.client().await;
    let long = AtomicLong::new(&client, PATH);
    // A node that does not exist equals no value, as with Curator.
    assert!(!long.compare_and_set(0, 1).await.unwrap().applied);
    long.set(5).await.unwrap();
    let change = long.compare_and_set(4, 1).await.unwrap();
    assert_eq!((change.applied, change.before, change.after), (false, Some(5), None));
    let change = long.compare_and_set(5, 1).await.unwrap();
    assert_eq!((change.applied, change.before, change.after), (true, Some(5), Some(1)));
}

#[tokio::test]
async fn no_increment_of_many_at_once_is_lost() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let client = world.client().await;
        let long = AtomicLong::new(&client, PATH);
        // Three kinds of participants on one path.
        let long = match number % 3 {
            0 => long,
            1 => long.with_tries(2).promoted_to("/atomic/n-lock", PATIENCE),
            _ => long.with_receipts(),
        };
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for _ in 0..20 {
                let change = long.increment().await.unwrap();
                applied += i64::from(change.applied);
                assert!(change.stats.optimistic_tries > 0);
            }
            applied
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await.unwrap();
    }
    let client = world.client().await;
    assert_eq!(AtomicLong::new(&client, PATH).get().await.unwrap(), applied);
    assert!(applied >= 5 * 20, "those without a limit always get through: {applied}");
    assert_eq!(children(&client, "/atomic/n-lock").await, [""; 0]);
}

#[tokio::test]
async fn the_loser_takes_the_lock_and_tells_what_it_cost() {
    let world = World::start().await;
    let client = world.client().await;
    let rival = AtomicValue::new(&client, PATH);
    rival.set("0").await.unwrap();
    let value = AtomicValue::new(&client, PATH).with_tries(3).promoted_to("/lock", PATIENCE);
    // Another write happens between the read and the write of each attempt without the lock.
    let mut calls = 0;
    let meddling = async {
        let update = value.try_update(|_| {
            calls += 1;
            if calls <= 3 {
                // Queued before the write of the update.
                drop(client.set(PATH, format!("{calls}"), Version::Any));
            }
            Ok(Bytes::from_static(b"won"))
        });
        update.await.unwrap()
    };
    let change = meddling.await;
    assert!(change.applied);
    assert_eq!((change.stats.optimistic_tries, change.stats.promoted_tries), (3, 1));
    assert_eq!(change.before.unwrap(), "3");
    assert_eq!(children(&client, "/lock").await, [""; 0]);

    // Without a lock the attempts end, and `applied` is false.
    let value = AtomicValue::new(&client, PATH).with_tries(2);
    let change = value
        .update(|_| {
            drop(client.set(PATH, "rival", Version::Any));
            "lost"
        })
        .await
        .unwrap();
    assert_eq!((change.applied, change.stats.optimistic_tries), (false, 2));
    assert_eq!(rival.get().await.unwrap().unwrap(), "rival");
}

#[tokio::test]
async fn with_receipts_every_lost_request_and_reply_counts_exactly_once() {
    let world = World::start().await;
    let rival = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let rival = AtomicLong::new(&rival, format!("/cuts-{direction:?}/{round}"));
            async move {
                let long = AtomicLong::new(&client, rival.path()).with_receipts();
                for _ in 0..2 {
                    // The rival writes the same numbers, so that a read cannot show which write was
                    // applied.
                    let (ours, theirs) = tokio::join!(long.increment(), rival.increment());
                    assert!(ours.unwrap().applied && theirs.unwrap().applied);
                }
                assert_eq!(rival.get().await.unwrap(), 4);
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn without_receipts_a_lost_reply_is_told_truly() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = AtomicLong::new(&watching, format!("/cuts-{direction:?}/{round}"));
            async move {
                let long = AtomicLong::new(&client, watching.path());
                match long.increment().await {
                    Ok(change) => {
                        assert!(change.applied);
                        assert_eq!(watching.get().await.unwrap(), 1);
                    }
                    Err(error) => {
                        assert!(error.client_error().unwrap().is_retriable(), "{error}");
                        assert!(watching.get().await.unwrap() <= 1);
                    }
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_deleted_receipt_is_replaced() {
    let world = World::start().await;
    let client = world.client().await;
    let long = AtomicLong::new(&client, PATH).with_receipts();
    assert!(long.increment().await.unwrap().applied);
    let receipts = format!("{PATH}-receipts");
    for name in children(&client, &receipts).await {
        client.delete(&format!("{receipts}/{name}"), Version::Any).await.unwrap();
    }
    assert_eq!(long.increment().await.unwrap().after, Some(2));
    assert_eq!(children(&client, &receipts).await.len(), 1);
    drop(long);
    assert_eq!(children(&client, &receipts).await, [""; 0]);
}

#[tokio::test]
async fn an_increment_dropped_at_any_await_is_made_or_not() {
    let world = World::start().await;
    let client = world.client().await;
    let long = AtomicLong::new(&client, PATH).promoted_to("/lock", PATIENCE);
    let mut before = 0;
    for polls in 0.. {
        let done = drop_after_polls(long.increment(), polls).await;
        let now = long.get().await.unwrap();
        assert!(now == before || now == before + 1, "{before} {now}");
        before = now;
        if done.is_some() {
            break;
        }
    }
    assert_eq!(children(&client, "/lock").await, [""; 0]);
}

#[tokio::test]
async fn the_end_of_the_session_is_an_error() {
    let world = World::start().await;
    let client = world.client().await;
    let long = AtomicLong::new(&client, PATH);
    assert!(long.increment().await.unwrap().applied);
    world.end_session(&client).await;
    assert!(long.increment().await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn counters_share_out_numbers_in_blocks() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = world.client().await;
        let counter = CachedCounter::new(AtomicLong::new(&client, PATH), 10).unwrap();
        tasks.push(tokio::spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..35 {
                numbers.push(counter.next().await.unwrap().unwrap());
            }
            assert!(numbers.is_sorted());
            numbers
        }));
    }
    let mut all = BTreeSet::new();
    for task in tasks {
        for number in task.await.unwrap() {
            assert!(all.insert(number), "{number} twice");
        }
    }
    let client = world.client().await;
    // Four blocks each, and no further request.
    assert_eq!(AtomicLong::new(&client, PATH).get().await.unwrap(), 4 * 4 * 10);
    assert_eq!(client.exists(PATH).await.unwrap().unwrap().version, 4 * 4 - 1);
}

#[tokio::test]
async fn a_counter_goes_on_where_a_number_stands() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive(PATH, 7_i32.to_be_bytes(), CreateMode::Persistent).await.unwrap();
    let counter = CachedCounter::new(AtomicInteger::new(&client, PATH), 2).unwrap();
    for expected in [7, 8, 9] {
        assert_eq!(counter.next().await.unwrap(), Some(expected));
    }
    for block in [0, -1] {
        let refused = CachedCounter::new(AtomicInteger::new(&client, PATH), block).unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
}

#[tokio::test]
async fn what_others_have_made_of_a_value_is_not_overwritten_for_the_sake_of_a_lost_reply() {
    let world = World::start().await;
    let other = AtomicValue::new(&world.client().await, PATH);
    for has_receipts in [false, true] {
        let mut was_between = false;
        for bytes in (0..).step_by(7) {
            let (proxy, client) = world.proxied().await;
            let mut value = AtomicValue::new(&client, PATH);
            if has_receipts {
                value = value.with_receipts();
            }
            other.set("before").await.unwrap();
            let mut is_changed = false;
            let meanwhile = async {
                is_changed = other.compare_and_set("new", "newer").await.unwrap().applied;
            };
            let (set, was_cut) = while_away(&proxy, bytes, value.set("new"), meanwhile).await;
            if has_receipts || !is_changed {
                set.unwrap();
            } else {
                let error = set.unwrap_err();
                assert_eq!(error.client_error().unwrap().happened(), Happened::Maybe, "{error}");
            }
            let now = if is_changed { "newer" } else { "new" };
            assert_eq!(other.get().await.unwrap().unwrap(), now, "after {bytes} bytes");
            was_between |= is_changed;
            if !was_cut {
                break;
            }
        }
        assert!(was_between);
    }
}
