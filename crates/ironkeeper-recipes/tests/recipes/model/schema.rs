//! Schema rules, checked before a request is sent.

use ironkeeper_client::{Acl, CreateMode, CreateOptions, OpResult, Perms, Version, acls};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::model::{Allowance, Schema, SchemaClient, SchemaSet};

use crate::world::{World, children};

fn rules() -> SchemaSet {
    let is_number = |_: &str, data: &[u8]| {
        let is_number = !data.is_empty() && data.iter().all(u8::is_ascii_digit);
        if is_number { Ok(()) } else { Err("it is no number".to_owned()) }
    };
    let schema = |name: &str, pattern: &str| Schema::new(name, pattern).unwrap();
    SchemaSet::new()
        .with(schema("number", "/numbers/*").data(is_number).undeletable())
        .with(schema("numbers", "/numbers").unwatched().ephemeral(Allowance::Cannot))
        .strict()
}

#[track_caller]
fn forbidden<T>(made: Result<T, RecipeError>) {
    let error = made.err().expect("it is forbidden");
    assert!(matches!(error, RecipeError::Schema { .. }), "{error}");
}

#[tokio::test]
async fn what_a_rule_forbids_never_reaches_the_server() {
    let world = World::start().await;
    let plain = world.client().await;
    let client = SchemaClient::new(&plain, rules());
    client.create("/numbers", "", CreateMode::Persistent).unwrap().await.unwrap();
    client.create("/numbers/a", "1", CreateMode::Ephemeral).unwrap().await.unwrap();
    client.set("/numbers/a", "2", Version::Any).unwrap().await.unwrap();
    let (node, _) = client.get_and_watch("/numbers/a").unwrap().await.unwrap();
    assert_eq!(node.data, "2");
    assert!(client.exists_and_watch("/numbers/a").unwrap().await.unwrap().0.is_some());
    let stats = async || (plain.exists("/numbers").await, plain.exists("/numbers/a").await);
    let before = stats().await;

    forbidden(client.create("/numbers/b", "x", CreateMode::Persistent));
    forbidden(client.create("/elsewhere", "", CreateMode::Persistent));
    forbidden(client.set("/numbers/a", "", Version::Any));
    forbidden(client.delete("/numbers/a", Version::Any));
    forbidden(client.children_and_watch("/numbers"));
    forbidden(client.get_and_watch("/numbers"));
    // Every write and every child would change the stats.
    assert_eq!(format!("{:?}", stats().await), format!("{before:?}"));
    assert!(plain.exists("/elsewhere").await.unwrap().is_none());
    // The rules do not apply to the underlying client.
    client.client().delete("/numbers/a", Version::Any).await.unwrap();
    assert_eq!(client.rules().schema("/numbers/a").unwrap().name(), "number");
}

#[tokio::test]
async fn a_rule_for_access_lists_is_heeded_by_creates_and_by_changes_of_the_list() {
    let world = World::start().await;
    let plain = world.client().await;
    let closed = Schema::new("closed", "/closed").unwrap().acl(|_, acl| {
        let is_open = acl.iter().any(|entry| entry.perms.allows(Perms::WRITE));
        if is_open { Err("everybody may write".to_owned()) } else { Ok(()) }
    });
    let client = SchemaClient::new(&plain, SchemaSet::new().with(closed));
    forbidden(client.create("/closed", "", CreateMode::Persistent));
    assert!(plain.exists("/closed").await.unwrap().is_none());
    let readable = vec![Acl::new(Perms::READ.or(Perms::ADMIN), "world", "anyone")];
    let options = CreateOptions::default().acl(readable.clone());
    client.create("/closed", "", options).unwrap().await.unwrap();
    forbidden(client.set_acl("/closed", &acls::open(), Version::Any));
    client.set_acl("/closed", &readable, Version::Any).unwrap().await.unwrap();
    assert_eq!(plain.get_acl("/closed").await.unwrap().0, readable);
    forbidden(client.transaction().create("/closed", "", CreateMode::Persistent).commit());
}

#[tokio::test]
async fn a_transaction_with_one_forbidden_operation_is_not_sent() {
    let world = World::start().await;
    let plain = world.client().await;
    let client = SchemaClient::new(&plain, rules());
    let results = client
        .transaction()
        .create("/numbers", "", CreateMode::Persistent)
        .create("/numbers/a", "1", CreateMode::Persistent)
        .set("/numbers/a", "2", 0)
        .check("/numbers/a", 1)
        .commit()
        .unwrap()
        .await
        .unwrap();
    assert!(matches!(results[3], OpResult::Checked));
    forbidden(
        client
            .transaction()
            .create("/numbers/b", "1", CreateMode::Persistent)
            .delete("/numbers/a", Version::Any)
            .commit(),
    );
    forbidden(client.transaction().set("/numbers/a", "x", Version::Any).commit());
    assert_eq!(children(&plain, "/numbers").await, ["a"]);
}
