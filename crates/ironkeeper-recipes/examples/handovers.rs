//! A benchmark, not an example to copy: how often a lock changes its holder among CONTENDERS
//! contenders that share SESSIONS sessions: `handovers HOST:PORT PATH CONTENDERS SESSIONS`. Prints
//! the rate every second until it is stopped. `interop/java/src/Handovers.java` does the same with
//! Curator, and `cargo xtask bench-handovers` runs both.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::lock::Mutex;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let (address, path) = (next("HOST:PORT")?, next("PATH")?);
    let contenders: usize = next("CONTENDERS")?.parse()?;
    let sessions: usize = next("SESSIONS")?.parse()?;
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(Client::connect(&address).await?);
    }
    let handovers = Arc::new(AtomicU64::new(0));
    let mut tasks: JoinSet<RecipeError> = JoinSet::new();
    for client in clients.iter().cycle().take(contenders) {
        let (mutex, handovers) = (Mutex::new(client, &path), handovers.clone());
        tasks.spawn(async move {
            loop {
                match mutex.lock().await {
                    // The delete is in flight when the next lock request is sent: both share one
                    // packet and one sync of the server's log.
                    Ok(guard) => drop(guard),
                    Err(error) => return error,
                }
                handovers.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => return Err(ended?.into()),
            _ = seconds.tick() => println!("{}/s", handovers.swap(0, Ordering::Relaxed)),
        }
    }
}
