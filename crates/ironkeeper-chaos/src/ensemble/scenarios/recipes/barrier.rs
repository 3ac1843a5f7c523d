//! A double barrier, in repeated rounds on one path: no user enters before all have arrived, and
//! every user leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use ironkeeper_client::Client;
use ironkeeper_recipes::barrier::DoubleBarrier;
use tokio::task::JoinSet;

use super::{Shift, all};

pub async fn double(clients: Vec<Client>, shift: Shift) -> Result<()> {
    let size = clients.len();
    let arrivals = Arc::new(AtomicUsize::new(0));
    let departures = Arc::new(AtomicUsize::new(0));
    // No user can be a round ahead of another, so the first user that finds the stop flag set can
    // make the round it begins the last round of all users.
    let last_round = Arc::new(AtomicUsize::new(usize::MAX));
    let mut users = JoinSet::new();
    for client in clients {
        let barrier = DoubleBarrier::new(&client, "/double-barrier", size)?;
        let (arrivals, departures) = (arrivals.clone(), departures.clone());
        let (shift, last_round) = (shift.clone(), last_round.clone());
        users.spawn(async move {
            let mut round = 0;
            while round <= last_round.load(Ordering::SeqCst) {
                if shift.is_over() {
                    last_round.fetch_min(round, Ordering::SeqCst);
                }
                arrivals.fetch_add(1, Ordering::SeqCst);
                let inside = barrier.enter().await?;
                let came = arrivals.load(Ordering::SeqCst);
                ensure!(came >= size * (round + 1), "entered when {came} had come");
                departures.fetch_add(1, Ordering::SeqCst);
                inside.leave().await?;
                let went = departures.load(Ordering::SeqCst);
                ensure!(went >= size * (round + 1), "left when {went} were about to");
                round += 1;
                shift.done_round();
            }
            Ok(())
        });
    }
    all(users).await
}
