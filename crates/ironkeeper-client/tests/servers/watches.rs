//! Watches: which ones fire, which ones stay, and how they are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironkeeper_client::{
    CreateMode, ErrorKind, EventType, Version, WatchItem, WatchMode, WatchType, Watcher,
};

use super::place::{Place, soon};

#[path = "../../examples/watch.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

async fn event(watcher: &mut Watcher) -> (EventType, String) {
    match soon(watcher.next()).await {
        Some(WatchItem::Event(event)) => (event.kind, event.path),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn one_shot_watches_fire_once_for_what_they_are_about() {
    let place = Place::new().await;
    let client = place.client().await;
    let (_, created) = client.exists_and_watch("/n").await.unwrap();
    let (_, _, listed) = client.children_and_watch("/").await.unwrap();
    client.create("/n", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon(created).await.unwrap().kind, EventType::NodeCreated);
    let listed = soon(listed).await.unwrap();
    assert_eq!((listed.kind, listed.path.as_str()), (EventType::NodeChildrenChanged, "/"));

    let (_, data) = client.get_and_watch("/n").await.unwrap();
    let (_, there) = client.exists_and_watch("/n").await.unwrap();
    client.set("/n", "x", Version::Any).await.unwrap();
    assert_eq!(soon(data).await.unwrap().kind, EventType::NodeDataChanged);
    assert_eq!(soon(there).await.unwrap().kind, EventType::NodeDataChanged);

    let (_, data) = client.get_and_watch("/n").await.unwrap();
    let (_, _, list) = client.children_and_watch("/n").await.unwrap();
    client.delete("/n", Version::Any).await.unwrap();
    assert_eq!(soon(data).await.unwrap().kind, EventType::NodeDeleted);
    assert_eq!(soon(list).await.unwrap().kind, EventType::NodeDeleted);
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test]
async fn a_watch_in_line_is_a_watch_to_every_server_and_ours_say_who_is_next() {
    let place = Place::new().await;
    let client = place.client().await;
    for path in ["/one", "/two"] {
        client.create(path, "", CreateMode::Persistent).await.unwrap();
    }
    let (node, changed) = client.get_and_watch_in_line("/one").await.unwrap();
    assert!(node.data.is_empty());
    client.check_watches("/one", WatchType::Data).await.unwrap();
    client.set("/one", "x", Version::Any).await.unwrap();
    let changed = soon(changed).await.unwrap();
    assert_eq!((changed.kind, changed.oldest_sibling), (EventType::NodeDataChanged, None));

    let (_, gone) = client.get_and_watch_in_line("/one").await.unwrap();
    let (_, told_less) = client.get_and_watch("/two").await.unwrap();
    client.delete("/one", Version::Any).await.unwrap();
    let two = client.get("/two").await.unwrap().stat.czxid;
    client.delete("/two", Version::Any).await.unwrap();
    let gone = soon(gone).await.unwrap();
    assert_eq!(gone.kind, EventType::NodeDeleted);
    if place.has_own_server() || gone.oldest_sibling.is_some() {
        assert_eq!(gone.oldest_sibling, Some(two));
    }
    assert_eq!(soon(told_less).await.unwrap().oldest_sibling, None);
}

#[tokio::test]
async fn a_failed_read_sets_no_watch() {
    let place = Place::new().await;
    let client = place.client().await;
    let error = client.get_and_watch("/none").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert_eq!(client.watch_count(), 0);
    let none = client.check_watches("/none", WatchType::Data).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NoWatcher);
}

#[tokio::test]
async fn an_event_comes_before_the_answer_that_shows_it() {
    let place = Place::new().await;
    let (client, other) = (place.client().await, place.client().await);
    client.create("/n", "0", CreateMode::Persistent).await.unwrap();
    for round in 1..=50 {
        let (node, mut watch) = client.get_and_watch("/n").await.unwrap();
        let written = other.set("/n", round.to_string(), Version::Any);
        let mut told = false;
        loop {
            let seen = client.get("/n").await.unwrap();
            // Polls the watch once, without waiting, until it has fired.
            told = told
                || std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(std::pin::Pin::new(&mut watch).poll(cx).is_ready())
                })
                .await;
            if seen.stat.mzxid > node.stat.mzxid {
                assert!(told, "round {round}: new data without the event");
                break;
            }
        }
        written.await.unwrap();
    }
}

#[tokio::test]
async fn lasting_watches_see_everything_in_order() {
    let place = Place::new().await;
    let client = place.client().await;
    let mut all = client.watch("/", WatchMode::Recursive).await.unwrap();
    let mut one = client.watch("/a", WatchMode::Persistent).await.unwrap();
    client.create("/a", "", CreateMode::Persistent).await.unwrap();
    client.create("/a/b", "", CreateMode::Persistent).await.unwrap();
    client.set("/a", "x", Version::Any).await.unwrap();
    client.delete("/a/b", Version::Any).await.unwrap();
    client.delete("/a", Version::Any).await.unwrap();
    for (kind, path) in [
        (EventType::NodeCreated, "/a"),
        (EventType::NodeCreated, "/a/b"),
        (EventType::NodeDataChanged, "/a"),
        (EventType::NodeDeleted, "/a/b"),
        (EventType::NodeDeleted, "/a"),
    ] {
        assert_eq!(event(&mut all).await, (kind, path.to_owned()));
    }
    for kind in [
        EventType::NodeCreated,
        EventType::NodeChildrenChanged,
        EventType::NodeDataChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeDeleted,
    ] {
        assert_eq!(event(&mut one).await, (kind, "/a".to_owned()));
    }
}

#[tokio::test]
async fn dropping_the_last_watcher_ends_the_servers_watch() {
    let place = Place::new().await;
    let client = place.client().await;
    let first = client.watch("/a", WatchMode::Recursive).await.unwrap();
    let mut second = client.watch("/a", WatchMode::Recursive).await.unwrap();
    drop(first);
    client.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(event(&mut second).await.0, EventType::NodeCreated);
    drop(second);
    let gone = client.check_watches("/a", WatchType::Recursive).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoWatcher);
    assert_eq!(client.watch_count(), 0);

    // A watch whose reply is not awaited.
    drop(client.watch("/a", WatchMode::Persistent));
    let gone = client.check_watches("/a", WatchType::Persistent).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoWatcher);

    // A new watch requested before the old one is dropped is not removed with it.
    let old = client.watch("/a", WatchMode::Recursive).await.unwrap();
    let new = client.watch("/a", WatchMode::Recursive);
    drop(old);
    let mut new = new.await.unwrap();
    client.set("/a", "x", Version::Any).await.unwrap();
    assert_eq!(event(&mut new).await.0, EventType::NodeDataChanged);
}

#[tokio::test]
async fn watches_are_removed_when_asked() {
    let place = Place::new().await;
    let client = place.client().await;
    let (_, one) = client.get_and_watch("/").await.unwrap();
    let (_, two) = client.get_and_watch("/").await.unwrap();
    one.remove().await.unwrap();
    // The watch `two` still needs it on the server.
    client.check_watches("/", WatchType::Data).await.unwrap();
    two.remove().await.unwrap();
    assert!(client.check_watches("/", WatchType::Data).await.is_err());

    let watcher = client.watch("/x", WatchMode::Persistent).await.unwrap();
    watcher.remove().await.unwrap();
    assert!(client.check_watches("/x", WatchType::Any).await.is_err());

    let (_, data) = client.get_and_watch("/").await.unwrap();
    let (_, _, list) = client.children_and_watch("/").await.unwrap();
    let mut all = client.watch("/", WatchMode::Recursive).await.unwrap();
    client.remove_watches("/", WatchType::Any).await.unwrap();
    assert_eq!(soon(data).await.unwrap_err().kind(), ErrorKind::NoWatcher);
    assert_eq!(soon(list).await.unwrap_err().kind(), ErrorKind::NoWatcher);
    assert_eq!(soon(all.next()).await, None);
    let none = client.remove_watches("/", WatchType::Any).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NoWatcher);
}

#[tokio::test]
async fn a_watcher_that_nobody_reads_has_a_gap_instead_of_endless_memory() {
    let place = Place::new().await;
    let client = ironkeeper_client::Client::builder(&place.connect_string()).max_watch_events(10);
    let client = client.connect().await.unwrap();
    let mut watcher = client.watch("/", WatchMode::Recursive).await.unwrap();
    client.create("/n", "", CreateMode::Persistent).await.unwrap();
    for _ in 0..30 {
        client.set("/n", "", Version::Any).await.unwrap();
    }
    for _ in 0..10 {
        event(&mut watcher).await;
    }
    assert_eq!(soon(watcher.next()).await, Some(WatchItem::Gap));
    client.delete("/n", Version::Any).await.unwrap();
    assert_eq!(event(&mut watcher).await, (EventType::NodeDeleted, "/n".to_owned()));
}

#[tokio::test]
async fn watches_end_with_the_session() {
    let place = Place::new().await;
    let client = place.client().await;
    let (_, watch) = client.get_and_watch("/").await.unwrap();
    let mut watcher = client.watch("/", WatchMode::Recursive).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(soon(watch).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(soon(watcher.next()).await, Some(WatchItem::SessionEnded));
    assert_eq!(soon(watcher.next()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn removing_a_watch_leaves_those_alone_who_ask_for_the_same_at_that_moment() {
    let place = Place::new().await;
    let client = place.client().await;
    let (remover, stop) = (client.clone(), Arc::new(AtomicBool::new(false)));
    let removing = tokio::spawn({
        let stop = stop.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                let (_, watch) = remover.exists_and_watch("/n").await.unwrap();
                watch.remove().await.unwrap();
                drop(remover.watch("/p", WatchMode::Persistent).await.unwrap());
            }
        }
    });
    for round in 0..3000 {
        let (_, watch) = client.exists_and_watch("/n").await.unwrap();
        let watcher = client.watch("/p", WatchMode::Persistent).await.unwrap();
        let is_there = client.check_watches("/n", WatchType::Data).await;
        is_there.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let is_there = client.check_watches("/p", WatchType::Persistent).await;
        is_there.unwrap_or_else(|error| panic!("round {round}: {error}"));
        drop((watch, watcher));
    }
    stop.store(true, Ordering::Relaxed);
    removing.await.unwrap();
}

#[tokio::test]
async fn the_example_shows_what_is_there_and_what_changes() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create("/app", "", CreateMode::Persistent).await.unwrap();
    let (shown, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let watcher = place.client().await;
    let show = move |line| shown.send(line).expect("the test reads it");
    let followed = tokio::spawn(async move { example::follow(&watcher, "/app", show).await });
    assert_eq!(soon(lines.recv()).await.unwrap(), "/app (version 0)");
    client.set("/app", "new", Version::Any).await.unwrap();
    assert_eq!(soon(lines.recv()).await.unwrap(), "NodeDataChanged /app");
    followed.abort();
}
