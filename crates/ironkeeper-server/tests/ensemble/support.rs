//! Common functions of the tests of ensembles.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_testing::TestCluster;
use tokio::runtime::Runtime;

/// Longer than anything takes on a busy machine; reached only by a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Sends a four-letter word and returns the reply.
pub fn ask(address: SocketAddr, word: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a live socket");
    stream.write_all(word.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Returns one value of `mntr`.
pub fn monitor(address: SocketAddr, key: &str) -> String {
    let answer = ask(address, "mntr");
    let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{key}\t")));
    line.unwrap_or_else(|| panic!("no {key} in {answer}")).to_owned()
}

/// Waits until a condition holds, by polling.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub async fn connect(address: impl std::fmt::Display) -> Client {
    Client::connect(&address.to_string()).await.expect("a session")
}

/// Creates nodes through one member.
pub fn create_at(cluster: &TestCluster, id: i64, paths: impl IntoIterator<Item = String>) {
    runtime().block_on(async {
        let client = connect(cluster.server(id).address()).await;
        for path in paths {
            client.create(&path, "", CreateMode::Persistent).await.expect("it is new");
        }
        client.close().await.expect("the end of the session");
    });
}

/// Returns whether a member has a node, after a sync.
pub fn has(cluster: &TestCluster, id: i64, path: &str) -> bool {
    runtime().block_on(async {
        let client = connect(cluster.server(id).address()).await;
        client.sync("/").await.expect("it catches up");
        let found = client.exists(path).await.expect("an answer").is_some();
        client.close().await.expect("the end of the session");
        found
    })
}

/// Returns a follower and the leader.
pub fn follower_and_leader(cluster: &TestCluster) -> (i64, i64) {
    let leader = cluster.leader().expect("a leader");
    let follower = cluster.ids().find(|id| *id != leader).expect("another one");
    (follower, leader)
}
