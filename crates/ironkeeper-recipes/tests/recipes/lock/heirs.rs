//! Handover of a lock among the contenders of one session.

use std::pin::pin;

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::lock::Mutex;
use ironkeeper_recipes::{Guard, Lost, Result};
use ironkeeper_testing::Direction;

use crate::world::requests::{self, followed};
use crate::world::{World, children, until_children, until_watches};

const PATH: &str = "/locks/heirs";

/// Starts a contender, and returns when the client has `watches` watches.
async fn waiter(client: &Client, watches: usize) -> tokio::task::JoinHandle<Result<Guard>> {
    let mutex = Mutex::new(client, PATH);
    let locking = tokio::spawn(async move { mutex.lock().await });
    until_watches(client, watches).await;
    locking
}

#[tokio::test]
async fn a_release_hands_the_lock_on_within_its_session_and_nobody_looks() {
    let world = World::start().await;
    let (client, requests) = followed(&world).await;
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let (next, last) = (waiter(&client, 1).await, waiter(&client, 2).await);
    requests.take();
    let token = held.fencing_token();
    held.release().await.unwrap();
    let held = next.await.unwrap().unwrap();
    assert!(held.is_valid() && held.fencing_token() > token);
    assert!(held.check().await.unwrap());
    drop(held);
    let held = last.await.unwrap().unwrap();
    assert!(held.check().await.unwrap());
    held.release().await.unwrap();
    let looks = requests.take().into_iter().filter(|op| *op == requests::CHILDREN).count();
    assert_eq!(looks, 0);
    assert_eq!(children(&client, PATH).await, [""; 0]);
}

#[tokio::test]
async fn the_turn_passes_while_the_server_cannot_be_heard() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let mut next = pin!(waiter(&client, 1).await);
    proxy.stall(Direction::ToClient);
    let mut releasing = pin!(held.release());
    tokio::select! {
        biased;
        released = &mut releasing => panic!("nobody has heard of it yet: {released:?}"),
        held = &mut next => drop(held.unwrap().unwrap()),
    }
    proxy.heal().unwrap();
    releasing.await.unwrap();
}

#[tokio::test]
async fn an_heir_sees_what_the_last_holder_wrote() {
    let world = World::start().await;
    let client = world.client().await;
    client.create("/written", "0", CreateMode::Persistent).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = Mutex::new(&client, PATH).lock().await.unwrap();
                let node = client.get("/written").await.unwrap();
                let number: u32 = String::from_utf8_lossy(&node.data).parse().unwrap();
                // Not awaited: the delete of the guard follows it on the connection.
                drop(client.set("/written", (number + 1).to_string(), node.stat.version));
                drop(guard);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(client.get("/written").await.unwrap().data, "200");
}

#[tokio::test]
async fn another_session_that_comes_first_is_not_passed_over() {
    let world = World::start().await;
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = Mutex::new(&ours, PATH).lock().await.unwrap();
    let between = waiter(&theirs, 1).await;
    let after = waiter(&ours, 1).await;
    held.release().await.unwrap();
    let between = between.await.unwrap().unwrap();
    assert!(!after.is_finished());
    between.release().await.unwrap();
    after.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_gives_up_hands_nothing_on() {
    let world = World::start().await;
    let (client, requests) = followed(&world).await;
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let (gives_up, behind) = (waiter(&client, 1).await, waiter(&client, 2).await);
    requests.take();
    gives_up.abort();
    until_children(&world.client().await, PATH, 2).await;
    // The contender reads the children and then waits for the holder.
    while !requests.take().contains(&requests::CHILDREN) {
        client.exists("/").await.unwrap();
    }
    assert!(!behind.is_finished());
    held.release().await.unwrap();
    behind.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn nothing_is_handed_on_while_the_connection_is_broken() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let next = waiter(&client, 1).await;
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    while client.state().is_connected() {
        states.next().await.unwrap();
    }
    drop(held);
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    proxy.heal().unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_heir_whose_node_is_gone_has_a_lost_guard_or_none() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let next = waiter(&client, 1).await;
    let names = children(&other, PATH).await;
    let theirs = names.iter().find(|name| *name != held.node_name()).unwrap();
    other.delete(&format!("{PATH}/{theirs}"), Version::Any).await.unwrap();
    held.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    // The guard's node was read before this request, so its deletion is known now.
    client.exists("/").await.unwrap();
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, Lost::NodeDeleted);
}
