//! Sessions: creation, end, and what remains on the server.

use std::time::Duration;

use ironkeeper_client::{Client, ConnectionState, CreateMode, ErrorKind, WatchItem, WatchMode};
use ironkeeper_testing::HeldPort;

use super::place::{Place, soon, until};

#[tokio::test]
async fn closing_removes_ephemeral_nodes_and_ends_everything() {
    let place = Place::new().await;
    let (client, other) = (place.client().await, place.client().await);
    let mut states = client.states();
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let before = client.create("/p", "", CreateMode::Persistent);
    // Two concurrent closes: both return when the session is closed.
    let (one, two) = tokio::join!(client.close(), client.close());
    one.unwrap();
    two.unwrap();
    before.await.unwrap();
    assert!(other.exists("/e").await.unwrap().is_none());
    assert_eq!(client.get("/").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.connected().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(soon(states.next()).await, Some(ConnectionState::Closed));
    assert_eq!(soon(states.next()).await, None);
    client.close().await.unwrap();
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_session() {
    let place = Place::new().await;
    let (client, other) = (place.client().await, place.client().await);
    let created = client.create("/e", "", CreateMode::Ephemeral).await;
    created.unwrap();
    let (_, watch) = other.exists_and_watch("/e").await.unwrap();
    let clone = client.clone();
    drop(client);
    assert!(clone.exists("/e").await.unwrap().is_some());
    drop(clone);
    soon(watch).await.unwrap();
    assert!(other.exists("/e").await.unwrap().is_none());
}

#[tokio::test]
async fn an_expired_session_is_lost_for_good() {
    let place = Place::new().await;
    let client = place.client().await;
    let mut states = client.states();
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let (_, watch) = client.get_and_watch("/e").await.unwrap();
    let mut watcher = client.watch("/", WatchMode::Recursive).await.unwrap();
    place.expire(&client).await;
    until(&mut states, ConnectionState::Lost).await;
    let error = client.get("/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionExpired);
    assert!(error.is_session_over() && !error.is_retriable());
    assert!(soon(watch).await.is_err());
    while let Some(item) = soon(watcher.next()).await {
        if item == WatchItem::SessionEnded {
            break;
        }
    }
    assert_eq!(soon(watcher.next()).await, None);
    let other = place.client().await;
    assert!(other.exists("/e").await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_can_be_taken_up_by_another_client() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let first = Client::connect(&place.through(&[&proxy])).await.unwrap();
    first.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    // Otherwise the first client would reconnect and take over the session again.
    proxy.refuse();
    proxy.cut();
    let (id, password) = (first.session_id(), first.session_password());
    let second = Client::builder(&place.connect_string()).resume(id, password);
    let second = second.connect().await.unwrap();
    assert_eq!(second.session_id(), id);
    assert_eq!(second.ephemerals("/").await.unwrap(), ["/e"]);

    let wrong = Client::builder(&place.connect_string()).resume(id, [9; 16]).connect().await;
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::SessionExpired);
}

#[tokio::test]
async fn the_server_decides_on_the_timeout() {
    let place = Place::new().await;
    let hour = Duration::from_secs(3600);
    let client = Client::builder(&place.connect_string()).session_timeout(hour);
    let client = client.connect().await.unwrap();
    assert!(client.session_timeout() < hour);
    let client = Client::builder(&place.connect_string()).session_timeout(Duration::ZERO);
    let client = client.connect().await.unwrap();
    assert!(client.session_timeout() > Duration::ZERO);
    assert_eq!(client.server().unwrap().to_string(), place.address());
}

#[tokio::test]
async fn an_idle_session_is_kept_alive_by_pings() {
    let place = Place::new().await;
    let asked = Client::builder(&place.connect_string()).session_timeout(Duration::from_secs(10));
    let client = asked.connect().await.unwrap();
    let mut states = client.states();
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    // Longer than the session timeout, including the rounding to expiry buckets.
    let change = tokio::time::timeout(Duration::from_secs(12), states.next()).await;
    assert!(change.is_err(), "{change:?}");
    assert!(client.exists("/e").await.unwrap().is_some());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_with_a_reason() {
    // A port without a listener, reserved so that no other process gets it.
    let held = HeldPort::take(0).unwrap();
    let address = held.address().to_string();
    let builder = Client::builder(&address);
    let error = builder.connect_timeout(Duration::from_secs(3)).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectTimeout);
    assert!(error.to_string().contains("refused"), "{error}");

    let waiting = Client::builder(&address).start().unwrap();
    let error = soon(waiting.get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    assert_eq!(error.happened(), ironkeeper_client::Happened::No);
    assert!(error.is_retriable());
    waiting.close().await.unwrap();
}
