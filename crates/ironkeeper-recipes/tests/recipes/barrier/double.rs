//! `DoubleBarrier`, and `SizedBarrier`, whose size is the data of its node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironkeeper_client::{CreateMode, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::barrier::{DoubleBarrier, SizedBarrier};
use ironkeeper_recipes::naming::Uuid;
use ironkeeper_testing::Direction;

use super::plain::until_watches;
use crate::world::watch_events::counted;
use crate::world::{World, children, until_children, waits_within_polls, with_every_cut};

const PATH: &str = "/barriers/d";

#[tokio::test]
async fn all_enter_together_and_leave_together_round_after_round() {
    const SIZE: usize = 4;
    let world = World::start().await;
    let (entered, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..SIZE {
        let barrier = DoubleBarrier::new(&world.client().await, PATH, SIZE).unwrap();
        let (entered, left) = (entered.clone(), left.clone());
        tasks.push(tokio::spawn(async move {
            for round in 1..=5 {
                entered.fetch_add(1, Ordering::SeqCst);
                let inside = barrier.enter().await.unwrap();
                assert!(entered.load(Ordering::SeqCst) >= round * SIZE);
                left.fetch_add(1, Ordering::SeqCst);
                inside.leave().await.unwrap();
                assert!(left.load(Ordering::SeqCst) >= round * SIZE);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(children(&world.client().await, PATH).await, [""; 0]);
}

#[tokio::test]
async fn entering_costs_one_event_each_and_leaving_two_at_most() {
    const SIZE: usize = 6;
    let world = World::start().await;
    let mut members = Vec::new();
    for number in 0..SIZE - 1 {
        let (client, events) = counted(&world).await;
        let barrier = DoubleBarrier::new(&client, PATH, SIZE).unwrap();
        let task = tokio::spawn(async move { barrier.enter().await });
        until_watches(&client, 1).await;
        until_children(&world.client().await, PATH, number + 1).await;
        members.push((task, events, client));
    }
    assert!(members.iter().all(|(task, events, _)| !task.is_finished() && events.count() == 0));
    let last = DoubleBarrier::new(&world.client().await, PATH, SIZE).unwrap();
    let mut inside = vec![last.enter().await.unwrap()];
    let mut counts = Vec::new();
    for (task, events, client) in members {
        inside.push(task.await.unwrap().unwrap());
        client.exists("/").await.unwrap();
        assert_eq!(events.count(), 1);
        counts.push(events);
    }
    let leaving: Vec<_> = inside.into_iter().map(|member| tokio::spawn(member.leave())).collect();
    for task in leaving {
        task.await.unwrap().unwrap();
    }
    let all: usize = counts.iter().map(|events| events.count() - 1).sum();
    assert!(all <= 2 * (SIZE - 1), "{all}");
}

#[tokio::test]
async fn gh_1290_neither_events_nor_reconnects_open_the_barrier() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    let entering = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.enter().await }
    });
    until_children(&other, PATH, 1).await;
    until_watches(&client, 1).await;
    // Each reconnect is an event, and the watch is set again.
    for _ in 0..3 {
        let mut states = client.states();
        proxy.cut();
        while !states.next().await.unwrap().is_connected() {}
        until_watches(&client, 1).await;
        assert!(!entering.is_finished());
    }
    let second = DoubleBarrier::new(&other, PATH, 2).unwrap().enter().await.unwrap();
    let first = entering.await.unwrap().unwrap();
    let (one, two) = tokio::join!(first.leave(), second.leave());
    one.unwrap();
    two.unwrap();
}

#[tokio::test]
async fn a_ready_node_of_an_earlier_round_opens_nothing() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    // The state after the last member of an earlier round ended without `leave`.
    one.create_recursive(&format!("{PATH}/ready"), "", CreateMode::Persistent).await.unwrap();
    let first = DoubleBarrier::new(&one, PATH, 2).unwrap();
    let entering = tokio::spawn(async move { first.enter().await });
    until_watches(&one, 1).await;
    assert!(!entering.is_finished());
    let second = DoubleBarrier::new(&two, PATH, 2).unwrap().enter().await.unwrap();
    let first = entering.await.unwrap().unwrap();
    let (left, also_left) = tokio::join!(first.leave(), second.leave());
    left.unwrap();
    also_left.unwrap();
    assert_eq!(children(&one, PATH).await, [""; 0]);
}

#[tokio::test]
async fn who_waits_goes_on_though_the_sign_is_gone_when_it_looks() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let barrier = DoubleBarrier::new(&one, PATH, 3).unwrap();
    let entering = tokio::spawn(async move { barrier.enter().await });
    until_watches(&one, 1).await;
    // As members of kazoo do that complete the number and leave at once.
    let ready = format!("{PATH}/ready");
    let transaction = two.transaction().create(&ready, "", CreateMode::Persistent);
    transaction.delete(&ready, Version::Any).commit().await.unwrap();
    entering.await.unwrap().unwrap().leave().await.unwrap();
    assert_eq!(children(&two, PATH).await, [""; 0]);
}

#[tokio::test]
async fn who_comes_while_the_round_is_on_passes() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    let (one, two) = tokio::join!(barrier.enter(), barrier.enter());
    drop(two.unwrap());
    let late = barrier.enter().await.unwrap();
    let (left, also_left) = tokio::join!(one.unwrap().leave(), late.leave());
    left.unwrap();
    also_left.unwrap();
    assert_eq!(children(&client, PATH).await, [""; 0]);
}

#[tokio::test]
async fn curator_233_536_leaving_after_a_time_ends_and_frees_the_others() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    let (one, two) = tokio::join!(barrier.enter(), barrier.enter());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(!one.leave_within(Duration::from_millis(20)).await.unwrap());
    // The other member is alone now, whichever of the two had the smallest name.
    assert!(two.leave_within(Duration::from_secs(60)).await.unwrap());
    until_children(&client, PATH, 0).await;
}

#[tokio::test]
async fn who_gives_up_entering_does_not_count_and_leaves_no_watch() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    assert!(barrier.enter_within(Duration::from_millis(20)).await.unwrap().is_none());
    // If the attempt ends before the server has replied, a background task deletes the node.
    until_children(&client, PATH, 0).await;
    assert_eq!(barrier.count().await.unwrap(), 0);
    assert!(barrier.enter_within(Duration::from_millis(20)).await.unwrap().is_none());
    let mut polls = 0;
    loop {
        let waits = waits_within_polls(&client, barrier.enter(), polls).await;
        until_children(&client, PATH, 0).await;
        until_watches(&client, 0).await;
        if waits {
            break;
        }
        polls += 1;
    }
    assert!(polls > 3, "{polls}");
}

#[tokio::test]
async fn members_whose_session_ends_are_left_behind() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = DoubleBarrier::new(&one, PATH, 2).unwrap();
    let second = DoubleBarrier::new(&two, PATH, 2).unwrap();
    let (dies, lives) = tokio::join!(first.enter(), second.enter());
    let (dies, lives) = (dies.unwrap(), lives.unwrap());
    let leaving = tokio::spawn(lives.leave());
    world.end_session(&one).await;
    leaving.await.unwrap().unwrap();
    assert!(dies.leave().await.unwrap_err().is_session_over());
    // Also while the barrier is not complete.
    let three = world.client().await;
    let third = DoubleBarrier::new(&three, PATH, 2).unwrap();
    let entering = tokio::spawn(async move { third.enter().await });
    until_watches(&three, 1).await;
    world.end_session(&three).await;
    assert!(entering.await.unwrap().unwrap_err().is_session_over());
    assert_eq!(second.count().await.unwrap(), 0);
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
                let here = DoubleBarrier::new(&client, &path, 2).unwrap();
                let there = DoubleBarrier::new(&other, &path, 2).unwrap();
                let (one, two) = tokio::join!(here.enter(), there.enter());
                let (one, two) = tokio::join!(one.unwrap().leave(), two.unwrap().leave());
                one.unwrap();
                two.unwrap();
                assert_eq!(children(&other, &path).await, [""; 0]);
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn the_size_may_be_on_the_tree_and_may_change() {
    let world = World::start().await;
    let (client, events) = counted(&world).await;
    let other = world.client().await;
    let barrier = SizedBarrier::new(&client, PATH);
    assert_eq!(barrier.enter().await.unwrap_err().kind(), Some(ErrorKind::NoNode));
    barrier.set_size(3).await.unwrap();
    let entering = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.enter().await }
    });
    until_watches(&client, 2).await;
    // As an operator does in a shell.
    other.set(PATH, "4", Version::Any).await.unwrap();
    until_watches(&client, 2).await;
    assert!(!entering.is_finished());
    let second = tokio::spawn({
        let other = SizedBarrier::new(&other, PATH);
        async move { other.enter().await }
    });
    until_watches(&other, 2).await;
    assert_eq!(barrier.count().await.unwrap(), 2);
    other.set(PATH, "2", Version::Any).await.unwrap();
    let (one, two) = (entering.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    until_watches(&client, 0).await;
    assert!(events.count() <= 3, "{}", events.count());
    let (one, two) = tokio::join!(one.leave(), two.leave());
    one.unwrap();
    two.unwrap();
    assert_eq!(other.get(PATH).await.unwrap().data, "2");
}

#[tokio::test]
async fn misuse_is_told() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = DoubleBarrier::new(&client, PATH, 0).unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let refused = SizedBarrier::new(&client, PATH).set_size(0).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    client.create_recursive(PATH, "many", CreateMode::Persistent).await.unwrap();
    let refused = SizedBarrier::new(&client, PATH).enter().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
    assert_eq!(children(&client, PATH).await, [""; 0]);
}

#[tokio::test]
async fn a_member_whose_node_is_deleted_gets_an_error() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 1).unwrap();
    let inside = barrier.enter().await.unwrap();
    let stranger = DoubleBarrier::new(&client, PATH, 1).unwrap().enter().await.unwrap();
    client.delete(inside.guard().path(), Version::Any).await.unwrap();
    let gone = inside.leave().await.unwrap_err();
    assert!(matches!(gone, RecipeError::NodeGone { .. }), "{gone}");
    stranger.leave().await.unwrap();
}

#[tokio::test]
async fn whoever_waits_goes_on_although_the_sign_has_gone_before_it_looks() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    let waiting = tokio::spawn(async move { barrier.enter().await });
    until_children(&other, PATH, 1).await;
    until_watches(&client, 1).await;
    // As a member of Curator that leaves at once, before other members have read the children.
    proxy.stall(Direction::ToClient);
    let (member, ready) = (format!("{PATH}/{}", Uuid::random()), format!("{PATH}/ready"));
    other.create(&member, "", CreateMode::Ephemeral).await.unwrap();
    other.create(&ready, "", CreateMode::Persistent).await.unwrap();
    other.delete(&ready, Version::Any).await.unwrap();
    other.delete(&member, Version::Any).await.unwrap();
    proxy.heal().unwrap();
    let entered = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    entered.expect("it was told").unwrap().unwrap().leave().await.unwrap();
}

#[tokio::test]
async fn whatever_else_is_in_a_barrier_is_no_member() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = DoubleBarrier::new(&client, PATH, 2).unwrap();
    client.create_parents(&format!("{PATH}/readme")).await.unwrap();
    client.create(&format!("{PATH}/readme"), "", CreateMode::Persistent).await.unwrap();
    assert_eq!(barrier.count().await.unwrap(), 0);
    assert!(barrier.enter_within(Duration::from_millis(50)).await.unwrap().is_none());
    until_children(&client, PATH, 1).await;
    let (one, two) = tokio::join!(barrier.enter(), barrier.enter());
    let (one, two) = (one.unwrap(), two.unwrap());
    let left = async { tokio::try_join!(one.leave(), two.leave()) };
    tokio::time::timeout(Duration::from_secs(60), left).await.expect("no others").unwrap();
}
