//! A leader, and the loop around it: when a session has ended, a new client with a new latch
//! replaces it.
//!
//! Start a server, then this program in several terminals. Kill the leader, or suspend and continue
//! it (`kill -STOP`, `kill -CONT`): another process becomes the leader. Restart the server: the
//! leader stays the same.
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example leader [HOST:PORT] [NAME]
//! ```

use std::error::Error;
use std::time::Duration;

use ironkeeper_client::{Client, ErrorKind, RetryPolicy};
use ironkeeper_recipes::election::{LeaderLatch, Leadership};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:2181".to_owned());
    let name = args.next().unwrap_or(format!("process {}", std::process::id()));
    take_part(&server, &name).await;
}

/// Participates in the election for as long as the program runs, with any number of sessions.
pub async fn take_part(server: &str, name: &str) {
    // Random pauses that grow to 10 s, so that the clients of a restarted server do not reconnect
    // all at once.
    let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
    let policy = RetryPolicy::bounded_exponential(first, longest, u32::MAX);
    let mut pauses = policy.pauses();
    loop {
        match Client::builder(server).session_timeout(Duration::from_secs(10)).connect().await {
            Ok(client) => {
                pauses = policy.pauses();
                let ended = one_session(&client, name).await;
                println!("{name}: the session has ended: {ended:?}");
            }
            Err(error) => println!("{name}: cannot connect: {error}"),
        }
        tokio::time::sleep(pauses.next_after(Duration::ZERO).unwrap_or(longest)).await;
    }
}

/// Everything that belongs to one session: created here and dropped on return. None of it can be
/// used with the next session.
async fn one_session(client: &Client, name: &str) -> Result<(), Box<dyn Error>> {
    let latch = LeaderLatch::start(client, "/examples/leader", name);
    loop {
        // Returns an error if the session has ended. If the connection is lost, the latch waits.
        let leadership = latch.leading().await?;
        println!("{name} leads, with token {}", leadership.fencing_token().as_i64());
        tokio::select! {
            failed = lead(&latch, &leadership) => failed?,
            // Dropping the future of `lead` stops the work.
            () = latch.over(&leadership) => println!("{name} leads no more"),
        }
    }
}

/// The work of the leader; returns when it fails.
async fn lead(latch: &LeaderLatch, leadership: &Leadership) -> Result<(), Box<dyn Error>> {
    loop {
        // False while the connection is lost. Another process may become the leader: do nothing.
        if latch.has_leadership() {
            // A transaction that the server rejects if this process is not the leader any more.
            match leadership.transaction().commit().await {
                Ok(_) => println!("an order of the leader"),
                // The connection was lost: try again later. Or the leader's node is deleted: then
                // `latch.over` returns and drops this future.
                Err(error) if error.is_retriable() || error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
