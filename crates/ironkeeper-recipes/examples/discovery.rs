//! Service discovery: instances register with a weight, and a client of the service gets them by
//! weighted round robin.
//!
//! Start a server, then this program in several terminals, each with its own port and weight:
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example discovery 127.0.0.1:2181 8001 5
//! cargo run -p ironkeeper-recipes --example discovery 127.0.0.1:2181 8002 1
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::service::balance::WeightedRoundRobin;
use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:2181".to_owned());
    let port = args.next().unwrap_or("8001".to_owned()).parse()?;
    let weight = args.next().unwrap_or("1".to_owned()).parse()?;

    let client = Client::connect(&server).await?;
    let discovery = ServiceDiscovery::new(&client, "/examples/services");
    let web = ServiceInstance::new("web").with_address("127.0.0.1").with_port(port);
    // Registered until the session ends or `registration` is dropped.
    let registration = discovery.register(web.with_weight(weight)).await?;
    loop {
        println!("requests for each port: {:?}", send_requests(&discovery, 70).await?);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
            // The session has ended: a new client has to register again.
            ended = registration.ended() => return Err(ended.into()),
        }
    }
}

/// Sends `requests` requests to the instances of the service and returns the count for each port.
pub async fn send_requests(
    discovery: &ServiceDiscovery,
    requests: usize,
) -> Result<BTreeMap<u16, usize>, Box<dyn Error>> {
    // The provider follows the service: open it once; `choose` then sends no request to the server.
    let provider = discovery.provider("web").rule(WeightedRoundRobin::new()).open().await?;
    let mut sent = BTreeMap::new();
    for _ in 0..requests {
        let instance = provider.choose().ok_or("there is no instance")?;
        // After a failed connection, call `provider.note_error(&instance)`.
        *sent.entry(instance.port.unwrap_or(0)).or_insert(0) += 1;
    }
    Ok(sent)
}
