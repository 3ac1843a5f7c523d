//! Our own client: its tests against real servers (`crates/ironkeeper-client/tests/servers`), on the server
//! under test instead of the embedded one.
//!
//! The tests ask for restarts over a control connection: a line `restart`, answered by a line when the server
//! is there again.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use super::{Lab, Tally};
use crate::repo;
use crate::server::Server;

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let server = Mutex::new(lab.server(|setup| setup)?);
    let address = server.lock().expect("nobody panics with it").address();
    let control = TcpListener::bind("127.0.0.1:0")?;
    let control_address = control.local_addr()?;
    let done = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            for stream in control.incoming().flatten() {
                if done.load(Ordering::Acquire) {
                    return;
                }
                // A test that gets no answer fails and says so.
                let _ = restart(&stream, &server);
            }
        });
        let output = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "-p", "ironkeeper-client", "--test", "servers", "--"])
            .args(["--test-threads", "1", "--format", "pretty"])
            .env("IRONKEEPER_TEST_SERVER", &address)
            .env("IRONKEEPER_TEST_CONTROL", control_address.to_string())
            .current_dir(repo::root())
            .stdin(Stdio::null())
            .output();
        done.store(true, Ordering::Release);
        // Wakes the thread, which then sees that it is done.
        let _ = TcpStream::connect(control_address);
        output
    });
    let output = output.context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    std::fs::write(lab.dir.join("client.log"), &*text)?;
    let mut tally = Tally::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("test ")) {
        match line.rsplit_once(" ... ") {
            Some((_, "ok")) => tally.passed += 1,
            Some((name, _)) => tally.failures.push(name.to_owned()),
            None => {}
        }
    }
    if !output.status.success() && tally.failures.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        tally.failures.push(format!("the tests ended early: {}", crate::tools::tail(&errors, 20)));
    }
    Ok(tally)
}

fn restart(mut stream: &TcpStream, server: &Mutex<Server>) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.trim() == "restart" {
        let mut server = server.lock().expect("nobody panics with it");
        server.stop()?;
        server.start_again()?;
        stream.write_all(b"done\n")?;
    }
    Ok(())
}
