//! `LeaderLatch`.

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::election::{LatchState, LeaderLatch};
use ironkeeper_testing::Direction;

use crate::world::{World, children, until_children, with_every_cut};

const PATH: &str = "/election/latch";

fn latch(client: &Client, id: &str) -> LeaderLatch {
    LeaderLatch::start(client, PATH, id)
}

#[tokio::test]
async fn the_first_leads_and_the_next_follows() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = latch(&one, "one");
    let leadership = first.leading().await.unwrap();
    let second = latch(&two, "two");
    until_children(&one, PATH, 2).await;
    assert!(first.has_leadership() && !second.has_leadership());
    let ids: Vec<_> = second.participants().await.unwrap().iter().map(|one| one.id()).collect();
    assert_eq!(ids, ["one", "two"]);
    assert_eq!(second.leader().await.unwrap().unwrap().id(), "one");
    first.close().await.unwrap();
    let next = second.leading().await.unwrap();
    assert!(next.fencing_token() > leadership.fencing_token());
    assert!(!leadership.check().await.unwrap() && next.check().await.unwrap());
    drop(second);
    until_children(&one, PATH, 0).await;
}

#[tokio::test]
async fn curator_696_652_444_460_620_a_session_that_ends_ends_the_leadership() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = latch(&one, "one");
    let old = first.leading().await.unwrap();
    // Started only now, because requests on two connections have no order, and the first node
    // leads.
    let second = latch(&two, "two");
    let (_, ()) = tokio::join!(first.over(&old), world.end_session(&one));
    assert!(!first.has_leadership());
    assert!(first.leading().await.unwrap_err().is_session_over());
    assert!(matches!(first.state(), LatchState::Ended(Some(_))));
    let new = second.leading().await.unwrap();
    assert!(new.fencing_token() > old.fencing_token());
    // The server rejects transactions of the old leader.
    two.create("/orders", "", CreateMode::Persistent).await.unwrap();
    let refused = new
        .fence(two.transaction())
        .check(old.path(), Version::Any)
        .set("/orders", "old", Version::Any)
        .commit()
        .await
        .unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (ErrorKind::NoNode, Some(old.path())));
    new.transaction().set("/orders", "new", Version::Any).commit().await.unwrap();
}

#[tokio::test]
async fn a_broken_connection_puts_the_leader_in_doubt() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let latch = latch(&client, "one");
    let leadership = latch.leading().await.unwrap();
    let mut states = latch.states();
    proxy.refuse();
    proxy.cut();
    states.wait_for(|state| matches!(state, LatchState::InDoubt(_))).await.unwrap();
    assert!(!latch.has_leadership());
    proxy.heal().unwrap();
    let again = latch.leading().await.unwrap();
    assert_eq!(again.fencing_token(), leadership.fencing_token());
    latch.close().await.unwrap();
}

#[tokio::test]
async fn curator_505_533_a_flapping_connection_changes_no_leader() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let first = latch(&client, "one");
    let leadership = first.leading().await.unwrap();
    let second = latch(&other, "two");
    until_children(&other, PATH, 2).await;
    let mut states = client.states();
    for _ in 0..5 {
        proxy.cut();
        while !states.next().await.unwrap().is_connected() {}
        let again = first.leading().await.unwrap();
        assert_eq!(again.fencing_token(), leadership.fencing_token());
        assert!(!second.has_leadership());
    }
    assert_eq!(children(&other, PATH).await.len(), 2);
}

#[tokio::test]
async fn curator_724_a_latch_whose_path_is_deleted_stands_again() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let latch = latch(&one, "one");
    let old = latch.leading().await.unwrap();
    two.delete_recursive("/election").await.unwrap();
    latch.over(&old).await;
    let new = latch.leading().await.unwrap();
    assert!(new.fencing_token() > old.fencing_token());
    assert_eq!(children(&two, PATH).await.len(), 1);
}

#[tokio::test]
async fn curator_644_645_a_vanished_predecessor_moves_nobody() {
    let world = World::start().await;
    let client = world.client().await;
    let latches: Vec<LeaderLatch> = (0..3).map(|at| latch(&client, &at.to_string())).collect();
    until_children(&client, PATH, 3).await;
    let before = latches[0].participants().await.unwrap();
    // The node in the middle is deleted: the last latch reads the children again and keeps its
    // node.
    client.delete(&before[1].path, Version::Any).await.unwrap();
    let leader = before[0].path.clone();
    // The owner of the deleted node creates a new one at the end of the queue when it reads the
    // children again.
    client.delete(&leader, Version::Any).await.unwrap();
    let last = latches.iter().find(|latch| latch.id() == before[2].id()).unwrap();
    let leadership = last.leading().await.unwrap();
    assert_eq!(leadership.path(), before[2].path);
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_leader_and_no_orphan() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let latch = LeaderLatch::start(&client, &path, "one");
                latch.leading().await.unwrap();
                assert_eq!(children(&watching, &path).await.len(), 1);
                latch.close().await.unwrap();
                assert_eq!(children(&watching, &path).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_refused_path_is_told() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = LeaderLatch::start(&client, "no/path", "one").leading().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Client(_)), "{refused}");
    // A waiting latch can be closed as well.
    let first = latch(&client, "one");
    first.leading().await.unwrap();
    let second = latch(&client, "two");
    until_children(&client, PATH, 2).await;
    second.close().await.unwrap();
    assert_eq!(children(&client, PATH).await.len(), 1);
    first.close().await.unwrap();
}
