//! Typed values at paths with parameters.

use ironkeeper_client::{Client, CreateMode, Happened};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::model::{Model, Modeled, Text};
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, drop_after_polls, with_every_cut};

fn limits() -> Model<i64> {
    Model::new("/limits/{group}/{name}", Text).unwrap()
}

fn limit(client: &Client, name: &str) -> Modeled<i64> {
    limits().at(client, &["g", name]).unwrap()
}

async fn value(model: &Modeled<i64>) -> Option<i64> {
    model.read().await.unwrap().map(|read| read.value)
}

#[tokio::test]
async fn values_are_created_read_replaced_listed_and_deleted() {
    let world = World::start().await;
    let client = world.client().await;
    let users = limit(&client, "users");
    assert_eq!(users.path(), "/limits/g/users");
    assert_eq!(value(&users).await, None);
    assert!(users.create(&1).await.unwrap());
    assert!(!users.create(&2).await.unwrap());
    let seen = users.read().await.unwrap().unwrap();
    assert_eq!(seen.value, 1);
    assert!(users.replace(&seen, &3).await.unwrap());
    assert!(!users.replace(&seen, &4).await.unwrap());
    assert_eq!(users.raw().await.unwrap().unwrap(), "3");
    // `write` works whether the node exists or not.
    users.write(&5).await.unwrap();
    limit(&client, "orders").write(&6).await.unwrap();
    let all = limits().list(&client, &["g"]).await.unwrap();
    assert_eq!(all.into_iter().collect::<Vec<_>>(), [("orders".into(), 6), ("users".into(), 5)]);
    assert_eq!(limits().list(&client, &["nobody"]).await.unwrap().len(), 0);
    let after = users.update(|old| old.copied().unwrap_or(0) + 10).await.unwrap();
    assert_eq!(after.value, 15);
    assert!(users.delete().await.unwrap());
    assert!(!users.delete().await.unwrap());
    assert_eq!(users.update(|old| old.copied().unwrap_or(100)).await.unwrap().value, 100);
}

#[tokio::test]
async fn updates_of_many_clients_are_all_counted() {
    let world = World::start().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = world.client().await;
        clients.spawn(async move {
            for _ in 0..10 {
                limit(&client, "n").update(|old| old.copied().unwrap_or(0) + 1).await.unwrap();
            }
        });
    }
    clients.join_all().await;
    assert_eq!(value(&limit(&world.client().await, "n")).await, Some(40));
}

#[tokio::test]
async fn what_is_of_another_type_is_an_error_with_its_path_and_hides_no_other_one() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive("/limits/g/bad", "many", CreateMode::Persistent).await.unwrap();
    limit(&client, "good").write(&1).await.unwrap();
    let error = limit(&client, "bad").read().await.unwrap_err();
    assert!(error.to_string().starts_with("/limits/g/bad: "), "{error}");
    assert!(limits().list(&client, &["g"]).await.is_err());
    let followed = limits().follow(&client, &["g"]).await.unwrap();
    let models = followed.models();
    assert_eq!(models.values.keys().collect::<Vec<_>>(), ["good"]);
    assert!(matches!(models.malformed["bad"], RecipeError::Malformed { .. }));
    let mut changes = followed.changes();
    limit(&client, "bad").write(&2).await.unwrap();
    let models = changes.next().await.unwrap();
    assert_eq!((models.values.len(), models.malformed.len()), (2, 0));
}

#[tokio::test]
async fn a_followed_model_tells_of_every_change_by_one_watch_event() {
    let world = World::start().await;
    let client = world.client().await;
    let (watching, events) = counted(&world).await;
    limit(&client, "first").write(&0).await.unwrap();
    let followed = limits().follow(&watching, &["g"]).await.unwrap();
    assert_eq!(followed.path(), "/limits/g");
    let mut changes = followed.changes();
    let before = events.count();
    let n = limit(&client, "n");
    n.write(&1).await.unwrap();
    assert_eq!(*changes.next().await.unwrap().values["n"], 1);
    n.write(&2).await.unwrap();
    assert_eq!(*changes.next().await.unwrap().values["n"], 2);
    n.delete().await.unwrap();
    assert!(!changes.next().await.unwrap().values.contains_key("n"));
    watching.sync("/").await.unwrap();
    assert_eq!(events.count() - before, 3);
    // The last known values stay after the end of the session.
    world.end_session(&watching).await;
    while changes.next().await.is_some() {}
    assert!(!followed.is_followed());
    assert_eq!(*followed.get("first").unwrap(), 0);
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_the_value_that_was_written_last() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = &watching;
            async move {
                let n = limit(&client, "n");
                n.write(&1).await.unwrap();
                let updated = n.update(|old| old.copied().unwrap_or(0) + 1).await;
                let found = value(&limit(watching, "n")).await;
                match updated {
                    Ok(updated) => assert_eq!((updated.value, found), (2, Some(2))),
                    // Another client could have written the same value, so the outcome is `Maybe`.
                    Err(error) => {
                        let error = error.client_error().unwrap();
                        assert_eq!((error.happened(), found), (Happened::Maybe, Some(2)));
                    }
                }
                n.delete().await.unwrap();
                assert_eq!(value(&limit(watching, "n")).await, None);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_write_dropped_at_any_await_took_place_or_not() {
    let world = World::start().await;
    let client = world.client().await;
    let n = limit(&client, "n");
    for polls in 0.. {
        let is_done = drop_after_polls(n.write(&7), polls).await.is_some();
        client.sync("/").await.unwrap();
        let found = value(&n).await;
        assert!(matches!(found, None | Some(7)), "{found:?}");
        if is_done {
            assert_eq!(found, Some(7));
            break;
        }
        n.delete().await.unwrap();
    }
}

#[tokio::test]
async fn a_form_that_does_not_fit_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    for parameters in [&["g"][..], &["g", "n", "x"], &["g", "a/b"], &["", "n"]] {
        let refused = limits().at(&client, parameters).unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
    assert!(limits().list(&client, &[]).await.is_err());
    assert!(Model::<i64>::json("/fixed").unwrap().follow(&client, &[]).await.is_err());
    // A value that could not be decoded is not written.
    let numbers: Model<f64> = Model::json("/numbers/{n}").unwrap();
    let one = numbers.at(&client, &["one"]).unwrap();
    assert!(matches!(one.write(&f64::NAN).await, Err(RecipeError::Misuse(_))));
    assert!(one.raw().await.unwrap().is_none());
}
