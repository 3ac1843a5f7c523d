//! Migrations, each applied once.

use ironkeeper_client::{Client, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::model::{Migration, MigrationSet, Migrator};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/migrations/shop";
const LOCK: &str = "/migrations-lock";

fn set() -> MigrationSet {
    MigrationSet::new(PATH)
        .then(Migration::new("one").create("/shop", "").create("/shop/version", "1"))
        .then(Migration::new("two").set("/shop/version", "2").create("/shop/tmp", ""))
        .then(Migration::new("three").delete("/shop/tmp").set("/shop/version", "3"))
}

fn migrator(client: &Client) -> Migrator {
    Migrator::new(client, LOCK)
}

async fn version(client: &Client) -> (String, i32) {
    let node = client.get("/shop/version").await.unwrap();
    (String::from_utf8_lossy(&node.data).into_owned(), node.stat.version)
}

#[tokio::test]
async fn each_is_applied_once_and_in_order() {
    let world = World::start().await;
    let client = world.client().await;
    let migrator = migrator(&client);
    assert_eq!(migrator.pending(&set()).await.unwrap(), ["one", "two", "three"]);
    assert_eq!(migrator.migrate(&set()).await.unwrap(), ["one", "two", "three"]);
    assert_eq!(migrator.migrate(&set()).await.unwrap(), [""; 0]);
    assert_eq!(version(&client).await, ("3".to_owned(), 2));
    let more = set().then(Migration::new("four").set("/shop/version", "4"));
    assert_eq!(migrator.pending(&more).await.unwrap(), ["four"]);
    assert_eq!(migrator.migrate(&more).await.unwrap(), ["four"]);
    assert_eq!(children(&client, PATH).await.len(), 4);
}

#[tokio::test]
async fn many_that_start_at_once_apply_each_once() {
    let world = World::start().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let client = world.client().await;
        clients.spawn(async move { migrator(&client).migrate(&set()).await.unwrap().len() });
    }
    let applied: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(applied, 3);
    assert_eq!(version(&world.client().await).await, ("3".to_owned(), 2));
}

#[tokio::test]
async fn one_that_fails_leaves_those_before_it_and_is_tried_again() {
    let world = World::start().await;
    let client = world.client().await;
    let migrator = migrator(&client);
    let wrong = set().then(Migration::new("four").set("/shop/version", "4").delete("/shop/absent"));
    let failed = migrator.migrate(&wrong).await.unwrap_err();
    assert_eq!(failed.kind(), Some(ErrorKind::NoNode));
    assert_eq!(version(&client).await.0, "3");
    assert_eq!(migrator.pending(&wrong).await.unwrap(), ["four"]);
    let right = set().then(Migration::new("four").set("/shop/version", "4"));
    assert_eq!(migrator.migrate(&right).await.unwrap(), ["four"]);
    assert_eq!(children(&client, LOCK).await, [""; 0]);
}

#[tokio::test]
async fn what_was_applied_and_is_another_one_now_is_noticed_before_anything_is_done() {
    let world = World::start().await;
    let client = world.client().await;
    let migrator = migrator(&client);
    migrator.migrate(&set()).await.unwrap();
    let changed = MigrationSet::new(PATH).then(Migration::new("one").create("/shop", "other"));
    let shorter = MigrationSet::new(PATH);
    for wrong in [changed, shorter] {
        let error = migrator.migrate(&wrong).await.unwrap_err();
        assert!(matches!(error, RecipeError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("one"), "{error}");
    }
    client.delete(&format!("{PATH}/meta-0000000000"), Version::Any).await.unwrap();
    let error = migrator.migrate(&set()).await.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    for id in ["", "a\nb"] {
        let wrong = MigrationSet::new("/migrations/other").then(Migration::new(id));
        let refused = migrator.migrate(&wrong).await.unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
}

/// Deletes all data of the migrations.
async fn reset(client: &Client) {
    for path in ["/shop", PATH] {
        let _ = client.delete_recursive(path).await;
    }
}

#[tokio::test]
async fn each_is_applied_once_whatever_is_lost() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = &watching;
            async move {
                let applied = migrator(&client).migrate(&set()).await.unwrap();
                assert_eq!(applied, ["one", "two", "three"]);
                assert_eq!(version(watching).await, ("3".to_owned(), 2));
                assert_eq!(children(watching, LOCK).await, [""; 0]);
                reset(watching).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_run_dropped_at_any_await_is_finished_by_the_next_one() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    for polls in 0.. {
        let (one, steps) = (migrator(&client), set());
        let is_done = drop_after_polls(one.migrate(&steps), polls).await.is_some();
        until_children(&watching, LOCK, 0).await;
        migrator(&watching).migrate(&set()).await.unwrap();
        assert_eq!(version(&watching).await, ("3".to_owned(), 2));
        reset(&watching).await;
        if is_done {
            break;
        }
    }
}
