use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, RetryPolicy};
use ironkeeper_testing::{Direction, FaultyProxy, TestCluster, TestServer};

#[tokio::test]
async fn a_client_survives_a_lost_reply_and_a_restart() -> Result<(), Box<dyn std::error::Error>> {
    let server = TestServer::start()?;
    let proxy = FaultyProxy::start(server.connect_string())?;
    let client = Client::connect(&proxy.connect_string()).await?;
    // A broken connection fails the requests under way. The client retries nothing on its own.
    let policy = RetryPolicy::until_elapsed(Duration::from_secs(30), Duration::from_millis(10));

    proxy.cut_after(Direction::ToClient, 10); // ten more bytes, then the connection is cut
    client.create_idempotent("/a", "data", CreateMode::Persistent, &policy).await?;

    server.restart()?; // same port, same data; without the retry: ErrorKind::ConnectionLoss
    let node = client.retry(&policy, || client.get("/a")).await?;
    assert_eq!(node.data, "data");

    server.kill_session(client.session_id())?; // as if the client had been silent for too long
    let error = client.retry(&policy, || client.get("/a")).await.unwrap_err();
    assert!(error.is_session_over());
    Ok(())
}

#[tokio::test]
async fn a_client_survives_the_loss_of_the_leader() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start(3)?;
    let client = Client::connect(&cluster.connect_string()).await?;
    let policy = RetryPolicy::until_elapsed(Duration::from_secs(30), Duration::from_millis(10));
    client.create("/a", "data", CreateMode::Persistent).await?;

    let stopped = cluster.stop_leader()?; // the others elect a new one
    assert_eq!(client.retry(&policy, || client.get("/a")).await?.data, "data");
    cluster.restart(stopped)?;
    cluster.wait_until_serving()?;

    cluster.partition(&[&[1], &[2, 3]]); // server 1 is alone
    assert_eq!(client.retry(&policy, || client.get("/a")).await?.data, "data");
    cluster.heal();
    Ok(())
}
