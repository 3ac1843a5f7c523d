//! Configuration with lost connections and expired sessions.

use ironkeeper_recipes::config::{Config, Update};
use ironkeeper_testing::Direction;

use crate::world::{World, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/config/c";

#[tokio::test]
async fn without_connection_the_last_known_values_stay_and_news_come_afterwards() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let publisher = Config::open(&world.client().await, PATH).await.unwrap();
    publisher.publish(&Update::new().set("k", 1)).await.unwrap();
    let follower = Config::open(&client, PATH).await.unwrap();
    let mut changes = follower.changes();
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    while follower.is_fresh() {
        states.next().await.unwrap();
    }
    assert_eq!(follower.current().get::<u32>("k").unwrap(), Some(1));
    publisher.publish(&Update::new().set("k", 2)).await.unwrap();
    publisher.publish(&Update::new().set("k", 3)).await.unwrap();
    assert_eq!(follower.current().get::<u32>("k").unwrap(), Some(1));
    proxy.heal().unwrap();
    assert_eq!(changes.next().await.unwrap().get::<u32>("k").unwrap(), Some(3));
    assert!(follower.is_fresh());
}

#[tokio::test]
async fn the_end_of_the_session_keeps_the_values_and_ends_the_changes() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    config.publish(&Update::new().set("k", 1)).await.unwrap();
    let mut changes = config.changes();
    world.end_session(&client).await;
    assert!(changes.next().await.is_none());
    assert!(!config.is_fresh());
    assert_eq!(config.current().get::<u32>("k").unwrap(), Some(1));
    let failed = config.publish(&Update::new().set("k", 2)).await.unwrap_err();
    assert!(failed.is_session_over(), "{failed}");
}

#[tokio::test]
async fn every_lost_request_and_reply_publishes_once() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/config/cuts-{direction:?}-{round}");
                let config = Config::open(&client, path.as_str()).await.unwrap();
                config.publish(&Update::new().set("a", 1).set("b", 1)).await.unwrap();
                let now = config.publish(&Update::new().set("a", 2).remove("b")).await.unwrap();
                assert_eq!((now.revision(), now.values().len()), (2, 1));
                let seen = Config::open(&watching, path).await.unwrap();
                assert_eq!(seen.history().await.unwrap().len(), 2);
            }
        })
        .await;
        assert!(cuts > 20, "{cuts}");
    }
}

#[tokio::test]
async fn a_publication_dropped_at_any_await_is_made_whole_or_not() {
    let world = World::start().await;
    let client = world.client().await;
    let mut before = 0;
    for polls in 0.. {
        let config = Config::open(&client, PATH).await.unwrap();
        let update = Update::new().set("a", polls).set("b", polls);
        let done = drop_after_polls(config.publish(&update), polls).await;
        let now = config.pull().await.unwrap();
        assert_eq!(now.bytes("a"), now.bytes("b"));
        assert!(now.revision() == before || now.revision() == before + 1);
        before = now.revision();
        drop(config);
        until_children(&client, &format!("{PATH}.receipts"), 0).await;
        if done.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn a_configuration_deleted_and_created_again_is_followed_on() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let follower = Config::open(&two, PATH).await.unwrap();
    let config = Config::open(&one, PATH).await.unwrap();
    config.publish(&Update::new().set("k", "old")).await.unwrap();
    let mut value = follower.value::<String>("k");
    if value.last_good().is_none() {
        assert_eq!(value.next().await.unwrap().unwrap().unwrap(), "old");
    }
    one.delete_recursive(PATH).await.unwrap();
    config.publish(&Update::new().set("k", "new")).await.unwrap();
    loop {
        if value.next().await.unwrap().unwrap().is_some_and(|now| now == "new") {
            break;
        }
    }
    assert_eq!(follower.current().revision(), 1);
}
