//! Contenders of several sessions. The NodeDeleted event of an Ironkeeper server carries the czxid
//! of the parent's oldest remaining child (oldest-sibling watch); only a contender with a different
//! czxid reads the children.

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock};
use ironkeeper_recipes::{Guard, RecipeError, Result};
use tokio::task::JoinHandle;

use crate::world::requests::{self, Requests, followed};
use crate::world::{World, children, until_children, until_watches};

const PATH: &str = "/locks/next";

async fn waiter(client: &Client) -> JoinHandle<Result<Guard>> {
    let mutex = Mutex::new(client, PATH);
    let locking = tokio::spawn(async move { mutex.lock().await });
    until_watches(client, 1).await;
    locking
}

fn looks(requests: &Requests) -> usize {
    requests.take().into_iter().filter(|op| *op == requests::CHILDREN).count()
}

/// Returns how often a contender must read the children; Apache servers do not send the czxid.
fn looks_needed(world: &World) -> usize {
    usize::from(world.server().is_none())
}

/// Waits until the contender has read the children, and checks that it still waits.
async fn until_look<T>(client: &Client, requests: &Requests, waiting: &JoinHandle<Result<T>>) {
    while looks(requests) == 0 {
        assert!(!waiting.is_finished());
        client.exists("/").await.unwrap();
    }
    assert!(!waiting.is_finished());
}

#[tokio::test]
async fn the_next_in_line_need_not_look() {
    let world = World::start().await;
    let first = world.client().await;
    let mut held = Mutex::new(&first, PATH).lock().await.unwrap();
    let mut line = Vec::new();
    for _ in 0..5 {
        let (client, requests) = followed(&world).await;
        line.push((waiter(&client).await, requests));
    }
    for (_, requests) in &line {
        requests.take();
    }
    for (waiting, requests) in line {
        let token = held.fencing_token();
        held.release().await.unwrap();
        held = waiting.await.unwrap().unwrap();
        assert!(held.is_valid() && held.fencing_token() > token);
        assert_eq!(looks(&requests), looks_needed(&world));
        assert!(held.check().await.unwrap());
    }
}

#[tokio::test]
async fn whoever_stands_behind_one_that_gives_up_looks_and_waits_on() {
    let world = World::start().await;
    let (first, second) = (world.client().await, world.client().await);
    let (third, requests) = followed(&world).await;
    let held = Mutex::new(&first, PATH).lock().await.unwrap();
    let gives_up = waiter(&second).await;
    let waiting = waiter(&third).await;
    requests.take();
    gives_up.abort();
    until_children(&first, PATH, 2).await;
    until_look(&third, &requests, &waiting).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_older_child_that_is_no_contender_costs_a_look_and_no_more() {
    let world = World::start().await;
    let first = world.client().await;
    let (second, requests) = followed(&world).await;
    first.create_recursive(&format!("{PATH}/readme"), "", CreateMode::Persistent).await.unwrap();
    let held = Mutex::new(&first, PATH).lock().await.unwrap();
    let waiting = waiter(&second).await;
    requests.take();
    held.release().await.unwrap();
    let _held = waiting.await.unwrap().unwrap();
    assert_eq!(looks(&requests), 1);
}

/// Its own node is deleted, so it is not the oldest, although it has no predecessor.
#[tokio::test]
async fn a_waiter_without_a_node_is_not_next_although_its_session_has_another_there() {
    let world = World::start().await;
    let (first, second) = (world.client().await, world.client().await);
    let held = Mutex::new(&first, PATH).lock().await.unwrap();
    let waiting = waiter(&second).await;
    let names = children(&first, PATH).await;
    let other = names.iter().find(|name| *name != held.node_name()).unwrap();
    second.create(&format!("{PATH}/mine"), "", CreateMode::Ephemeral).await.unwrap();
    first.delete(&format!("{PATH}/{other}"), Version::Any).await.unwrap();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().is_err());
}

/// closeSession deletes the holder's node before the waiter's: in between the waiter is the oldest.
#[tokio::test]
async fn a_session_that_ends_with_holder_and_waiter_grants_nothing_on_its_way_out() {
    for by_client in [false, true] {
        let world = World::start().await;
        let (client, other) = (world.client().await, world.client().await);
        let held = Mutex::new(&client, PATH).lock().await.unwrap();
        let waiting = waiter(&client).await;
        let next = waiter(&other).await;
        match by_client {
            true => client.close().await.unwrap(),
            false => world.end_session(&client).await,
        }
        let refused = waiting.await.unwrap().unwrap_err();
        assert!(refused.is_session_over(), "{refused}");
        next.await.unwrap().unwrap().release().await.unwrap();
        drop(held);
    }
}

#[tokio::test]
async fn a_transaction_that_takes_holder_and_waiter_grants_nothing_in_its_middle() {
    let world = World::start().await;
    let (first, second, other) = (world.client().await, world.client().await, world.client().await);
    let held = Mutex::new(&first, PATH).lock().await.unwrap();
    let waiting = waiter(&second).await;
    let names = children(&other, PATH).await;
    let waits = names.iter().find(|name| *name != held.node_name()).unwrap();
    let both = other.transaction().delete(held.path(), Version::Any);
    both.delete(&format!("{PATH}/{waits}"), Version::Any).commit().await.unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(matches!(refused, RecipeError::NodeGone { .. }), "{refused}");
}

/// A downgraded writer keeps its sequence number, but its node is younger than the waiters.
#[tokio::test]
async fn age_says_nothing_where_a_writer_may_become_a_reader() {
    let world = World::start().await;
    let first = world.client().await;
    let (second, requests) = followed(&world).await;
    let writing = ReadWriteLock::new(&first, PATH).write().await.unwrap();
    let lock = ReadWriteLock::new(&second, PATH);
    let waiting = tokio::spawn(async move { lock.write().await });
    until_watches(&second, 1).await;
    requests.take();
    let reading = writing.downgrade().await.unwrap();
    until_look(&second, &requests, &waiting).await;
    reading.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
