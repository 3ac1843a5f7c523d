//! A lock: at most one process at a time writes the report.
//!
//! Start a server, then this program in two terminals at once:
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example mutex [HOST:PORT]
//! ```

use std::error::Error;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::lock::Mutex;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).unwrap_or("127.0.0.1:2181".to_owned());
    for _ in 0..5 {
        let token = write_report(&server).await?;
        println!("released, the token was {token}");
    }
    Ok(())
}

pub async fn write_report(server: &str) -> Result<i64, Box<dyn Error>> {
    let client = Client::connect(server).await?;
    let mutex = Mutex::new(&client, "/examples/mutex").with_data("what others see of the holder");
    let Some(guard) = mutex.lock_within(Duration::from_secs(60)).await? else {
        return Err("another process has held the lock for a minute".into());
    };
    // Increases with every grant.
    let token = guard.fencing_token().as_i64();
    tokio::select! {
        done = save(token) => done?,
        // The session has ended: another process may hold the lock.
        lost = guard.lost() => return Err(lost.into()),
    }
    guard.release().await?;
    client.close().await?;
    Ok(token)
}

/// The storage of the report should reject a token smaller than the largest token it has seen. Then
/// a process that was suspended for a minute, and has not noticed that its lock is lost, cannot
/// overwrite the report of a later holder.
async fn save(token: i64) -> Result<(), Box<dyn Error>> {
    println!("update report set text = ..., token = {token} where token <= {token}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}
