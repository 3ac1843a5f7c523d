//! Many watches, many requests.

use ironkeeper_client::{Client, ConnectionState, CreateMode, EventType, Watch, WatchType};

use super::place::{Place, soon, until};

const WATCHES: usize = 100_000;

#[tokio::test]
async fn a_hundred_thousand_watches_come_back_after_a_reconnect() {
    let place = Place::new().await;
    let proxy = place.proxy();
    let client = Client::connect(&place.through(&[&proxy])).await.unwrap();
    let other = place.client().await;
    let path = |number: usize| format!("/a-rather-long-name-for-a-node-{number:06}");
    let mut watches: Vec<Option<Watch>> = Vec::new();
    for batch in 0..WATCHES / 1000 {
        let replies: Vec<_> =
            (0..1000).map(|number| client.exists_and_watch(&path(batch * 1000 + number))).collect();
        for reply in replies {
            watches.push(Some(reply.await.unwrap().1));
        }
    }
    assert_eq!(client.watch_count(), WATCHES);
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    until(&mut states, ConnectionState::Suspended).await;
    // One event happens while disconnected, the others after the reconnect.
    other.create(&path(7), "", CreateMode::Persistent).await.unwrap();
    proxy.heal().unwrap();
    until(&mut states, ConnectionState::Reconnected).await;
    let missed = soon(watches[7].take().unwrap()).await.unwrap();
    assert_eq!((missed.kind, missed.path), (EventType::NodeCreated, path(7)));
    for number in (0..WATCHES).step_by(9973).filter(|number| *number != 7) {
        client.check_watches(&path(number), WatchType::Data).await.unwrap();
        other.create(&path(number), "", CreateMode::Persistent).await.unwrap();
        let event = soon(watches[number].take().unwrap()).await.unwrap();
        assert_eq!((event.kind, event.path), (EventType::NodeCreated, path(number)));
    }
    drop(watches);
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_one_client() {
    let place = Place::new().await;
    let client = place.client().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let client = client.clone();
        tasks.spawn(async move {
            let path = format!("/t{task}");
            client.create(&path, "0", CreateMode::Persistent).await.unwrap();
            for round in 0..50 {
                let stat = client.set(&path, round.to_string(), round).await.unwrap();
                assert_eq!(stat.version, round + 1);
                assert_eq!(client.get(&path).await.unwrap().data, round.to_string());
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(client.children("/").await.unwrap().len(), 64);
}
