//! Configuration: publishes several values at once and follows one value as a number.
//!
//! Start a server, then this program without values in one terminal, and with values in another:
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example config 127.0.0.1:2181
//! cargo run -p ironkeeper-recipes --example config 127.0.0.1:2181 limit.max=20 mode=fast
//! ```

use std::error::Error;

use ironkeeper_client::Client;
use ironkeeper_recipes::config::{Config, Update};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:2181".to_owned());
    let client = Client::connect(&server).await?;
    let config = Config::open(&client, "/examples/config").await?;
    let values: Vec<String> = args.collect();
    if values.is_empty() { follow(&config).await } else { publish(&config, &values).await }
}

/// Publishes all values in one transaction: a reader sees all of them, or none.
pub async fn publish(config: &Config, values: &[String]) -> Result<(), Box<dyn Error>> {
    let mut update = Update::new().by("the example").because("it was asked to");
    for value in values {
        let (key, value) = value.split_once('=').ok_or("KEY=VALUE is expected")?;
        update = update.set(key, value);
    }
    println!("revision {}", config.publish(&update).await?.revision());
    Ok(())
}

/// Prints the limit whenever it changes, until the session ends.
async fn follow(config: &Config) -> Result<(), Box<dyn Error>> {
    let mut limit = config.value::<u32>("limit.max");
    println!("the limit is {:?}", limit.last_good());
    while let Some(changed) = limit.next().await {
        match changed {
            Ok(Some(limit)) => println!("the limit is {limit} now"),
            Ok(None) => println!("the limit was removed"),
            // Not a number: the last good value stays in use.
            Err(error) => println!("{error}; the limit is still {:?}", limit.last_good()),
        }
    }
    Err("the session is over".into())
}
