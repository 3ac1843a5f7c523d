//! Publishing and following.

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::config::{Config, Update};

use crate::world::World;
use crate::world::watch_events::counted;

const PATH: &str = "/config/c";

#[tokio::test]
async fn what_is_published_together_is_seen_together() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let publisher = Config::open(&one, PATH).await.unwrap();
    let follower = Config::open(&two, PATH).await.unwrap();
    let mut changes = follower.changes();
    const LAST: u32 = 40;
    let publishing = tokio::spawn(async move {
        for number in 1..=LAST {
            // Two values that must always be equal, under keys that are added and removed.
            let update = Update::new()
                .set("left", number)
                .set(format!("right-{}", number % 3), number)
                .remove(format!("right-{}", (number + 2) % 3));
            publisher.publish(&update).await.unwrap();
        }
    });
    let mut seen = 0;
    while seen < LAST {
        let now = changes.next().await.unwrap();
        let left = now.get::<u32>("left").unwrap().unwrap();
        assert!(left > seen, "never goes back");
        assert_eq!(now.revision(), u64::from(left));
        assert_eq!(now.get::<u32>(&format!("right-{}", left % 3)).unwrap(), Some(left));
        assert_eq!(now.values().len(), 2);
        seen = left;
    }
    publishing.await.unwrap();
}

#[tokio::test]
async fn of_two_who_build_upon_the_same_values_one_wins() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) =
        (Config::open(&one, PATH).await.unwrap(), Config::open(&two, PATH).await.unwrap());
    let (a, b) = (ours.current(), theirs.current());
    let (a, b) = (
        ours.publish_upon(&a, &Update::new().set("k", "a")).await.unwrap(),
        theirs.publish_upon(&b, &Update::new().set("k", "b")).await.unwrap(),
    );
    assert!(a.is_some() && b.is_none());
    // The rejected writer has the current values without another read.
    let now = theirs.current();
    assert_eq!(now.get::<String>("k").unwrap().unwrap(), "a");
    assert!(theirs.publish_upon(&now, &Update::new().set("k", "b")).await.unwrap().is_some());
    // Without a condition both updates are applied, one after the other.
    let (left, right) = (Update::new().set("left", 1), Update::new().set("right", 1));
    let (left, right) = tokio::join!(ours.publish(&left), theirs.publish(&right));
    assert_eq!(left.unwrap().revision().max(right.unwrap().revision()), 4);
    assert_eq!(ours.pull().await.unwrap().values().len(), 3);
}

#[tokio::test]
async fn an_update_of_many_values_costs_a_follower_one_watch_event() {
    let world = World::start().await;
    let publisher = Config::open(&world.client().await, PATH).await.unwrap();
    let (client, events) = counted(&world).await;
    let follower = Config::open(&client, PATH).await.unwrap();
    let mut changes = follower.changes();
    for round in 1..=3 {
        let update = (0..20).fold(Update::new(), |update, key| update.set(key.to_string(), round));
        publisher.publish(&update).await.unwrap();
        assert_eq!(changes.next().await.unwrap().values().len(), 20);
        assert_eq!(events.count(), round);
        // The next watch is set when this reply arrives.
        client.exists("/").await.unwrap();
    }
}

#[tokio::test]
async fn values_have_types_and_a_wrong_one_is_named() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    assert!(config.is_fresh());
    let update = Update::new()
        .set("int", -3)
        .set("bool", true)
        .set("float", 0.5)
        .set("address", std::net::Ipv4Addr::LOCALHOST)
        .set_bytes("bytes", &b"\xff\x00"[..])
        .set("a/b", "in a folder");
    let now = config.publish(&update).await.unwrap();
    assert_eq!(now.get::<i8>("int").unwrap(), Some(-3));
    assert_eq!(now.get::<bool>("bool").unwrap(), Some(true));
    assert_eq!(now.get::<f64>("float").unwrap(), Some(0.5));
    assert_eq!(
        now.get::<std::net::IpAddr>("address").unwrap().unwrap(),
        std::net::Ipv4Addr::LOCALHOST
    );
    assert_eq!(now.bytes("bytes").unwrap()[..], [0xff, 0]);
    assert_eq!(now.get::<String>("a/b").unwrap().unwrap(), "in a folder");
    assert_eq!(now.get::<u8>("none").unwrap(), None);
    assert_eq!(now.get_or("none", 7).unwrap(), 7);
    for (key, path) in [("int", "/config/c/values/int"), ("bytes", "/config/c/values/bytes")] {
        let wrong = now.get::<u8>(key).unwrap_err();
        let RecipeError::Malformed { path: named, .. } = wrong else { panic!("{wrong}") };
        assert_eq!(named, path);
    }
    // The nodes contain plain text, and the root contains the revision number.
    assert_eq!(client.get("/config/c/values/int").await.unwrap().data, "-3");
    assert_eq!(client.get(PATH).await.unwrap().data, "1");
}

#[tokio::test]
async fn one_value_is_followed_past_wrong_ones_and_removal() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    config.publish(&Update::new().set("limit", 1)).await.unwrap();
    let mut limit = config.value::<u32>("limit");
    assert_eq!(limit.key(), "limit");
    assert_eq!(limit.last_good(), Some(&1));
    config.publish(&Update::new().set("other", 1)).await.unwrap();
    config.publish(&Update::new().set("limit", "no number")).await.unwrap();
    let wrong = limit.next().await.unwrap().unwrap_err();
    assert!(matches!(wrong, RecipeError::Malformed { .. }), "{wrong}");
    assert_eq!(limit.last_good(), Some(&1));
    config.publish(&Update::new().set("limit", 2)).await.unwrap();
    assert_eq!(limit.next().await.unwrap().unwrap(), Some(&2));
    config.publish(&Update::new().remove("limit")).await.unwrap();
    assert_eq!(limit.next().await.unwrap().unwrap(), None);
    drop(config);
    assert!(limit.next().await.is_none());
}

#[tokio::test]
async fn a_value_is_current_without_a_call_of_next() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    let mut limit = config.value::<u32>("limit");
    assert_eq!((limit.current().unwrap(), limit.last_good()), (None, None));
    config.publish(&Update::new().set("limit", 30)).await.unwrap();
    assert_eq!(limit.current().unwrap(), Some(30));
    assert_eq!(limit.last_good(), Some(&30));
    config.publish(&Update::new().set("limit", "no number")).await.unwrap();
    assert!(matches!(limit.current(), Err(RecipeError::Malformed { .. })));
    assert_eq!(limit.last_good(), Some(&30));
    config.publish(&Update::new().remove("limit")).await.unwrap();
    assert_eq!((limit.current().unwrap(), limit.last_good()), (None, None));
    config.publish(&Update::new().set("limit", 40)).await.unwrap();
    // A value read by `last_good` is still a change for `next`.
    assert_eq!(limit.last_good(), Some(&40));
    assert_eq!(limit.next().await.unwrap().unwrap(), Some(&40));
}

#[tokio::test]
async fn what_others_write_by_hand_is_seen_by_a_pull() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    config.publish(&Update::new().set("limit", 1)).await.unwrap();
    client.set("/config/c/values/limit", "2", Version::Any).await.unwrap();
    client.create("/config/c/values/%not-ours", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(config.pull().await.unwrap().get::<u32>("limit").unwrap(), Some(2));
    assert_eq!(config.current().get::<u32>("limit").unwrap(), Some(2));
    assert_eq!(config.current().values().len(), 1);
    // The revision number must not be written by hand.
    client.set(PATH, "seven", Version::Any).await.unwrap();
    let refused = config.pull().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
    assert_eq!(config.current().get::<u32>("limit").unwrap(), Some(2));
    client.set(PATH, "0", Version::Any).await.unwrap();
    let refused = config.publish(&Update::new().set("limit", 3)).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
    client.set(PATH, "1", Version::Any).await.unwrap();
    assert_eq!(config.publish(&Update::new().set("limit", 3)).await.unwrap().revision(), 2);
    let refused = Config::open(&client, "/").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
