//! The client that is measured during an attack.
//!
//! The victim sends one request every [`PACE`]: a read, then a small write, on its own connection
//! and node. A slow request is also recorded for the requests that would have been sent meanwhile,
//! so that a stall is weighted by its length (correction of coordinated omission).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ironkeeper_proto::OpCode;

use super::client::Client;
use super::op::Op;

const PACE: Duration = Duration::from_millis(10);
const NODE: &str = "/victim";
/// The pause before a server that closed the connection is dialled again.
const REDIAL: Duration = Duration::from_millis(20);

/// The latencies of one kind of request.
#[derive(Debug, Default, Clone)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Records a request, and the requests that the client could not send before the reply arrived.
    fn note(&mut self, took: Duration) {
        self.0.push(took);
        let mut unsent = took.saturating_sub(PACE);
        while unsent >= PACE {
            self.0.push(unsent);
            unsent -= PACE;
        }
    }

    /// Returns the shortest time within which `percent` % of the requests were completed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    pub fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

/// The measurements of a victim.
#[derive(Debug, Default)]
pub struct Measured {
    /// Reads, which do not wait for the disk.
    pub reads: Latencies,
    pub writes: Latencies,
}

#[derive(Debug)]
pub struct Victim {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Measured>,
}

impl Victim {
    /// Connects to the first of the ports and creates its node; the other ports are used after that
    /// server has closed the connection.
    pub fn start(ports: Vec<u16>) -> Result<Victim> {
        let first = *ports.first().context("a victim needs a server")?;
        let mut client = Client::connect(first)?;
        client.ask(&Op::create(NODE, b"0"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut connection = Connection { ports, at: 0, client: Some(client) };
            connection.measure(&told)
        });
        Ok(Victim { stop, thread })
    }

    pub fn stop(self) -> Result<Measured> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the victim's thread panicked"))
    }
}

struct Connection {
    ports: Vec<u16>,
    at: usize,
    client: Option<Client>,
}

impl Connection {
    fn measure(&mut self, stop: &AtomicBool) -> Measured {
        let ops = [Op::get_data(NODE), Op::set_data(NODE, b"1")];
        let mut measured = Measured::default();
        let mut due = Instant::now();
        for op in ops.iter().cycle() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            while !stop.load(Ordering::Relaxed) && !self.is_answered(op) {}
            let latencies = match op.code {
                OpCode::GetData => &mut measured.reads,
                _ => &mut measured.writes,
            };
            latencies.note(due.elapsed());
            if stop.load(Ordering::Relaxed) {
                break;
            }
            due = (due + PACE).max(Instant::now());
        }
        measured
    }

    fn is_answered(&mut self, op: &Op) -> bool {
        if self.client.is_none() {
            self.client = Client::connect(self.ports[self.at]).ok();
        }
        let answered = self.client.as_mut().is_some_and(|client| client.ask(op).is_ok());
        if !answered {
            self.client = None;
            self.at = (self.at + 1) % self.ports.len();
            thread::sleep(REDIAL);
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let latencies = Latencies((1..=200).rev().map(millis).collect());
        assert_eq!(latencies.percentile(50), millis(100));
        assert_eq!(latencies.percentile(99), millis(198));
        assert_eq!(latencies.percentile(100), millis(200));
        assert_eq!(latencies.longest(), millis(200));
        assert_eq!(Latencies::default().percentile(99), Duration::ZERO);
        assert_eq!(Latencies(vec![millis(7)]).percentile(1), millis(7));
    }

    #[test]
    fn a_stall_counts_once_for_each_request_that_it_delayed() {
        let mut latencies = Latencies::default();
        latencies.note(millis(3));
        assert_eq!(latencies.0.len(), 1);
        latencies.note(PACE * 5);
        let expected: Vec<Duration> = [5, 4, 3, 2, 1].into_iter().map(|n| PACE * n).collect();
        assert_eq!(latencies.0[1..], expected);
    }
}
