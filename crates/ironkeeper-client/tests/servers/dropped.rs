//! Futures that are dropped at any point: no leaks and no hangs.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use ironkeeper_client::{Client, CreateMode, Version, WatchMode};

use super::place::{Place, patiently, soon};

/// Polls a future `times` times, yields to other tasks in between, and drops it.
async fn poll_and_drop<F: Future>(future: F, times: usize) {
    let mut future = pin!(future);
    for _ in 0..times {
        let done = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if done {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dropped_requests_are_carried_out_and_forgotten() {
    let place = Place::new().await;
    let client = place.client().await;
    for times in 0..20 {
        let path = format!("/n{times}");
        poll_and_drop(client.create(&path, "", CreateMode::Persistent), times).await;
        poll_and_drop(client.get_and_watch(&path), times).await;
        poll_and_drop(client.exists_and_watch("/absent"), times).await;
        poll_and_drop(client.children_and_watch("/"), times).await;
        poll_and_drop(client.watch("/", WatchMode::Recursive), times).await;
        poll_and_drop(client.transaction().set(&path, "x", Version::Any).commit(), times).await;
        poll_and_drop(client.connected(), times).await;
    }
    client.sync("/").await.unwrap();
    assert_eq!(client.watch_count(), 0);
    let children = client.children("/").await.unwrap();
    assert_eq!(children.len(), 20);
    for times in 0..20 {
        assert_eq!(client.get(&format!("/n{times}")).await.unwrap().data, "x");
    }
}

#[tokio::test]
async fn a_dropped_protected_create_leaves_no_node_behind() {
    let place = Place::new().await;
    let client = place.client().await;
    let policy = patiently();
    client.create("/p", "", CreateMode::Persistent).await.unwrap();
    let mut completed = 0;
    for times in 0..40 {
        let mode = CreateMode::PersistentSequential;
        let mut done = false;
        let create = async {
            done = client.create_protected("/p/n-", "", mode, &policy).await.is_ok();
        };
        poll_and_drop(create, times).await;
        completed += usize::from(done);
    }
    soon(async {
        while client.children("/p").await.unwrap().len() != completed {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The create is neither started nor dropped in a runtime: the runtime of the session cleans up.
#[tokio::test(flavor = "multi_thread")]
async fn a_protected_create_outside_of_runtimes_leaves_no_node_behind() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create("/p", "", CreateMode::Persistent).await.unwrap();
    let of_thread = client.clone();
    std::thread::spawn(move || {
        let (policy, mode) = (patiently(), CreateMode::PersistentSequential);
        drop(of_thread.create_protected("/p/n-", "", mode, &policy));
    })
    .join()
    .unwrap();
    // The create was submitted first, so this reply follows it.
    let created = client.exists("/p").await.unwrap().unwrap().cversion;
    assert!(created > 0);
    soon(async { while !client.children("/p").await.unwrap().is_empty() {} }).await;
}

#[tokio::test]
async fn dropping_while_connections_break_sticks_nothing() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    for round in 0..30 {
        let requests: Vec<_> = (0..50).map(|_| client.get_and_watch("/")).collect();
        if round % 3 == 0 {
            proxy.cut();
        }
        for (at, request) in requests.into_iter().enumerate() {
            if at % 2 == 0 {
                poll_and_drop(request, at % 7).await;
            } else {
                // The request must end, with success or an error.
                drop(soon(request).await);
            }
        }
    }
    client.retry(&patiently(), || client.sync("/")).await.unwrap();
    assert_eq!(client.watch_count(), 0);
}

#[test]
fn a_runtime_that_goes_away_leaves_nobody_waiting() {
    let setup = tokio::runtime::Runtime::new().unwrap();
    let place = setup.block_on(Place::new());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(place.client());
    let (_, watch) = runtime.block_on(client.get_and_watch("/")).unwrap();
    drop(runtime);
    setup.block_on(async {
        assert!(soon(client.get("/")).await.unwrap_err().is_session_over());
        assert!(soon(watch).await.unwrap_err().is_session_over());
        client.close().await.unwrap();
    });
}

#[tokio::test]
async fn a_connect_that_is_dropped_ends_its_session() {
    let place = Place::new().await;
    for times in 0..30 {
        poll_and_drop(Client::connect(&place.connect_string()), times).await;
    }
    let client = place.client().await;
    assert!(client.exists("/").await.unwrap().is_some());
}
