//! Helpers on subtrees.

use ironkeeper_client::{Client, CreateMode, ErrorKind};

use super::place::Place;

#[tokio::test]
async fn parents_are_created_as_needed_and_subtrees_deleted() {
    let place = Place::new().await;
    let client = place.client().await;
    client.create_recursive("/a/b/c/d", "deep", CreateMode::Persistent).await.unwrap();
    assert_eq!(client.get("/a/b/c/d").await.unwrap().data, "deep");
    let again = client.create_recursive("/a/b/c/d", "", CreateMode::Persistent).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::NodeExists);
    client.create_parents("/a/b").await.unwrap();
    client.create_parents("/top").await.unwrap();
    for number in 0..700 {
        let path = format!("/a/b/n{number}");
        client.create(&path, "", CreateMode::Persistent).await.unwrap();
    }
    assert_eq!(client.delete_children("/a/b").await.unwrap(), 702);
    assert_eq!(client.delete_recursive("/a").await.unwrap(), 2);
    let error = client.delete_recursive("/a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
}

#[tokio::test]
async fn the_root_is_never_deleted() {
    let place = Place::new().await;
    let outside = Client::connect(place.address()).await.unwrap();
    let error = outside.delete_recursive("/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(outside.delete_children("/").await.is_err());
    let inside = place.client().await;
    inside.create("/x", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(inside.delete_recursive("/").await.unwrap(), 2);
    assert!(outside.exists(place.chroot()).await.unwrap().is_none());
}

#[tokio::test]
async fn several_clients_may_delete_one_subtree() {
    let place = Place::new().await;
    let (one, two) = (place.client().await, place.client().await);
    for number in 0..200 {
        let path = format!("/t/{}/{number}", number % 7);
        one.create_recursive(&path, "", CreateMode::Persistent).await.unwrap();
    }
    let (first, second) = tokio::join!(one.delete_recursive("/t"), two.delete_recursive("/t"));
    let count = [first, second].into_iter().map(|deleted| match deleted {
        Ok(count) => count,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoNode);
            0
        }
    });
    // No node was counted as deleted by both clients.
    assert!(count.sum::<u64>() <= 208);
    assert!(one.exists("/t").await.unwrap().is_none());
}

#[tokio::test]
async fn walks_meet_every_node_once() {
    let place = Place::new().await;
    let client = place.client().await;
    let mut expected = vec!["/".to_owned()];
    for outer in 0..30 {
        expected.push(format!("/{outer:02}"));
        for inner in 0..30 {
            let path = format!("/{outer:02}/{inner:02}");
            client.create_recursive(&path, &path, CreateMode::Persistent).await.unwrap();
            expected.push(path);
        }
    }
    let mut walk = client.walk("/").depth_first().with_data();
    let mut met = Vec::new();
    while let Some(node) = walk.next().await {
        let node = node.unwrap();
        if node.depth == 2 {
            assert_eq!(node.data.unwrap(), node.path);
        }
        met.push(node.path);
    }
    assert_eq!(met, expected);
    let mut walk = client.walk("/").max_depth(1);
    let mut count = 0;
    while let Some(node) = walk.next().await {
        assert!(node.unwrap().depth <= 1);
        count += 1;
    }
    assert_eq!(count, 31);
    assert!(client.walk("/none").next().await.unwrap().is_err());
}
