//! `NameService`.

use ironkeeper_client::Version;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::cache::CacheEvent;
use ironkeeper_recipes::naming::NameService;
use ironkeeper_recipes::shared::Map;
use ironkeeper_testing::Direction;

use crate::world::{World, drop_after_polls, until_children, until_watches, with_every_cut};

const PATH: &str = "/names/n";

#[tokio::test]
async fn names_are_bound_once_looked_up_and_freed() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) =
        (NameService::new(&one, PATH).unwrap(), NameService::new(&two, PATH).unwrap());
    assert_eq!(ours.path(), PATH);
    let (a, b) = tokio::join!(ours.bind("db/1", "ours"), theirs.bind("db/1", "theirs"));
    let winner = match (a.unwrap(), b.unwrap()) {
        (true, false) => "ours",
        (false, true) => "theirs",
        both => panic!("{both:?}"),
    };
    assert_eq!(theirs.rebind("db/1", "new").await.unwrap().unwrap(), winner);
    assert_eq!(ours.lookup("db/1").await.unwrap().unwrap(), "new");
    assert!(ours.bind("db/2", "2").await.unwrap() && ours.bind("web", "w").await.unwrap());
    assert_eq!(ours.list("db/").await.unwrap(), ["db/1", "db/2"]);
    assert_eq!(ours.list("").await.unwrap().len(), 3);
    assert_eq!(ours.unbind("db/1").await.unwrap().unwrap(), "new");
    assert_eq!(ours.unbind("db/1").await.unwrap(), None);
    for refused in [
        ours.bind("", "x").await.unwrap_err(),
        ours.rebind("", "x").await.unwrap_err(),
        ours.register("", "x").await.unwrap_err(),
    ] {
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_registered_name_lives_as_long_as_its_session_and_has_heirs() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) =
        (NameService::new(&one, PATH).unwrap(), NameService::new(&two, PATH).unwrap());
    let registration = ours.register("web", "1").await.unwrap();
    assert_eq!(registration.name(), "web");
    assert!(!theirs.bind("web", "2").await.unwrap());
    registration.set("1b").await.unwrap();
    assert_eq!(theirs.lookup("web").await.unwrap().unwrap(), "1b");
    let heir = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.register("web", "2").await }
    });
    world.end_session(&one).await;
    let heir = heir.await.unwrap().unwrap();
    assert_eq!(theirs.lookup("web").await.unwrap().unwrap(), "2");
    assert!(registration.lost().await.is_session_over());
    assert!(registration.set("late").await.unwrap_err().is_session_over());
    // A registered node that was deleted by mistake is created again.
    let cache = theirs.cache();
    cache.initialized().await.unwrap();
    let mut events = cache.events();
    two.delete(&format!("{PATH}/web"), Version::Any).await.unwrap();
    let mut is_gone = false;
    loop {
        match events.next().await.unwrap() {
            CacheEvent::Deleted(_) => is_gone = true,
            CacheEvent::Created(node) if is_gone => {
                break assert_eq!(Map::key_of(&node).unwrap(), "web");
            }
            _ => {}
        }
    }
    heir.unregister().await.unwrap();
    assert_eq!(theirs.lookup("web").await.unwrap(), None);
}

#[tokio::test]
async fn who_waits_for_a_name_is_told_and_leaves_no_watch_when_it_gives_up() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) =
        (NameService::new(&one, PATH).unwrap(), NameService::new(&two, PATH).unwrap());
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.wait_for("db").await }
    });
    until_watches(&one, 1).await;
    assert!(theirs.bind("db", "here").await.unwrap());
    assert_eq!(waiting.await.unwrap().unwrap(), "here");
    let waiting = tokio::spawn(async move { ours.wait_for("never").await });
    until_watches(&one, 1).await;
    waiting.abort();
    until_watches(&one, 0).await;
}

#[tokio::test]
async fn every_lost_request_and_reply_binds_once_and_registers_once() {
    let world = World::start().await;
    let watching = NameService::new(&world.client().await, PATH).unwrap();
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let names = NameService::new(&client, PATH).unwrap();
                let name = format!("{direction:?}-{round}");
                assert!(names.bind(&name, "bound").await.unwrap());
                assert_eq!(names.unbind(&name).await.unwrap().unwrap(), "bound");
                let registration = names.register(&name, "registered").await.unwrap();
                assert_eq!(watching.lookup(&name).await.unwrap().unwrap(), "registered");
                registration.unregister().await.unwrap();
                assert!(watching.list("").await.unwrap().is_empty());
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_registration_dropped_at_any_await_frees_the_name() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let names = NameService::new(&client, PATH).unwrap();
    for polls in 0.. {
        let done = drop_after_polls(names.register("web", "1"), polls).await;
        let is_done = done.is_some();
        drop(done);
        // The task that maintains the node ends after its pending requests.
        client.sync("/").await.unwrap();
        until_children(&watching, PATH, 0).await;
        if is_done {
            break;
        }
    }
}
