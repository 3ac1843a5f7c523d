//! kazoo's parties.

use ironkeeper_client::CreateMode;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::group::Party;

use crate::world::{World, children, until_children};

const PATH: &str = "/parties/p";
const DIGITS: usize = 32;

#[tokio::test]
async fn participants_have_kazoos_names() {
    let world = World::start().await;
    let client = world.client().await;
    let deep = Party::join(&client, PATH, "anna").await.unwrap();
    let shallow = Party::join_shallow(&client, PATH, "berta-1").await.unwrap();
    assert_eq!(deep.path(), PATH);
    let names = children(&client, PATH).await;
    for (end, identifier) in [("__party__", "anna"), ("-berta-1", "berta-1")] {
        let name = names.iter().find(|name| name.ends_with(end)).unwrap();
        let digits = name.strip_suffix(end).unwrap();
        assert!(digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        let node = client.get(&format!("{PATH}/{name}")).await.unwrap();
        assert_eq!(node.data, identifier.as_bytes());
        assert_eq!(node.stat.ephemeral_owner, client.session_id().0);
    }
    assert_eq!(shallow.participants(), ["berta-1"]);
    deep.leave().await.unwrap();
    drop(shallow);
    until_children(&client, PATH, 0).await;
}

#[tokio::test]
async fn two_with_one_identifier_are_two_and_strangers_are_none() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = Party::join(&one, PATH, "anna").await.unwrap();
    one.create(&format!("{PATH}/stranger"), "", CreateMode::Persistent).await.unwrap();
    let second = Party::join(&two, PATH, "anna").await.unwrap();
    assert_eq!(second.participants(), ["anna", "anna"]);
    world.end_session(&one).await;
    until_children(&two, PATH, 2).await;
    drop(first);
    let third = Party::join(&two, PATH, "berta").await.unwrap();
    let mut present = third.participants();
    present.sort();
    assert_eq!(present, ["anna", "berta"]);
}

#[tokio::test]
async fn an_identifier_that_cannot_be_a_name_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = Party::join_shallow(&client, PATH, "a/b").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    // In the data of a node it is valid.
    let party = Party::join(&client, PATH, "a/b").await.unwrap();
    assert_eq!(party.participants(), ["a/b"]);
}
