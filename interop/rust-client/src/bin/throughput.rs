//! How fast `zookeeper-client` from crates.io reads, for `cargo xtask bench-clients`.
//!
//! Arguments: the server's address, the node to read, requests in flight, seconds of each load, and
//! where the requests are made: in the `main` future, which has a thread of its own, or in a
//! `task`. Prints `begin NAME` and `end NAME OPERATIONS SECONDS` around each load.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use zookeeper_client::Client;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(5).as_deref() {
        Some("main") => measure().await,
        _ => tokio::spawn(measure()).await?,
    }
}

async fn measure() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, address, path, in_flight, seconds, _] = &args[..] else {
        anyhow::bail!("usage: throughput HOST:PORT NODE IN_FLIGHT SECONDS main|task");
    };
    let in_flight: usize = in_flight.parse().context("IN_FLIGHT is no number")?;
    let time = Duration::from_secs_f64(seconds.parse().context("SECONDS is no number")?);
    let client = Client::connect(address).await.context("cannot connect")?;
    for (name, in_flight) in [("warm-up", in_flight), ("pipelined", in_flight), ("one", 1)] {
        println!("begin {name}");
        let start = Instant::now();
        let mut operations = 0_u64;
        let mut requests = VecDeque::with_capacity(in_flight);
        for _ in 0..in_flight {
            requests.push_back(client.get_data(path));
        }
        while let Some(request) = requests.pop_front() {
            request.await?;
            operations += 1;
            if start.elapsed() < time {
                requests.push_back(client.get_data(path));
            }
        }
        println!("end {name} {operations} {}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
