//! Ids that a server counts, one by one or in blocks.

use std::collections::BTreeSet;

use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::naming::{SegmentIds, SequentialIds};
use ironkeeper_recipes::shared::{AtomicLong, CachedCounter};
use ironkeeper_testing::Direction;

use crate::world::{World, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/ids/i";

#[tokio::test]
async fn sequential_ids_are_unique_and_in_the_order_of_asking_for_everybody() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) = (SequentialIds::new(&one, PATH), SequentialIds::new(&two, PATH));
    assert_eq!(ours.path(), PATH);
    for expected in 0..10 {
        let ids = if expected % 2 == 0 { &ours } else { &theirs };
        assert_eq!(ids.next().await.unwrap(), expected);
    }
    let (a, b) = tokio::join!(ours.next(), theirs.next());
    assert_eq!(a.unwrap() + b.unwrap(), 10 + 11);
    // Only the counter is left.
    until_children(&one, PATH, 0).await;
    assert_eq!(one.exists(PATH).await.unwrap().unwrap().ephemeral_owner, 0, "no container");
    world.end_session(&one).await;
    assert!(ours.next().await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn a_count_that_was_deleted_is_not_begun_anew_by_who_knows_better() {
    let world = World::start().await;
    let client = world.client().await;
    let ids = SequentialIds::new(&client, PATH);
    for _ in 0..3 {
        ids.next().await.unwrap();
    }
    until_children(&client, PATH, 0).await;
    client.delete_recursive(PATH).await.unwrap();
    let refused = ids.next().await.unwrap_err();
    assert!(matches!(refused, RecipeError::NodeGone { .. }), "{refused}");
    // A new handle does not know the old count and starts at 0; the old handle still returns the
    // error.
    assert_eq!(SequentialIds::new(&client, PATH).next().await.unwrap(), 0);
    let refused = ids.next().await.unwrap_err();
    assert!(matches!(refused, RecipeError::NodeGone { .. }), "{refused}");
}

#[tokio::test]
async fn every_lost_request_and_reply_uses_one_number() {
    let world = World::start().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| async move {
            let sequential = SequentialIds::new(&client, format!("/one-{direction:?}-{round}"));
            let segment =
                SegmentIds::new(&client, format!("/block-{direction:?}-{round}"), 2).unwrap();
            for expected in 0..4 {
                assert_eq!(sequential.next().await.unwrap(), expected);
                assert_eq!(segment.next().await.unwrap(), i64::from(expected));
            }
        })
        .await;
    }
}

#[tokio::test]
async fn an_id_dropped_at_any_await_leaves_a_gap_at_most() {
    let world = World::start().await;
    let client = world.client().await;
    let ids = SequentialIds::new(&client, PATH);
    for polls in 0.. {
        let done = drop_after_polls(ids.next(), polls).await;
        until_children(&client, PATH, 0).await;
        if let Some(id) = done {
            assert!(id.unwrap() <= polls as u32);
            break;
        }
    }
}

#[tokio::test]
async fn blocks_of_many_handles_do_not_overlap_and_numbers_grow_for_each() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for kind in 0..4 {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            let segment = SegmentIds::new(&client, PATH, 10).unwrap();
            // Curator's `CachedCounter` participates.
            let cached = CachedCounter::new(AtomicLong::new(&client, PATH), 7).unwrap();
            let mut ids = Vec::new();
            for _ in 0..65 {
                ids.push(match kind {
                    0 => cached.next().await.unwrap().unwrap(),
                    _ => segment.next().await.unwrap(),
                });
            }
            assert!(ids.is_sorted());
            ids
        }));
    }
    let mut all = BTreeSet::new();
    for task in tasks {
        for id in task.await.unwrap() {
            assert!(all.insert(id), "{id} twice");
        }
    }
    assert_eq!(all.len(), 4 * 65);
}

#[tokio::test]
async fn a_block_is_fetched_ahead_and_lasts_beyond_the_session() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let ids = SegmentIds::new(&client, PATH, 10).unwrap();
    let number = AtomicLong::new(&watching, PATH);
    for expected in 0..5 {
        assert_eq!(ids.next().await.unwrap(), expected);
    }
    while number.get().await.unwrap() < 20 {
        tokio::task::yield_now().await;
    }
    // The server has applied the write; after this reply, the client has received its result.
    client.exists("/").await.unwrap();
    world.end_session(&client).await;
    for expected in 5..20 {
        assert_eq!(ids.next().await.unwrap(), expected);
    }
    assert!(ids.next().await.unwrap_err().is_session_over());
    assert_eq!(number.get().await.unwrap(), 20);
    let refused = SegmentIds::new(&watching, PATH, 0).unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
