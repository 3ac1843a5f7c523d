//! Lost connections and reconnects.

use std::time::Duration;

use ironkeeper_client::{
    Client, ConnectionState, CreateMode, ErrorKind, EventType, Happened, Version, WatchItem,
    WatchMode,
};
use ironkeeper_testing::Direction;

use super::place::{Place, patiently, soon, until};

#[tokio::test]
async fn a_restarted_server_finds_its_clients_and_their_watches() {
    let place = Place::new().await;
    let client = place.client().await;
    let session = client.session_id();
    client.create("/n", "1", CreateMode::Persistent).await.unwrap();
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let (_, watch) = client.get_and_watch("/n").await.unwrap();
    let mut watcher = client.watch("/", WatchMode::Recursive).await.unwrap();
    let mut states = client.states();
    place.restart().await;
    until(&mut states, ConnectionState::Suspended).await;
    until(&mut states, ConnectionState::Reconnected).await;
    assert_eq!(client.session_id(), session);
    assert_eq!(soon(watcher.next()).await, Some(WatchItem::Gap));
    assert!(client.exists("/e").await.unwrap().is_some());
    client.set("/n", "2", Version::Any).await.unwrap();
    assert_eq!(soon(watch).await.unwrap().kind, EventType::NodeDataChanged);
    assert!(matches!(soon(watcher.next()).await, Some(WatchItem::Event(_))));
}

#[tokio::test]
async fn what_happened_while_away_is_told_afterwards() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let other = place.client().await;
    for path in ["/changed", "/deleted", "/listed"] {
        client.create(path, "", CreateMode::Persistent).await.unwrap();
    }
    let (_, changed) = client.get_and_watch("/changed").await.unwrap();
    let (_, deleted) = client.exists_and_watch("/deleted").await.unwrap();
    let (_, created) = client.exists_and_watch("/created").await.unwrap();
    let (_, _, listed) = client.children_and_watch("/listed").await.unwrap();
    let (_, quiet) = client.get_and_watch("/listed").await.unwrap();
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    other.set("/changed", "x", Version::Any).await.unwrap();
    other.delete("/deleted", Version::Any).await.unwrap();
    other.create("/created", "", CreateMode::Persistent).await.unwrap();
    other.create("/listed/child", "", CreateMode::Persistent).await.unwrap();
    proxy.heal().unwrap();
    assert_eq!(soon(changed).await.unwrap().kind, EventType::NodeDataChanged);
    assert_eq!(soon(deleted).await.unwrap().kind, EventType::NodeDeleted);
    assert_eq!(soon(created).await.unwrap().kind, EventType::NodeCreated);
    assert_eq!(soon(listed).await.unwrap().kind, EventType::NodeChildrenChanged);
    // The other watch is still set, on the server too.
    assert_eq!(client.watch_count(), 1);
    other.set("/listed", "now", Version::Any).await.unwrap();
    assert_eq!(soon(quiet).await.unwrap().kind, EventType::NodeDataChanged);
}

#[tokio::test]
async fn curator_593_551_the_session_goes_on_at_another_server_below_the_same_path() {
    let place = Place::new().await;
    let (one, two) = (place.proxy(), place.proxy());
    let client = Client::connect(&place.through(&[&one, &two])).await.unwrap();
    client.add_auth("digest", "me:pw").await.unwrap();
    let session = client.session_id();
    // The chroot of the test applies after the reconnect, too.
    client.create("/here", "", CreateMode::Ephemeral).await.unwrap();
    let mut states = client.states();
    for _ in 0..6 {
        let at = client.server().unwrap();
        let (used, spare) = if at.port() == one.port() { (&one, &two) } else { (&two, &one) };
        used.refuse();
        used.cut();
        until(&mut states, ConnectionState::Reconnected).await;
        assert_eq!(client.server().unwrap().port(), spare.port());
        assert_eq!(client.session_id(), session);
        assert!(client.exists("/here").await.unwrap().is_some());
        // The client has sent its credentials again.
        let who = client.who_am_i().await.unwrap();
        assert!(who.iter().any(|identity| identity.scheme == "digest"));
        used.heal().unwrap();
    }
}

#[tokio::test]
async fn requests_tell_whether_they_may_have_happened() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let mut states = client.states();
    // The request reaches the server, its reply does not reach the client.
    proxy.stall(Direction::ToClient);
    let sent = client.create("/maybe", "", CreateMode::Persistent);
    let read = client.get("/");
    let other = place.client().await;
    soon(async {
        while other.exists("/maybe").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.refuse();
    proxy.cut();
    let sent = soon(sent).await.unwrap_err();
    assert_eq!((sent.kind(), sent.happened()), (ErrorKind::ConnectionLoss, Happened::Maybe));
    let read = soon(read).await.unwrap_err();
    assert_eq!((read.kind(), read.happened()), (ErrorKind::ConnectionLoss, Happened::No));
    until(&mut states, ConnectionState::Suspended).await;
    // Sent without a connection: the request waits, and when it fails it was certainly not applied.
    let unsent = soon(client.create("/never", "", CreateMode::Persistent)).await.unwrap_err();
    assert_eq!((unsent.kind(), unsent.happened()), (ErrorKind::ConnectionLoss, Happened::No));
    proxy.heal().unwrap();
    until(&mut states, ConnectionState::Reconnected).await;
    assert!(client.exists("/never").await.unwrap().is_none());
}

#[tokio::test]
async fn requests_made_while_disconnected_are_sent_when_it_is_over() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let mut states = client.states();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    let replies: Vec<_> = (0..100)
        .map(|number| client.create(&format!("/n{number}"), "", CreateMode::Persistent))
        .collect();
    for reply in replies {
        soon(reply).await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_server_is_left_for_another() {
    let place = Place::new().await;
    let (one, two) = (place.proxy(), place.proxy());
    let builder = Client::builder(&place.through(&[&one, &two]));
    // Long enough for a busy machine to connect to the other server before the session expires.
    let client = builder.session_timeout(Duration::from_secs(12)).connect().await.unwrap();
    let mut states = client.states();
    let at = client.server().unwrap();
    let used = if at.port() == one.port() { &one } else { &two };
    used.stall(Direction::ToClient);
    let asked = client.get("/");
    until(&mut states, ConnectionState::Suspended).await;
    assert_eq!(soon(asked).await.unwrap_err().kind(), ErrorKind::ConnectionLoss);
    until(&mut states, ConnectionState::Reconnected).await;
    assert_ne!(client.server().unwrap(), at);
}

#[tokio::test]
async fn curator_184_220_292_405_525_561_627_a_client_that_nobody_answers_gives_its_session_up() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let builder = Client::builder(&place.through(&[&proxy]));
    let client = builder.session_timeout(Duration::from_secs(4)).connect().await.unwrap();
    let mut states = client.states();
    let (_, watch) = client.get_and_watch("/").await.unwrap();
    proxy.refuse();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    let retrying = tokio::spawn({
        let client = client.clone();
        async move { client.retry(&patiently(), || client.get("/")).await }
    });
    until(&mut states, ConnectionState::Lost).await;
    assert_eq!(soon(retrying).await.unwrap().unwrap_err().kind(), ErrorKind::SessionExpired);
    assert_eq!(soon(watch).await.unwrap_err().kind(), ErrorKind::SessionExpired);
    assert_eq!(client.get("/").await.unwrap_err().kind(), ErrorKind::SessionExpired);
}

#[tokio::test]
async fn retries_wait_for_the_connection() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    let policy = patiently();
    let reading = client.retry(&policy, || client.get("/"));
    let healing = async {
        // Some attempts fail first.
        assert!(soon(client.get("/")).await.is_err());
        proxy.heal().unwrap();
    };
    let (read, ()) = soon(async { tokio::join!(reading, healing) }).await;
    read.unwrap();
}

#[tokio::test]
async fn guaranteed_deletes_outlive_the_connection_and_their_future() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let other = place.client().await;
    client.create("/n", "", CreateMode::Persistent).await.unwrap();
    let (_, watch) = other.exists_and_watch("/n").await.unwrap();
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    drop(client.delete_guaranteed("/n", Version::Any));
    assert!(soon(client.get("/")).await.is_err());
    proxy.heal().unwrap();
    assert_eq!(soon(watch).await.unwrap().kind, EventType::NodeDeleted);
}
