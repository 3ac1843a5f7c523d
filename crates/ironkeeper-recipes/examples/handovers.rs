//! How often a lock changes hands among so many contenders, dealt out to so many sessions:
//! `handovers HOST:PORT CONTENDERS SESSIONS SECONDS`. `interop/java/src/Handovers.java` does the same with
//! Curator, and `cargo xtask bench-handovers` runs both; the lines `begin NAME` and
//! `end NAME OPERATIONS SECONDS` are for it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ironkeeper_client::Client;
use ironkeeper_recipes::lock::Mutex;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let address = next("HOST:PORT")?;
    let contenders: usize = next("CONTENDERS")?.parse()?;
    let sessions: usize = next("SESSIONS")?.parse()?;
    let seconds: u64 = next("SECONDS")?.parse()?;
    let (handovers, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(Client::connect(&address).await?);
    }
    let mut tasks = Vec::new();
    for client in clients.iter().cycle().take(contenders) {
        let mutex = Mutex::new(client, "/handovers");
        let (handovers, done) = (handovers.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let guard = mutex.lock().await?;
                handovers.fetch_add(1, Ordering::Relaxed);
                // The delete is under way when the next request is made: both share one packet, and one sync
                // of the server's log.
                drop(guard);
            }
            Ok::<_, ironkeeper_recipes::RecipeError>(())
        }));
    }
    // The first ones are not counted: not everybody is in line yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("begin hand-overs");
    let (before, started) = (handovers.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let count = handovers.load(Ordering::Relaxed) - before;
    println!("end hand-overs {count} {}", started.elapsed().as_secs_f64());
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    // Whatever a dropped guard has left to do would end with the process, and its node stay for a while.
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
