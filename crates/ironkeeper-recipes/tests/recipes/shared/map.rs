//! Maps and sets.

use bytes::Bytes;
use ironkeeper_client::CreateMode;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::cache::CacheEvent;
use ironkeeper_recipes::shared::{Map, Set};
use ironkeeper_testing::Direction;

use crate::world::{World, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/maps/m";

#[tokio::test]
async fn a_map_does_what_a_concurrent_map_does() {
    let world = World::start().await;
    let client = world.client().await;
    let map = Map::new(&client, PATH).unwrap();
    assert_eq!(map.path(), PATH);
    assert_eq!(map.get("k").await.unwrap(), None);
    assert_eq!(map.replace("k", "0").await.unwrap(), None);
    assert_eq!(map.remove("k").await.unwrap(), None);
    assert!(map.is_empty().await.unwrap());
    assert_eq!(map.put("k", "1").await.unwrap(), None);
    assert_eq!(map.put("k", "2").await.unwrap().unwrap(), "1");
    assert_eq!(map.put_if_absent("k", "3").await.unwrap().unwrap(), "2");
    assert_eq!(map.put_if_absent("l", "3").await.unwrap(), None);
    assert_eq!(map.replace("k", "4").await.unwrap().unwrap(), "2");
    assert!(!map.replace_if("k", "2", "5").await.unwrap());
    assert!(map.replace_if("k", "4", "5").await.unwrap());
    assert!(!map.remove_if("k", "4").await.unwrap());
    assert!(map.contains_key("k").await.unwrap());
    assert_eq!(map.keys().await.unwrap(), ["k", "l"]);
    assert_eq!(map.entries().await.unwrap()["k"], "5");
    assert_eq!(map.len().await.unwrap(), 2);
    assert!(map.remove_if("k", "5").await.unwrap());
    assert!(!map.contains_key("k").await.unwrap());
    map.clear().await.unwrap();
    assert!(map.is_empty().await.unwrap());
}

#[tokio::test]
async fn any_text_is_a_key_and_strangers_are_none() {
    let world = World::start().await;
    let client = world.client().await;
    let map = Map::new(&client, PATH).unwrap();
    let mut keys = ["", ".", "..", "a/b", "a%2Fb", "ein Schlüssel", "\u{0}\u{1f600}\u{fff0}", "ß"];
    keys.sort_unstable();
    for key in keys {
        assert_eq!(map.put(key, Bytes::from(key)).await.unwrap(), None, "{key:?}");
    }
    client.create(&format!("{PATH}/%not-ours"), "", CreateMode::Persistent).await.unwrap();
    assert_eq!(map.keys().await.unwrap(), keys);
    for (key, value) in map.entries().await.unwrap() {
        assert_eq!(value, key);
        assert_eq!(map.remove(&key).await.unwrap().unwrap(), key);
    }
    let refused = Map::new(&client, "/").unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn no_update_of_many_at_once_is_lost_though_keys_come_and_go() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = world.client().await;
        let map = Map::new(&client, PATH).unwrap();
        tasks.push(tokio::spawn(async move {
            let mut ones = 0;
            for _ in 0..15 {
                // Creates or removes the key in turn, so that versions start at 0 again and again.
                let count = |before: Option<&Bytes>| match before {
                    Some(_) => None,
                    None => Some(Bytes::from_static(b"1")),
                };
                let after = map.update("k", count).await.unwrap();
                ones += i32::from(after.is_some());
            }
            ones
        }));
    }
    let mut ones = 0;
    for task in tasks {
        ones += task.await.unwrap();
    }
    // Creates and removals alternate: an update based on an old state would change the counts.
    assert_eq!(ones, 4 * 15 / 2);
    let client = world.client().await;
    assert!(Map::new(&client, PATH).unwrap().is_empty().await.unwrap());
}

#[tokio::test]
async fn a_key_removed_and_put_again_is_not_taken_for_the_one_that_was_read() {
    let world = World::start().await;
    let (client, rival) = (world.client().await, world.client().await);
    let map = Map::new(&client, PATH).unwrap();
    let rivals = Map::new(&rival, PATH).unwrap();
    map.put("k", "old").await.unwrap();
    let mut is_first = true;
    let (meddle, mut meddled) = tokio::sync::mpsc::unbounded_channel();
    let (done, is_done) = std::sync::mpsc::channel();
    tokio::spawn(async move {
        meddled.recv().await.unwrap();
        rivals.remove("k").await.unwrap();
        rivals.put("k", "new").await.unwrap();
        done.send(()).unwrap();
    });
    let after = tokio::task::spawn_blocking({
        let runtime = tokio::runtime::Handle::current();
        move || {
            runtime.block_on(map.update("k", |before| {
                // Between the read and the write: removed and put again, with version 0 as before.
                if std::mem::take(&mut is_first) {
                    meddle.send(()).unwrap();
                    is_done.recv().unwrap();
                }
                Some([before.unwrap(), &b"+"[..]].concat().into())
            }))
        }
    });
    assert_eq!(after.await.unwrap().unwrap().unwrap(), "new+");
}

#[tokio::test]
async fn every_lost_request_and_reply_counts_exactly_once() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let watching = Map::new(&watching, format!("/cuts-{direction:?}-{round}")).unwrap();
            async move {
                let map = Map::new(&client, watching.path()).unwrap();
                assert_eq!(map.put("k", "1").await.unwrap(), None);
                assert_eq!(map.put("k", "2").await.unwrap().unwrap(), "1");
                assert_eq!(watching.get("k").await.unwrap().unwrap(), "2");
                assert_eq!(map.remove("k").await.unwrap().unwrap(), "2");
                assert!(watching.is_empty().await.unwrap());
            }
        })
        .await;
        assert!(cuts > 20, "{cuts}");
    }
}

#[tokio::test]
async fn a_put_dropped_at_any_await_is_made_or_not_and_leaves_no_receipt() {
    let world = World::start().await;
    let client = world.client().await;
    for polls in 0.. {
        let path = format!("/maps/dropped-{polls}");
        let map = Map::new(&client, path.as_str()).unwrap();
        let done = drop_after_polls(map.put("k", "1"), polls).await;
        assert!(map.len().await.unwrap() <= 1);
        drop(map);
        until_children(&client, &format!("{path}.receipts"), 0).await;
        if done.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn a_map_is_followed_by_its_cache_and_ends_with_the_session() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let map = Map::new(&client, PATH).unwrap();
    let cache = map.cache();
    cache.initialized().await.unwrap();
    let mut events = cache.events();
    Map::new(&other, PATH).unwrap().put("a/b", "1").await.unwrap();
    loop {
        if let CacheEvent::Created(node) = events.next().await.unwrap() {
            assert_eq!((Map::key_of(&node).unwrap(), &node.data[..]), ("a/b".into(), &b"1"[..]));
            break;
        }
    }
    world.end_session(&client).await;
    assert!(map.put("k", "1").await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn of_many_who_insert_one_member_one_is_told_that_it_is_new() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let client = world.client().await;
        let set = Set::new(&client, "/sets/s").unwrap();
        tasks.push(tokio::spawn(async move { set.insert("anna").await.unwrap() }));
    }
    let mut new = 0;
    for task in tasks {
        new += i32::from(task.await.unwrap());
    }
    assert_eq!(new, 1);
    let client = world.client().await;
    let set = Set::new(&client, "/sets/s").unwrap();
    assert!(set.insert("a/b").await.unwrap());
    assert!(set.contains("anna").await.unwrap());
    assert_eq!(set.members().await.unwrap(), ["a/b", "anna"]);
    assert_eq!((set.path(), set.len().await.unwrap()), ("/sets/s", 2));
    assert!(set.remove("anna").await.unwrap());
    assert!(!set.remove("anna").await.unwrap());
    set.clear().await.unwrap();
    assert!(set.is_empty().await.unwrap());
}
