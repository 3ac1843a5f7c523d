//! A work queue: some processes put orders in, others take them out. If a worker's session ends,
//! its order is delivered to another worker.
//!
//! Start a server, then workers in some terminals, and put orders in another:
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example queue 127.0.0.1:2181
//! cargo run -p ironkeeper-recipes --example queue 127.0.0.1:2181 tea coffee milk
//! ```

use std::error::Error;

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::queue::WorkQueue;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:2181".to_owned());
    let orders: Vec<String> = args.collect();

    let client = Client::connect(&server).await?;
    let queue = WorkQueue::new(&client, "/examples/queue")?;
    for order in &orders {
        queue.put(order.clone()).await?;
        println!("put {order}");
    }
    while orders.is_empty() {
        for order in work(&queue).await? {
            println!("done: {order}");
        }
    }
    Ok(())
}

/// Takes the next delivery of the queue, works on it, and removes it.
pub async fn work(queue: &WorkQueue) -> Result<Vec<String>, RecipeError> {
    let delivery = queue.next().await?;
    let orders = delivery.items().iter().map(|item| String::from_utf8_lossy(item).into_owned());
    let orders = orders.collect();
    // Without this call the item stays in the queue and another worker gets it. `done_with` adds
    // other writes to the transaction that removes the item.
    delivery.done().await?;
    Ok(orders)
}
