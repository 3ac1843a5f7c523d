//! Clients that use an ensemble while faults are injected, and record the replies.
//!
//! The clients share a few registers (see [`super::history`]), append sequential nodes to a common
//! parent, and each keeps an ephemeral node while its session is open. After every failure they
//! continue with the same session.
//!
//! A [`Load`] has one thread with one runtime. Other threads read its counters while it runs.

mod ending;
mod load_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ironkeeper_client::{Client, CreateMode};
use ironkeeper_peers::cluster::{Cluster, PATIENCE};
use ironkeeper_peers::server::Server;
use tokio::sync::{oneshot, watch};

use super::history::FIRST_VALUE;
use load_client::LoadClient;

const CLIENTS: usize = 6;
const REGISTERS: usize = 5;
/// The session timeout: longer than any election, but an unresponsive server is detected before
/// [`PATIENCE`] has passed.
const SESSION: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// The result of a load.
#[derive(Debug)]
pub struct Report {
    pub acknowledged: u64,
    pub unknown: usize,
    pub reconnects: usize,
    /// Reads after a sync that returned an old version, with the port of the member that replied.
    pub stale: Vec<(u16, String)>,
    /// All other violations.
    pub failures: Vec<String>,
}

/// A point of time of one load.
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

/// Running clients. Dropped without [`Load::finish`], they stop without a report.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<Report>>,
}

/// The state shared by the clients and the thread that waits for them.
#[derive(Debug)]
struct Shared {
    start: Instant,
    next_value: AtomicU64,
    acknowledged: AtomicU64,
    /// The begin of the newest acknowledged write, in nanoseconds since the start.
    newest_began: AtomicU64,
}

impl Shared {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn acknowledge(&self, began: u64) {
        self.newest_began.fetch_max(began, Ordering::Relaxed);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the path of a register.
fn register_path(register: usize) -> String {
    format!("/load/register-{register}")
}

impl Load {
    /// Connects the clients and starts them; the seed determines the operations of each.
    pub fn start(cluster: &Cluster, seed: u64) -> Result<Load> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            next_value: AtomicU64::new(FIRST_VALUE + 1),
            acknowledged: AtomicU64::new(0),
            newest_began: AtomicU64::new(0),
        });
        let (stop, stopped) = watch::channel(false);
        let (ready, is_ready) = oneshot::channel();
        let members = cluster.members().map(|server| server.address()).collect();
        let run = Run { shared: shared.clone(), seed, members, stopped };
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run.run(ready))
        })?;
        let load = Load { shared, stop, thread };
        if is_ready.blocking_recv().is_err() {
            // The thread ended before it was ready: its error is the reason.
            return Err(load.finish().err().unwrap_or_else(|| anyhow!("the load did not begin")));
        }
        Ok(load)
    }

    /// Waits until this many more writes are acknowledged.
    pub fn wait_for_writes(&self, more: u64) -> Result<()> {
        let wanted = self.shared.acknowledged.load(Ordering::Relaxed) + more;
        self.wait("writes", || self.shared.acknowledged.load(Ordering::Relaxed) >= wanted)
    }

    /// Returns the current time of the clients' clock.
    pub fn moment(&self) -> Moment {
        Moment(self.shared.now())
    }

    /// Waits until a write that began after the moment is acknowledged, and returns the time since
    /// the moment.
    pub fn wait_for_write_after(&self, moment: Moment) -> Result<Duration> {
        let Moment(since) = moment;
        self.wait("a write", || self.shared.newest_began.load(Ordering::Relaxed) > since)?;
        Ok(Duration::from_nanos(self.shared.now() - since))
    }

    /// Waits until a write is acknowledged that begins after this call.
    pub fn wait_for_new_write(&self) -> Result<()> {
        self.wait_for_write_after(self.moment()).map(drop)
    }

    /// Kills a member (SIGKILL) and returns the time from the kill until a write is acknowledged.
    pub fn outage_after_kill(&self, member: &mut Server) -> Result<Duration> {
        member.signal("KILL")?;
        // The operating system needs time to clean up the process; this is part of the outage.
        let struck = self.moment();
        member.kill()?;
        self.wait_for_write_after(struck)
    }

    fn wait(&self, what: &str, condition: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            if self.thread.is_finished() {
                bail!("the load ended early");
            }
            if Instant::now() > deadline {
                bail!("the clients still wait for {what} to be acknowledged after {PATIENCE:?}");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the clients and checks their results against every member; all members have to serve.
    pub fn finish(self) -> Result<Report> {
        // Fails only if the thread has ended, which `join` reports.
        let _ = self.stop.send(true);
        self.thread.join().map_err(|_| anyhow!("the load panicked"))?
    }
}

/// The state of a load on its own thread.
struct Run {
    shared: Arc<Shared>,
    seed: u64,
    /// The addresses of the members.
    members: Vec<String>,
    stopped: watch::Receiver<bool>,
}

impl Run {
    async fn run(self, ready: oneshot::Sender<()>) -> Result<Report> {
        let connect_string = self.members.join(",");
        let first = connect(&connect_string, SESSION).await?;
        for path in ["/load", "/load/log", "/load/live"] {
            first.create(path, "", CreateMode::Persistent).await?;
        }
        for register in 0..REGISTERS {
            let value = FIRST_VALUE.to_string();
            first.create(&register_path(register), value, CreateMode::Persistent).await?;
        }
        let mut load_clients = Vec::new();
        for number in 0..CLIENTS {
            let client = connect(&connect_string, SESSION).await?;
            client.create(&live_path(number), "", CreateMode::Ephemeral).await?;
            let seed = self.seed.wrapping_mul(1000) + number as u64;
            let load_client =
                LoadClient::new(number, client, seed, self.shared.clone(), self.stopped.clone());
            load_clients.push(tokio::spawn(load_client.run()));
        }
        first.close().await?;
        // The receiver is dropped only when the program ends.
        let _ = ready.send(());
        let mut ended = Vec::new();
        for load_client in load_clients {
            ended.push(load_client.await.context("a client of the load panicked")?);
        }
        let acknowledged = self.shared.acknowledged.load(Ordering::Relaxed);
        ending::judge(&self.members, ended, acknowledged, &self.shared).await
    }
}

/// Returns the path of a client's ephemeral node.
fn live_path(number: usize) -> String {
    format!("/load/live/{number}")
}

async fn connect(connect_string: &str, session: Duration) -> Result<Client> {
    Client::builder(connect_string)
        .session_timeout(session)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .with_context(|| format!("no session on {connect_string}"))
}
