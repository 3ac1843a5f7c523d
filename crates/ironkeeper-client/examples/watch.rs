//! Prints every change below a path.
//!
//! Start a server, then this program, and change something with `ironkeeper shell`:
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-client --example watch [HOST:PORT] [PATH]
//! ```

use ironkeeper_client::{Client, Result, WatchItem, WatchMode};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:2181".to_owned());
    let path = args.next().unwrap_or("/".to_owned());
    let client = Client::connect(&server).await?;
    follow(&client, &path, |line| println!("{line}")).await
}

/// Prints the nodes below `path`, then every change, until the session ends.
pub async fn follow(client: &Client, path: &str, mut show: impl FnMut(String)) -> Result<()> {
    // Set the watch first, then read the nodes, so that no change is missed.
    let mut changes = client.watch(path, WatchMode::Recursive).await?;
    show_all(client, path, &mut show).await?;
    while let Some(item) = changes.next().await {
        match item {
            WatchItem::Event(event) => show(format!("{:?} {}", event.kind, event.path)),
            // The connection was lost and events may be missing: read all nodes again.
            WatchItem::Gap => show_all(client, path, &mut show).await?,
            // Only a new client, with new watches, can continue.
            WatchItem::SessionEnded => break,
        }
    }
    show("the session is over".to_owned());
    Ok(())
}

async fn show_all(client: &Client, path: &str, show: &mut impl FnMut(String)) -> Result<()> {
    let mut nodes = client.walk(path);
    while let Some(node) = nodes.next().await {
        let node = node?;
        show(format!("{} (version {})", node.path, node.stat.version));
    }
    Ok(())
}
