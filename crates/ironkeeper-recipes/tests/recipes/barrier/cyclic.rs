//! `CyclicBarrier`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::barrier::CyclicBarrier;
use ironkeeper_testing::Direction;

use super::plain::until_watches;
use crate::world::watch_events::counted;
use crate::world::{
    World, children, until_children, waits_within_polls, while_away, with_every_cut,
};

const PATH: &str = "/barriers/c";

#[tokio::test]
async fn rounds_follow_each_other_and_none_ends_early() {
    const SIZE: usize = 3;
    let world = World::start().await;
    let come = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..SIZE {
        let barrier = CyclicBarrier::new(&world.client().await, PATH, SIZE).unwrap();
        let come = come.clone();
        tasks.push(tokio::spawn(async move {
            let mut lasts = 0;
            for round in 0..10 {
                come.fetch_add(1, Ordering::SeqCst);
                let arrival = barrier.wait().await.unwrap();
                assert_eq!(arrival.round, round);
                assert!(come.load(Ordering::SeqCst) >= (round as usize + 1) * SIZE);
                lasts += usize::from(arrival.is_last);
            }
            lasts
        }));
    }
    let mut lasts = 0;
    for task in tasks {
        lasts += task.await.unwrap();
    }
    assert_eq!(lasts, 10);
    until_children(&world.client().await, PATH, 0).await;
}

#[tokio::test]
async fn more_parties_than_the_barrier_is_for_go_in_several_rounds() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = CyclicBarrier::new(&client, PATH, 2).unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let barrier = barrier.clone();
            tokio::spawn(async move { barrier.wait().await.unwrap().round })
        })
        .collect();
    let mut rounds = Vec::new();
    for task in tasks {
        rounds.push(task.await.unwrap());
    }
    rounds.sort_unstable();
    assert_eq!(rounds, [0, 0, 1, 1, 2, 2]);
}

#[tokio::test]
async fn a_round_costs_one_event_per_waiting_party() {
    let world = World::start().await;
    let mut parties = Vec::new();
    for _ in 0..4 {
        let (client, events) = counted(&world).await;
        let barrier = CyclicBarrier::new(&client, PATH, 5).unwrap();
        let task = tokio::spawn(async move { barrier.wait().await });
        until_watches(&client, 1).await;
        parties.push((task, events, client));
    }
    assert!(parties.iter().all(|(task, events, _)| !task.is_finished() && events.count() == 0));
    let last = CyclicBarrier::new(&world.client().await, PATH, 5).unwrap();
    assert!(last.wait().await.unwrap().is_last);
    for (task, events, client) in parties {
        assert!(!task.await.unwrap().unwrap().is_last);
        client.exists("/").await.unwrap();
        assert_eq!(events.count(), 1);
    }
}

#[tokio::test]
async fn a_reset_breaks_the_round_for_all_who_wait() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let waits = CyclicBarrier::new(&one, PATH, 2).unwrap();
    let waiting = tokio::spawn({
        let waits = waits.clone();
        async move { waits.wait().await }
    });
    until_watches(&one, 1).await;
    let other = CyclicBarrier::new(&two, PATH, 2).unwrap();
    assert_eq!(other.waiting().await.unwrap(), 1);
    other.reset().await.unwrap();
    let broken = waiting.await.unwrap().unwrap_err();
    assert!(matches!(broken, RecipeError::Broken { .. }), "{broken}");
    let (one, two) = tokio::join!(waits.wait(), other.wait());
    assert_eq!((one.unwrap().round, two.unwrap().round), (1, 1));
}

#[tokio::test]
async fn who_gives_up_does_not_count() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = CyclicBarrier::new(&client, PATH, 2).unwrap();
    assert_eq!(barrier.wait_within(Duration::from_millis(20)).await.unwrap(), None);
    assert_eq!(children(&client, PATH).await, [""; 0]);
    let mut polls = 0;
    loop {
        let waits = waits_within_polls(&client, barrier.wait(), polls).await;
        until_children(&client, PATH, 0).await;
        if waits {
            break;
        }
        polls += 1;
    }
    assert!(polls > 3, "{polls}");
    // A party whose timeout passes while the last party arrives either passes or does not count.
    for micros in 0..30 {
        let patience = Duration::from_micros(100 * micros);
        let (hasty, other) = tokio::join!(
            barrier.wait_within(patience),
            barrier.wait_within(Duration::from_millis(50)),
        );
        let (hasty, other) = (hasty.unwrap(), other.unwrap());
        assert_eq!(hasty.map(|it| it.round), other.map(|it| it.round));
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_is_made_up_for() {
    let world = World::start().await;
    let other = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let other = other.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let here = CyclicBarrier::new(&client, &path, 2).unwrap();
                let there = CyclicBarrier::new(&other, &path, 2).unwrap();
                for round in 0..2 {
                    let (one, two) = tokio::join!(here.wait(), there.wait());
                    assert_eq!((one.unwrap().round, two.unwrap().round), (round, round));
                }
                assert_eq!(here.wait_within(Duration::from_millis(1)).await.unwrap(), None);
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_wait() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let barrier = CyclicBarrier::new(&one, PATH, 2).unwrap();
    let waiting = tokio::spawn(async move { barrier.wait().await });
    until_watches(&one, 1).await;
    world.end_session(&one).await;
    assert!(waiting.await.unwrap().unwrap_err().is_session_over());
    assert_eq!(CyclicBarrier::new(&two, PATH, 2).unwrap().waiting().await.unwrap(), 0);
    assert!(matches!(CyclicBarrier::new(&two, PATH, 0), Err(RecipeError::Misuse(_))));
}

#[tokio::test]
async fn a_reset_with_a_lost_reply_leaves_the_next_round_alone() {
    let world = World::start().await;
    let other = world.client().await;
    let theirs = CyclicBarrier::new(&other, PATH, 2).unwrap();
    assert_eq!(theirs.waiting().await.unwrap(), 0);
    let mut was_between = false;
    for bytes in (0..).step_by(7) {
        let (proxy, client) = world.proxied().await;
        let barrier = CyclicBarrier::new(&client, PATH, 2).unwrap();
        let round = other.exists(PATH).await.unwrap().unwrap().version;
        let mut next_round = None;
        let meanwhile = async {
            if other.exists(PATH).await.unwrap().unwrap().version > round {
                let theirs = theirs.clone();
                next_round = Some(tokio::spawn(async move { theirs.wait().await }));
                until_children(&other, PATH, 1).await;
            }
        };
        let (reset, was_cut) = while_away(&proxy, bytes, barrier.reset(), meanwhile).await;
        reset.unwrap();
        if let Some(next_round) = next_round {
            was_between = true;
            barrier.wait().await.unwrap();
            next_round.await.unwrap().unwrap();
            until_children(&other, PATH, 0).await;
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_between);
}

#[tokio::test]
async fn a_wait_may_be_for_ever() {
    let world = World::start().await;
    let barrier = CyclicBarrier::new(&world.client().await, PATH, 1).unwrap();
    assert!(barrier.wait_within(Duration::MAX).await.unwrap().is_some());
}
