//! Random and corrupted requests and packets, generated from a seed.
//!
//! A [`Conversation`] is all bytes that one connection sends. They depend on its number and the
//! seed, not on the server's replies, so that a run or a part of it can be repeated. Most of a
//! conversation is valid, so that invalid bytes reach the server in every state.

mod draft;
mod packets;
mod requests;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ironkeeper_peers::rng::Rng;

use super::log::{self, Marks};
use super::memory;
use super::round::Build;
use super::target::{Size, Target};
use super::victim::{Measured, Victim};

/// The number of connections at a time: more of them fill queues, which delays a victim although no
/// request stalls the server.
const CONNECTIONS: usize = 6;
/// The longest wait for a reply; after it the request counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// Consecutive failed dials after which the server counts as terminated.
const FAILED_DIALS_MAX: u32 = 100;
/// Megabytes that nodes, sessions and buffers may take at the end.
const LEFT_MB: u64 = 128;
const LOOK: Duration = Duration::from_millis(200);

/// The bytes that one connection sends.
#[derive(Debug)]
pub struct Conversation {
    bytes: Vec<u8>,
    /// The number of requests or packets in the bytes.
    count: usize,
    end: End,
}

/// The end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// After the replies to all requests, or when the server closes the connection.
    Answered,
    /// The same, then the client shuts down its sending side and waits until the server closes the
    /// connection.
    HalfSent,
    /// The client shuts down its sending side at once, because the server need not reply.
    Unanswered,
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub requests: u64,
    pub seed: u64,
    /// The number of the first conversation.
    pub from: u64,
    pub size: Size,
    /// The longest time until memory has shrunk.
    pub after: Duration,
}

/// Runs three quarters of the requests against a server and one quarter against an ensemble;
/// returns `false` if a check failed.
pub fn run(plan: &Plan, build: &Build, work: &Path) -> Result<bool> {
    let on_ensemble = plan.requests / 4;
    let alone = Target::alone(&build.binary, plan.size, &work.join("fuzz-server"))?;
    let mut good =
        attack("a server", &alone, plan, plan.requests - on_ensemble, &|_| Port::Client)?;
    drop(alone);
    let dir = work.join("fuzz-ensemble");
    let ensemble = Target::ensemble(&build.binary, plan.size, &dir)?;
    good &= attack("an ensemble", &ensemble, plan, on_ensemble, &|number| match number % 4 {
        0 | 1 => Port::Client,
        2 => Port::Quorum,
        _ => Port::Election,
    })?;
    if !good {
        let Plan { requests, seed, from, .. } = plan;
        println!(
            "to run it again: cargo xtask hostile --fuzz {requests} --seed {seed} --from {from}"
        );
    }
    Ok(good)
}

#[derive(Debug, Clone, Copy)]
enum Port {
    Client,
    Quorum,
    Election,
}

/// The counters of a run.
#[derive(Debug)]
struct Progress {
    next: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    failures: Mutex<Vec<String>>,
}

fn attack(
    what: &str,
    target: &Target,
    plan: &Plan,
    requests: u64,
    port_of: &(dyn Fn(u64) -> Port + Sync),
) -> Result<bool> {
    let progress = Progress {
        next: AtomicU64::new(plan.from),
        sent: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        failures: Mutex::default(),
    };
    let pids = target.pids();
    let logs = target.logs();
    let marks = Marks::at_end(logs.iter().map(std::path::PathBuf::as_path));
    let victim = Victim::start(target.ports())?;
    let before_mb = memory::resident_mb(&pids)?;
    memory::forget_peak(&pids)?;
    target.forget_syncs();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| progress.work(target, plan.seed, requests, port_of));
        }
    });
    let took = began.elapsed();
    let Measured { reads, writes } = victim.stop()?;
    let during_mb = memory::peak_mb(&pids).unwrap_or(0);
    let after_mb = wait_for_memory(&pids, before_mb + LEFT_MB, plan.after);
    let mut failures = progress.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.extend(log::panics(&marks.since()).map(str::to_owned));
    failures.extend(target.check_alive().err().map(|why| format!("{why:#}")));
    if after_mb.is_none_or(|mb| mb > before_mb + LEFT_MB) {
        failures.push("memory has not come back".to_owned());
    }
    let (read, write, sync) = (reads.longest(), writes.longest(), target.longest_sync());
    if read > gap_max(plan.size) {
        failures.push(format!("a read of the victim took {read:.1?}"));
    }
    if write > gap_max(plan.size) + sync {
        failures.push(format!("a write of the victim took {write:.1?}"));
    }
    let (sent, answered) = (progress.sent.into_inner(), progress.answered.into_inner());
    println!(
        "{what}, seed {}: {sent} requests and packets in {} conversations, {answered} answers, \
         {:.0}/s",
        plan.seed,
        progress.next.into_inner() - plan.from,
        sent as f64 / took.as_secs_f64()
    );
    println!(
        "  victim: read p99 {:.1?}, longest {read:.1?}; write p99 {:.1?}, longest {write:.1?}; \
         longest sync {sync:.1?}; MB before {before_mb}, during {during_mb}, after {}",
        reads.percentile(99),
        writes.percentile(99),
        after_mb.unwrap_or_default()
    );
    failures.iter().for_each(|failure| println!("  FAILED: {failure}"));
    Ok(failures.is_empty())
}

/// Returns the largest accepted latency of a read, and of a write without the sync of the log.
fn gap_max(size: Size) -> Duration {
    match size {
        Size::Full => Duration::from_millis(50),
        Size::Short => Duration::from_secs(1),
    }
}

fn wait_for_memory(pids: &[u32], enough_mb: u64, patience: Duration) -> Option<u64> {
    let began = Instant::now();
    loop {
        let mb = memory::resident_mb(pids).ok()?;
        if mb <= enough_mb || began.elapsed() >= patience {
            return Some(mb);
        }
        thread::sleep(LOOK);
    }
}

/// Generates a conversation; its bytes depend only on the seed, its number and its port.
fn conversation(seed: u64, number: u64, port: Port) -> Conversation {
    let mut rng = Rng::new(seed);
    // Neighbouring numbers must not give overlapping sequences.
    let mut rng = Rng::new(rng.next_u64() ^ Rng::new(number).next_u64());
    match port {
        Port::Client => requests::conversation(&mut rng),
        Port::Quorum => packets::to_quorum_port(&mut rng),
        Port::Election => packets::to_election_port(&mut rng),
    }
}

impl Progress {
    /// Runs conversations until enough requests were sent, or a check failed.
    fn work(&self, target: &Target, seed: u64, requests: u64, port_of: &dyn Fn(u64) -> Port) {
        let mut failed_dials = 0;
        while self.sent.load(Ordering::Relaxed) < requests && !self.has_failed() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let kind = port_of(number);
            let conversation = conversation(seed, number, kind);
            let Some(port) = port(target, number, kind) else { return };
            match play(port, &conversation) {
                Ok(answers) => {
                    failed_dials = 0;
                    self.sent.fetch_add(conversation.count as u64, Ordering::Relaxed);
                    self.answered.fetch_add(answers, Ordering::Relaxed);
                }
                Err(Trouble::NotDialled) if failed_dials < FAILED_DIALS_MAX => {
                    failed_dials += 1;
                    thread::sleep(LOOK / 10);
                }
                Err(trouble) => self.fail(format!("conversation {number}: {trouble:?}")),
            }
        }
    }

    fn has_failed(&self) -> bool {
        !self.failures.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn fail(&self, why: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }
}

fn port(target: &Target, number: u64, kind: Port) -> Option<u16> {
    match kind {
        // Also followers, which forward the writes of clients.
        Port::Client => target.ports().into_iter().cycle().nth(number as usize % 3),
        Port::Quorum => Some(target.leader_ports().ok()?.quorum),
        Port::Election => Some(target.leader_ports().ok()?.election),
    }
}

#[derive(Debug)]
enum Trouble {
    NotDialled,
    /// Neither a reply nor a closed connection.
    Silence,
}

/// Sends all bytes, reads all replies, and returns their number.
fn play(port: u16, conversation: &Conversation) -> Result<u64, Trouble> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let mut stream = stream.map_err(|_| Trouble::NotDialled)?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    // A server may close the connection before it has read everything.
    let _ = stream.write_all(&conversation.bytes);
    let mut answers = Answers::default();
    if conversation.end != End::Unanswered {
        // The first reply is the reply to the handshake.
        answers.read(&mut stream, conversation.count as u64 + 1)?;
    }
    if conversation.end != End::Answered {
        let _ = stream.shutdown(Shutdown::Write);
        answers.read(&mut stream, u64::MAX)?;
    }
    Ok(answers.count)
}

/// The replies received on a connection.
#[derive(Debug, Default)]
struct Answers {
    count: u64,
    unread: Vec<u8>,
}

impl Answers {
    /// Reads until there are `enough` replies, or the server has closed the connection.
    fn read(&mut self, stream: &mut TcpStream, enough: u64) -> Result<(), Trouble> {
        let mut chunk = [0; 16 << 10];
        while self.count < enough {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => {
                    self.unread.extend_from_slice(&chunk[..len]);
                    self.take();
                }
                Err(error) if is_timeout(&error) => return Err(Trouble::Silence),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Counts complete frames that are not events; the first frame of a connection has no header.
    fn take(&mut self) {
        let mut at = 0;
        while let Some(len) = self.unread[at..].first_chunk::<4>() {
            let end = at + 4 + usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0);
            let Some(frame) = self.unread.get(at + 4..end) else { break };
            let is_event = frame.starts_with(&[0xff; 4]) && self.count > 0;
            self.count += u64::from(!is_event);
            at = end;
        }
        self.unread.drain(..at);
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_peers::connection::framed;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
        for port in [Port::Client, Port::Quorum, Port::Election] {
            let bytes = |seed, number| conversation(seed, number, port).bytes;
            assert_eq!(bytes(7, 3), bytes(7, 3));
            assert_ne!(bytes(7, 3), bytes(7, 4));
            assert_ne!(bytes(7, 3), bytes(8, 3));
        }
    }

    #[test]
    fn answers_are_counted_without_events_and_half_frames_are_kept() {
        let mut answers = Answers { unread: framed(&[0xff; 4]), ..Answers::default() };
        answers.take();
        assert_eq!(answers.count, 1);
        answers.unread = framed(&[0xff; 20]);
        answers.unread.extend(framed(&[0, 0, 0, 1]));
        answers.unread.extend([0, 0, 0]);
        answers.take();
        assert_eq!((answers.count, answers.unread), (2, vec![0, 0, 0]));
    }
}
