//! A benchmark, not an example to copy: the read throughput of this client on one session, with
//! many requests in flight and then with one request at a time.
//!
//! Arguments: the server's address, the node to read, requests in flight, seconds of each load, and
//! where the requests are sent: in the `main` future, which has its own thread, or in a `task`.
//! `cargo xtask bench-clients` runs it beside other clients and parses the lines `begin NAME` and
//! `end NAME OPERATIONS SECONDS`.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use ironkeeper_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    match std::env::args().nth(5).as_deref() {
        Some("main") => measure().await,
        _ => tokio::spawn(measure()).await?,
    }
}

async fn measure() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, address, path, in_flight, seconds, _] = &args[..] else {
        return Err("usage: throughput HOST:PORT NODE IN_FLIGHT SECONDS main|task".into());
    };
    let in_flight: usize = in_flight.parse()?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    let client = Client::connect(address).await?;
    for (name, in_flight) in [("warm-up", in_flight), ("pipelined", in_flight), ("one", 1)] {
        println!("begin {name}");
        let start = Instant::now();
        let mut operations = 0_u64;
        let mut requests = VecDeque::with_capacity(in_flight);
        for _ in 0..in_flight {
            requests.push_back(client.get(path));
        }
        while let Some(request) = requests.pop_front() {
            request.await?;
            operations += 1;
            if start.elapsed() < time {
                requests.push_back(client.get(path));
            }
        }
        println!("end {name} {operations} {}", start.elapsed().as_secs_f64());
    }
    client.close().await?;
    Ok(())
}
