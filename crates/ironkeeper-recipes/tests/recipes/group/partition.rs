//! Sets partitioned among members.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::group::{PartitionState, SetPartitioner};

use crate::world::watch_events::counted;
use crate::world::{World, children, drop_after_polls, until_children};

const PATH: &str = "/partitions/p";
const LOCKS: &str = "/partitions/p/locks";
const PARTY: &str = "/partitions/p/party";
const ITEMS: [&str; 5] = ["1", "2", "3", "4", "a/b"];

async fn join(client: &Client, id: &str) -> SetPartitioner {
    let partitioner = SetPartitioner::join(client, PATH, ITEMS, id).await.unwrap();
    partitioner.with_settling(Duration::ZERO)
}

/// Waits until a partitioner has `count` members.
async fn until_members(client: &Client, partitioner: &SetPartitioner, count: usize) {
    while partitioner.members().len() != count {
        client.exists("/").await.unwrap();
    }
}

#[tokio::test]
async fn a_member_that_comes_makes_the_others_give_back_and_share() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = join(&one, "anna").await;
    let all = anna.acquire().await.unwrap();
    assert_eq!(all.items(), ITEMS);
    assert_eq!((all.members(), all.state()), (&["anna".to_owned()][..], PartitionState::Acquired));
    let joining = tokio::spawn(async move {
        let mut berta = join(&two, "berta").await;
        let share = berta.acquire().await.unwrap();
        assert_eq!(share.items(), ["2", "4"]);
        assert_eq!(share.members(), ["anna", "berta"]);
        assert!(share.is_valid() && share.guard("2").is_some() && share.guard("1").is_none());
        share.release().await.unwrap();
        berta
    });
    assert_eq!(all.ended().await, PartitionState::Release);
    assert_eq!(all.state(), PartitionState::Release);
    // Items stay with a member until the member releases them.
    assert!(all.is_valid() && all.guard("2").unwrap().check().await.unwrap());
    all.release().await.unwrap();
    let berta = joining.await.unwrap();
    until_members(&one, &anna, 2).await;
    let share = anna.acquire().await.unwrap();
    assert_eq!(share.items(), ["1", "3", "a/b"]);
    // After berta has left, anna gets all items again.
    berta.leave().await.unwrap();
    assert_eq!(share.ended().await, PartitionState::Release);
    share.release().await.unwrap();
    assert_eq!(anna.acquire().await.unwrap().items(), ITEMS);
}

#[tokio::test]
async fn no_item_is_ever_worked_on_by_two_while_members_come_and_go() {
    let world = World::start().await;
    let busy: &'static [AtomicBool; 5] = Box::leak(Box::default());
    let mut tasks = Vec::new();
    for member in 0..4 {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..4 {
                let mut partitioner = join(&client, &format!("member-{member}")).await;
                let share = partitioner.acquire().await.unwrap();
                let mine: Vec<usize> = share
                    .items()
                    .iter()
                    .map(|item| ITEMS.iter().position(|other| other == item).unwrap())
                    .collect();
                for at in &mine {
                    assert!(!busy[*at].swap(true, Ordering::SeqCst), "item {at} twice");
                }
                client.sync("/").await.unwrap();
                for at in &mine {
                    busy[*at].store(false, Ordering::SeqCst);
                }
                share.release().await.unwrap();
                partitioner.leave().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let client = world.client().await;
    for item in children(&client, LOCKS).await {
        until_children(&client, &format!("{LOCKS}/{item}"), 0).await;
    }
}

#[tokio::test]
async fn a_lost_session_is_a_failure_and_the_others_take_over() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = join(&one, "anna").await;
    let share = anna.acquire().await.unwrap();
    let waiting = tokio::spawn(async move {
        let mut berta = join(&two, "berta").await.with_rule(|me, members, items| {
            // Assigns all items to the last member.
            if members.last().is_some_and(|last| last == me) { items.to_vec() } else { vec![] }
        });
        berta.acquire().await.unwrap().items()
    });
    until_children(&one, PARTY, 2).await;
    let stale = share.fence(one.transaction()).len();
    assert_eq!(stale, ITEMS.len());
    world.end_session(&one).await;
    assert_eq!(share.ended().await, PartitionState::Failure);
    assert_eq!(share.state(), PartitionState::Failure);
    assert!(!share.is_valid());
    assert_eq!(waiting.await.unwrap(), ITEMS);
    drop(share);
    assert!(anna.acquire().await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn a_mutex_deleted_by_somebody_else_is_a_failure() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut anna = join(&one, "anna").await;
    let share = anna.acquire().await.unwrap();
    let token = share.guard("3").unwrap().fencing_token();
    two.delete(share.guard("3").unwrap().path(), Version::Any).await.unwrap();
    assert_eq!(share.ended().await, PartitionState::Failure);
    drop(share);
    let again = anna.acquire().await.unwrap();
    assert!(again.guard("3").unwrap().fencing_token() > token);
}

#[tokio::test]
async fn more_members_than_items_leave_some_with_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let one = |id: &'static str| SetPartitioner::join(&client, PATH, ["only"], id);
    let mut anna = one("anna").await.unwrap().with_settling(Duration::ZERO);
    let mut berta = one("berta").await.unwrap().with_settling(Duration::ZERO);
    until_members(&client, &anna, 2).await;
    assert_eq!(anna.acquire().await.unwrap().items(), ["only"]);
    let nothing = berta.acquire().await.unwrap();
    assert!(nothing.items().is_empty() && nothing.is_valid());
    nothing.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_dropped_at_any_await_gives_all_back() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let mut anna = join(&client, "anna").await;
    for polls in 0.. {
        let done = drop_after_polls(anna.acquire(), polls).await;
        let is_done = done.is_some();
        drop(done);
        for item in children(&watching, LOCKS).await {
            until_children(&watching, &format!("{LOCKS}/{item}"), 0).await;
        }
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn nothing_to_share_out_and_a_rule_that_invents_are_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = SetPartitioner::join(&client, PATH, [""; 0], "anna").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let mut anna = join(&client, "anna").await.with_rule(|_, _, _| vec!["invented".to_owned()]);
    let refused = anna.acquire().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn a_broken_connection_is_outlived_with_the_share() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let mut anna = join(&client, "anna").await;
    let share = anna.acquire().await.unwrap();
    proxy.refuse();
    proxy.cut();
    proxy.heal().unwrap();
    client.connected().await.unwrap();
    assert!(share.guard("1").unwrap().check().await.unwrap());
    assert_eq!(share.state(), PartitionState::Acquired);
    share.release().await.unwrap();
}

#[tokio::test]
async fn a_member_that_comes_costs_each_of_the_others_one_watch_event() {
    let world = World::start().await;
    let (client, events) = counted(&world).await;
    let mut anna = join(&client, "anna").await;
    let share = anna.acquire().await.unwrap();
    assert_eq!(share.items(), ITEMS);
    let other = world.client().await;
    let _berta = join(&other, "berta").await;
    while share.state() != PartitionState::Release {
        client.exists("/").await.unwrap();
    }
    assert_eq!(events.count(), 1);
}
