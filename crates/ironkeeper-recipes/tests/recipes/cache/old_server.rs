//! A server without persistent watches, as ZooKeeper before 3.6.

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version, WatchMode};
use ironkeeper_recipes::cache::{ChildrenCache, TreeCache};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::{told_until, until_equal};
use crate::world::World;

const ADD_WATCH: i32 = 106;
const UNKNOWN: i32 = 9999;

/// Starts a proxy that replaces the op code of `addWatch` by an unknown one.
async fn old_server(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, mut to_client) = client.into_split();
            let server = TcpStream::connect(&server).await.unwrap();
            let (mut from_server, to_server) = server.into_split();
            tokio::spawn(pass_requests(from_client, to_server));
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
            });
        }
    });
    address
}

async fn pass_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    // The first frame is the connect request; in all others the op code follows the xid.
    for number in 0.. {
        let length = from.read_i32().await?;
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        from.read_exact(&mut frame).await?;
        if number > 0 && frame.get(4..8) == Some(&ADD_WATCH.to_be_bytes()) {
            frame[4..8].copy_from_slice(&UNKNOWN.to_be_bytes());
        }
        to.write_i32(length).await?;
        to.write_all(&frame).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_without_lasting_watches_is_watched_by_one_shot_ones() {
    let world = World::start().await;
    let address = world.connect_string();
    let (server, root) = address.split_once('/').unwrap();
    let old = old_server(server.to_owned()).await;
    let client = Client::connect(&format!("{old}/{root}")).await.unwrap();
    let refused = client.watch("/t", WatchMode::Recursive).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unimplemented);

    let (tree, children) = (TreeCache::start(&client, "/t"), ChildrenCache::start(&client, "/t"));
    tree.initialized().await.unwrap();
    children.initialized().await.unwrap();
    let mut events = tree.events();
    client.create_recursive("/t/a/b", "1", CreateMode::Persistent).await.unwrap();
    told_until(&mut events, "+/t/a/b").await;
    client.set("/t/a/b", "2", Version::Any).await.unwrap();
    told_until(&mut events, "*/t/a/b=2").await;
    client.delete("/t/a/b", Version::Any).await.unwrap();
    until_equal(&tree, &client).await;
    let mut events = children.events();
    told_until(&mut events, "+/t/a").await;
    client.set("/t/a", "3", Version::Any).await.unwrap();
    told_until(&mut events, "*/t/a=3").await;
}
