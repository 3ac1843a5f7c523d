//! `ironkeeper lock --deadlocks`: prints the cycles of contenders that wait for each other, and
//! optionally resolves them.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use ironkeeper_client::Client;
use ironkeeper_recipes::lock::{DeadlockDetector, Victim};

/// The exit code if there are deadlocks.
const FOUND: u8 = 77;

/// Prints the deadlocks among all locks and semaphores at and below some paths, one wait per line.
pub async fn show(client: &Client, paths: &[String], resolves: bool) -> Result<ExitCode> {
    let [first, others @ ..] = paths else { bail!("no path to look at") };
    for path in paths {
        ensure!(client.exists(path).await?.is_some(), "there is no node {path} to look below");
    }
    let mut detector = DeadlockDetector::new(client, first);
    for path in others {
        detector = detector.and(path);
    }
    let found = detector.detect().await?;
    let mut out = std::io::stdout().lock();
    if found.is_empty() {
        writeln!(out, "no deadlocks")?;
    }
    for (at, deadlock) in found.iter().enumerate() {
        writeln!(out, "deadlock {}:", at + 1)?;
        for wait in &deadlock.waits {
            writeln!(out, "  {wait}")?;
        }
        if resolves {
            let is_told = detector.resolve(deadlock, Victim::Youngest).await?;
            let outcome = if is_told { "the youngest is told to give way" } else { "it is over" };
            writeln!(out, "  {outcome}")?;
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}
