//! The history of a configuration, and the return to an earlier revision.

use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::config::{Config, Update};

use crate::world::{World, children};

const PATH: &str = "/config/c";

#[tokio::test]
async fn the_history_tells_who_changed_what_and_why() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    let update = Update::new().set("limit", 1).set("mode", "slow");
    config.publish(&update.by("anna").because("first values")).await.unwrap();
    // An update that changes nothing creates no revision.
    assert_eq!(config.publish(&Update::new().set("limit", 1)).await.unwrap().revision(), 1);
    let update = Update::new().set("limit", 2).set("mode", "slow").remove("absent");
    config.publish(&update.by("berta")).await.unwrap();
    let history = config.history().await.unwrap();
    assert_eq!(history.len(), 2);
    let (first, second) = (&history[0], &history[1]);
    assert_eq!((first.number, &*first.author, &*first.note), (1, "anna", "first values"));
    assert_eq!(first.changes.len(), 2);
    assert_eq!((second.number, &*second.author, &*second.note), (2, "berta", ""));
    assert!(second.zxid > first.zxid && second.time_ms >= first.time_ms && first.time_ms > 0);
    assert_eq!(second.changes.len(), 1, "only what has changed");
    let change = &second.changes[0];
    assert_eq!(change.key, "limit");
    assert_eq!(
        (change.before.as_deref(), change.after.as_deref()),
        (Some(&b"1"[..]), Some(&b"2"[..]))
    );
    assert_eq!(second.zxid, config.current().zxid());
}

#[tokio::test]
async fn values_of_the_past_come_back() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap();
    config.publish(&Update::new().set("a", 1).set("b", 1)).await.unwrap();
    let first = config.current();
    config.publish(&Update::new().set("a", 2).remove("b").set("c", 2)).await.unwrap();
    config.publish(&Update::new().set("a", 3).set("b", 3)).await.unwrap();
    let then = config.at(1).await.unwrap();
    assert_eq!((then.values(), then.revision(), then.zxid()), (first.values(), 1, first.zxid()));
    assert!(config.at(0).await.unwrap().values().is_empty());
    assert_eq!(config.at(3).await.unwrap(), *config.current());
    let back = config.roll_back_to(1).await.unwrap();
    assert_eq!((back.values(), back.revision()), (first.values(), 4));
    assert_eq!(config.history().await.unwrap()[3].note, "back to revision 1");
    for unknown in [5, u64::MAX] {
        let refused = config.at(unknown).await.unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
}

#[tokio::test]
async fn the_oldest_revisions_go_when_there_are_too_many() {
    let world = World::start().await;
    let client = world.client().await;
    let config = Config::open(&client, PATH).await.unwrap().with_history(3);
    for number in 1..=7 {
        config.publish(&Update::new().set("n", number)).await.unwrap();
    }
    let numbers: Vec<u64> =
        config.history().await.unwrap().iter().map(|revision| revision.number).collect();
    assert_eq!(numbers, [5, 6, 7]);
    assert_eq!(children(&client, "/config/c/history").await[0], "0000000005");
    assert_eq!(config.at(4).await.unwrap().get::<u32>("n").unwrap(), Some(4));
    let refused = config.roll_back_to(3).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
