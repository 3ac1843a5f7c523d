//! Our own client: its tests against real servers (`crates/ironkeeper-client/tests/servers`), on
//! the server under test instead of the embedded server.
//!
//! The tests request restarts over a control connection: a test sends the line `restart` and
//! receives a line when the server serves again.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use ironkeeper_peers::server::Server;

use super::own_tests::OwnTests;
use super::{Lab, Tally};

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let server = Mutex::new(lab.server(|setup| setup)?);
    let address = server.lock().expect("no holder of the lock panics").address();
    let control = TcpListener::bind("127.0.0.1:0")?;
    let control_address = control.local_addr()?;
    let done = AtomicBool::new(false);
    let tests = OwnTests {
        package: "ironkeeper-client",
        binary: "servers",
        // A restart closes the connections of all tests.
        threads: 1,
        address: &address,
        environment: &[("IRONKEEPER_TEST_CONTROL", control_address.to_string())],
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in control.incoming().flatten() {
                if done.load(Ordering::Acquire) {
                    return;
                }
                // A test without a reply fails and reports it.
                let _ = restart(&stream, &server);
            }
        });
        let tally = tests.run(lab);
        done.store(true, Ordering::Release);
        // Wakes the thread, which then reads `done`.
        let _ = TcpStream::connect(control_address);
        tally
    })
}

fn restart(mut stream: &TcpStream, server: &Mutex<Server>) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.trim() == "restart" {
        let mut server = server.lock().expect("no holder of the lock panics");
        server.stop()?;
        server.start_again()?;
        stream.write_all(b"done\n")?;
    }
    Ok(())
}
