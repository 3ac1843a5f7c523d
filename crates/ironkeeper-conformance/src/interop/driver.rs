//! Drivers: small programs of ours in other languages, each written with a third-party client.
//!
//! A driver receives the server's address and prints `ok NAME` or `FAIL NAME: why` for each check
//! and, last, `N passed, N failed`. When it prints `@restart`, the server is stopped and started
//! again on the same data; then the driver receives an empty line on its standard input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_peers::server::Server;

use super::Tally;

/// The longest time of a driver; after it the driver is killed.
const TIME_MAX: Duration = Duration::from_secs(240);

/// Runs a driver with one server. Its standard error goes to a file next to the server's log.
pub fn run(command: &mut Command, server: &mut Server) -> Result<Tally> {
    let log_path = server.log_path().with_file_name("driver.log");
    run_with(command, &log_path, || {
        server.stop()?;
        server.start_again()
    })
}

/// Runs a driver; `restart` is called when the driver prints `@restart`.
pub fn run_with(
    command: &mut Command,
    log_path: &Path,
    mut restart: impl FnMut() -> Result<()>,
) -> Result<Tally> {
    let program = command.get_program().to_string_lossy().into_owned();
    let log = std::fs::File::options().create(true).append(true).open(log_path)?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let stdout = BufReader::new(child.stdout.take().context("stdout was piped")?);
    let mut stdin = child.stdin.take().context("stdin was piped")?;

    // The reader below blocks on the driver; the watchdog bounds the wait.
    let (finished, watch) = mpsc::channel::<()>();
    let timed_out = Arc::new(AtomicBool::new(false));
    let watchdog = {
        let timed_out = Arc::clone(&timed_out);
        let pid = child.id().to_string();
        thread::spawn(move || {
            if watch.recv_timeout(TIME_MAX) == Err(RecvTimeoutError::Timeout) {
                timed_out.store(true, Ordering::Relaxed);
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        })
    };

    let mut tally = Tally::default();
    let mut closing = None;
    for line in stdout.lines() {
        let line = line?;
        if line == "@restart" {
            restart()?;
            // A driver that terminated meanwhile is reported below.
            let _ = stdin.write_all(b"\n");
        } else if line.starts_with("ok ") {
            tally.passed += 1;
        } else if let Some(failure) = line.strip_prefix("FAIL ") {
            tally.failures.push(failure.to_owned());
        } else {
            closing = Some(line);
        }
    }
    let status = child.wait()?;
    drop(finished);
    let _ = watchdog.join();

    let expected = format!("{} passed, {} failed", tally.passed, tally.failures.len());
    if timed_out.load(Ordering::Relaxed) {
        tally
            .failures
            .push(format!("the driver hung for {TIME_MAX:?}; see {}", log_path.display()));
    } else if closing.as_deref() != Some(expected.as_str()) {
        let said = closing.unwrap_or_default();
        tally.failures.push(format!(
            "the driver ended early ({status}) with {said:?}; see {}",
            log_path.display()
        ));
    }
    Ok(tally)
}
