//! Members of a group.

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::group::{Group, GroupEvent, GroupEvents, GroupMember};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/groups/g";

async fn join(client: &Client, id: &str) -> GroupMember {
    GroupMember::join(client, PATH, id, format!("data of {id}")).await.unwrap()
}

async fn told(events: &mut GroupEvents) -> String {
    match events.next().await.expect("somebody looks on") {
        GroupEvent::Joined { id, .. } => format!("+{id}"),
        GroupEvent::Changed { id, data } => format!("*{id}={}", String::from_utf8_lossy(&data)),
        GroupEvent::Left { id } => format!("-{id}"),
        GroupEvent::Initialized => "initialized".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn members_see_each_other_come_change_and_go() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let anna = join(&one, "anna").await;
    assert_eq!((anna.id(), anna.path()), ("anna", PATH));
    let mut events = anna.events();
    assert_eq!(told(&mut events).await, "+anna");
    assert_eq!(told(&mut events).await, "initialized");
    let berta = join(&two, "berta").await;
    assert_eq!(told(&mut events).await, "+berta");
    assert_eq!(anna.members(), berta.members());
    assert_eq!(anna.members()["berta"], "data of berta");
    berta.set_data("new").await.unwrap();
    assert_eq!(told(&mut events).await, "*berta=new");
    berta.leave().await.unwrap();
    assert_eq!(told(&mut events).await, "-berta");
    drop(anna);
    until_children(&two, PATH, 0).await;
}

#[tokio::test]
async fn from_outside_a_dead_member_is_seen_to_leave() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let group = Group::open(&two, PATH).await.unwrap();
    let mut events = group.events();
    assert_eq!(told(&mut events).await, "initialized");
    let anna = join(&one, "anna").await;
    let mut own = anna.events();
    assert_eq!(told(&mut events).await, "+anna");
    // A node that was deleted by mistake is created again.
    two.delete(&format!("{PATH}/anna"), Version::Any).await.unwrap();
    assert_eq!(told(&mut events).await, "-anna");
    assert_eq!(told(&mut events).await, "+anna");
    // A second member with the same name waits until the first session has ended.
    let heir = tokio::spawn({
        let two = two.clone();
        async move { join(&two, "anna").await }
    });
    world.end_session(&one).await;
    let heir = heir.await.unwrap();
    assert_eq!(told(&mut events).await, "-anna");
    assert_eq!(told(&mut events).await, "+anna");
    assert_eq!(group.members().len(), 1);
    // The expired member receives the end.
    loop {
        match own.next().await.unwrap() {
            GroupEvent::Ended(why) => break assert!(why.is_session_over(), "{why}"),
            _ => continue,
        }
    }
    heir.leave().await.unwrap();
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_member_and_then_none() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = watching.clone();
            async move {
                let anna = join(&client, "anna").await;
                assert_eq!(children(&watching, PATH).await, ["anna"]);
                assert_eq!(anna.members().len(), 1);
                anna.leave().await.unwrap();
                assert_eq!(children(&watching, PATH).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_join_dropped_at_any_await_leaves_nobody() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    for polls in 0.. {
        // A different id in each round, so that a leftover node is not taken for the next one.
        let id = format!("anna-{polls}");
        let joining = GroupMember::join(&client, PATH, &*id, "");
        let done = drop_after_polls(joining, polls).await;
        let is_done = done.is_some();
        drop(done);
        until_children(&watching, PATH, 0).await;
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn a_name_that_is_none_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    for id in ["", "a/b"] {
        let refused = GroupMember::join(&client, PATH, id, "").await.unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
}
