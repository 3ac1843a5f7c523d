//! `PersistentNode`, which creates its node again after a deletion.

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::node::PersistentNode;
use ironkeeper_testing::{Direction, FaultyProxy};

use crate::world::{World, children, until_children, while_away, with_every_cut};

const PATH: &str = "/nodes/n";
const MODES: [CreateMode; 4] = [
    CreateMode::Ephemeral,
    CreateMode::EphemeralSequential,
    CreateMode::Persistent,
    CreateMode::PersistentSequential,
];

#[tokio::test]
async fn a_deleted_node_is_there_again_under_the_same_name_with_its_data() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    for mode in MODES {
        let node = PersistentNode::builder(&client, PATH).mode(mode).data("1").start();
        let path = node.created().await.unwrap();
        assert_eq!(node.current().as_deref(), Some(&path[..]));
        let mut creations = node.creations();
        assert_eq!(creations.next().await.unwrap(), path);
        node.set_data("2").await.unwrap();
        assert_eq!((node.data(), other.get(&path).await.unwrap().data), ("2".into(), "2".into()));
        for _ in 0..3 {
            other.delete(&path, Version::Any).await.unwrap();
            assert_eq!(creations.next().await.unwrap(), path);
            let found = other.get(&path).await.unwrap();
            assert_eq!(found.data, "2");
            let is_ephemeral = found.stat.ephemeral_owner != 0;
            assert_eq!(
                is_ephemeral,
                matches!(mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
            );
        }
        node.close().await.unwrap();
        assert_eq!(children(&client, "/nodes").await, [""; 0], "{mode:?}");
    }
}

#[tokio::test]
async fn dropped_at_any_time_it_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    client.create("/nodes", "", CreateMode::Persistent).await.unwrap();
    for mode in MODES {
        // Before the first request.
        drop(PersistentNode::builder(&client, PATH).mode(mode).start());
        // During the creation.
        let node = PersistentNode::builder(&client, PATH).mode(mode).start();
        tokio::task::yield_now().await;
        drop(node);
        until_children(&client, "/nodes", 0).await;
        // After the creation.
        let node = PersistentNode::builder(&client, PATH).mode(mode).start();
        node.created().await.unwrap();
        drop(node);
        until_children(&client, "/nodes", 0).await;
    }
}

#[tokio::test]
async fn a_node_that_was_there_gets_our_data_and_later_changes_stay() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive(PATH, "theirs", CreateMode::Persistent).await.unwrap();
    let node =
        PersistentNode::builder(&client, PATH).mode(CreateMode::Persistent).data("ours").start();
    node.created().await.unwrap();
    assert_eq!(client.get(PATH).await.unwrap().data, "ours");
    client.set(PATH, "theirs", Version::Any).await.unwrap();
    let mut creations = node.creations();
    creations.next().await.unwrap();
    client.create(&format!("{PATH}-other"), "", CreateMode::Persistent).await.unwrap();
    assert_eq!(client.get(PATH).await.unwrap().data, "theirs");
    node.set_data("ours again").await.unwrap();
    assert_eq!(client.get(PATH).await.unwrap().data, "ours again");
}

#[tokio::test]
async fn curator_53_97_netflix_131_without_a_server_at_the_start_it_comes_later() {
    let world = World::start().await;
    let watching = world.client().await;
    let address = world.connect_string();
    let (host, root) = address.split_once('/').unwrap();
    let proxy = FaultyProxy::start(host).unwrap();
    proxy.refuse();
    let client = Client::builder(&format!("{}/{root}", proxy.connect_string())).start().unwrap();
    let node = PersistentNode::builder(&client, PATH).data("here").start();
    assert!(node.current().is_none());
    assert_eq!(children(&watching, "/nodes").await, [""; 0]);
    proxy.heal().unwrap();
    node.created().await.unwrap();
    let found = watching.get(PATH).await.unwrap();
    assert_eq!((found.data, found.stat.ephemeral_owner), ("here".into(), client.session_id().0));
}

#[tokio::test]
async fn curator_53_97_after_an_outage_it_is_announced_again() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let node = PersistentNode::builder(&client, PATH).start();
    let mut creations = node.creations();
    creations.next().await.unwrap();
    for _ in 0..3 {
        proxy.refuse();
        proxy.cut();
        other.delete(PATH, Version::Any).await.unwrap();
        proxy.heal().unwrap();
        creations.next().await.unwrap();
        assert!(other.exists(PATH).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn the_node_of_another_session_is_waited_for() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let old = PersistentNode::builder(&one, PATH).data("old").start();
    old.created().await.unwrap();
    let new = PersistentNode::builder(&two, PATH).data("new").start();
    // The new one has read the node and does not change it, because another session owns it.
    while two.watch_count() == 0 {
        two.sync("/").await.unwrap();
    }
    assert!(new.current().is_none());
    assert_eq!(two.get(PATH).await.unwrap().data, "old");
    world.end_session(&one).await;
    new.created().await.unwrap();
    let found = two.get(PATH).await.unwrap();
    assert_eq!((found.data, found.stat.ephemeral_owner), ("new".into(), two.session_id().0));
    // The old one returns an error and does not change the node any more.
    let over = old.created().await.unwrap_err();
    assert!(over.is_session_over(), "{over}");
    assert!(old.set_data("x").await.unwrap_err().is_session_over());
    drop(old);
    assert!(two.exists(PATH).await.unwrap().is_some());
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_node_and_then_none() {
    let world = World::start().await;
    let watching = world.client().await;
    for mode in [CreateMode::Ephemeral, CreateMode::PersistentSequential] {
        for direction in [Direction::ToServer, Direction::ToClient] {
            with_every_cut(&world, direction, |client, round| {
                let watching = watching.clone();
                async move {
                    let parent = format!("/cuts-{direction:?}-{mode:?}-{round}");
                    let path = format!("{parent}/n");
                    let node = PersistentNode::builder(&client, &path).mode(mode).start();
                    let path = node.created().await.unwrap();
                    node.set_data("x").await.unwrap();
                    assert_eq!(watching.get(&path).await.unwrap().data, "x");
                    assert_eq!(children(&watching, &parent).await.len(), 1);
                    node.close().await.unwrap();
                    assert_eq!(children(&watching, &parent).await, [""; 0]);
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_refusal_is_told() {
    let world = World::start().await;
    let client = world.client().await;
    client.create("/ephemeral", "", CreateMode::Ephemeral).await.unwrap();
    let node = PersistentNode::builder(&client, "/ephemeral/n").start();
    let refused = node.created().await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::NoChildrenForEphemerals));
    assert!(matches!(node.close().await.unwrap_err(), RecipeError::Client(_)));
}

#[tokio::test]
async fn it_leaves_no_watch_behind() {
    let world = World::start().await;
    let client = world.client().await;
    let node = PersistentNode::builder(&client, PATH).start();
    node.created().await.unwrap();
    node.close().await.unwrap();
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test]
async fn a_node_that_is_ended_with_a_lost_reply_leaves_the_one_of_another_alone() {
    let world = World::start().await;
    let other = world.client().await;
    let mut was_between = false;
    for bytes in (0..).step_by(7) {
        let (proxy, client) = world.proxied().await;
        let node = PersistentNode::builder(&client, PATH).mode(CreateMode::Ephemeral).start();
        node.created().await.unwrap();
        let mut is_anothers = false;
        let meanwhile = async {
            is_anothers = other.create(PATH, "", CreateMode::Ephemeral).await.is_ok();
        };
        let (closed, was_cut) = while_away(&proxy, bytes, node.close(), meanwhile).await;
        closed.unwrap();
        assert_eq!(other.exists(PATH).await.unwrap().is_some(), is_anothers, "after {bytes} bytes");
        if is_anothers {
            was_between = true;
            other.delete(PATH, Version::Any).await.unwrap();
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_between);
}
