//! Clients that work on an ensemble while things happen to it, and write down what they were told.
//!
//! They share a few registers (see [`super::history`]), append to a common line of sequential nodes, and each
//! keeps an ephemeral node for as long as its session lives. Whatever breaks, they go on: with the same session.
//!
//! A [`Load`] has one thread with one runtime. Its figures are read from outside while it runs.

mod actor;
mod ending;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ironkeeper_client::{Client, CreateMode};
use tokio::sync::{oneshot, watch};

use super::cluster::{Cluster, PATIENCE};
use super::history::FIRST_VALUE;
use crate::server::Server;
use actor::Actor;

const CLIENTS: usize = 6;
const REGISTERS: usize = 5;
/// Sessions live through any election, and yet notice a silent server before [`PATIENCE`] is over.
const SESSION: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// What a load has come to.
#[derive(Debug)]
pub struct Report {
    pub acknowledged: u64,
    pub unknown: usize,
    pub reconnects: usize,
    /// Reads behind a sync that saw too little, with the port of the member that answered.
    pub stale: Vec<(u16, String)>,
    /// Every other rule that was broken; none is what is wanted.
    pub failures: Vec<String>,
}

/// A point of time of one load.
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

/// Clients at work. Dropped without [`Load::finish`], they end without a word.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<Report>>,
}

/// What the clients and the thread that watches them have in common.
#[derive(Debug)]
struct Shared {
    start: Instant,
    next_value: AtomicU64,
    acknowledged: AtomicU64,
    /// When the newest of the acknowledged writes began, in nanoseconds since the start.
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

/// The node of a register.
fn register_path(register: usize) -> String {
    format!("/load/register-{register}")
}

impl Load {
    /// Connects the clients and sets them to work; the seed decides what each does.
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
            // It said nothing and ended: its error tells why.
            return Err(load.finish().err().unwrap_or_else(|| anyhow!("the load did not begin")));
        }
        Ok(load)
    }

    /// Waits until this many more writes are acknowledged.
    pub fn wait_for_writes(&self, more: u64) -> Result<()> {
        let wanted = self.shared.acknowledged.load(Ordering::Relaxed) + more;
        self.wait("writes", || self.shared.acknowledged.load(Ordering::Relaxed) >= wanted)
    }

    /// Now, on the clock of the clients.
    pub fn moment(&self) -> Moment {
        Moment(self.shared.now())
    }

    /// Waits until a write is acknowledged that began after the moment, and says how long after it that was.
    pub fn wait_for_write_after(&self, moment: Moment) -> Result<Duration> {
        let Moment(since) = moment;
        self.wait("a write", || self.shared.newest_began.load(Ordering::Relaxed) > since)?;
        Ok(Duration::from_nanos(self.shared.now() - since))
    }

    /// Waits until a write is acknowledged that begins after this call.
    pub fn wait_for_new_write(&self) -> Result<()> {
        self.wait_for_write_after(self.moment()).map(drop)
    }

    /// Kills a member (SIGKILL) and says how long it took from then until a write was acknowledged.
    pub fn outage_after_kill(&self, member: &mut Server) -> Result<Duration> {
        member.signal("KILL")?;
        // What a process leaves behind takes the system a while; that belongs to the outage.
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

    /// Ends the work and judges it, on every member: all of them have to serve.
    pub fn finish(self) -> Result<Report> {
        // Fails only if the thread has ended, which is seen next.
        let _ = self.stop.send(true);
        self.thread.join().map_err(|_| anyhow!("the load panicked"))?
    }
}

/// A load on its own thread.
struct Run {
    shared: Arc<Shared>,
    seed: u64,
    /// Addresses of the members.
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
        let mut actors = Vec::new();
        for number in 0..CLIENTS {
            let client = connect(&connect_string, SESSION).await?;
            client.create(&live_path(number), "", CreateMode::Ephemeral).await?;
            let seed = self.seed.wrapping_mul(1000) + number as u64;
            let actor = Actor::new(number, client, seed, self.shared.clone(), self.stopped.clone());
            actors.push(tokio::spawn(actor.run()));
        }
        first.close().await?;
        // Whoever started this has gone only if the program ends.
        let _ = ready.send(());
        let mut ended = Vec::new();
        for actor in actors {
            ended.push(actor.await.context("a client of the load panicked")?);
        }
        let acknowledged = self.shared.acknowledged.load(Ordering::Relaxed);
        ending::judge(&self.members, ended, acknowledged, &self.shared).await
    }
}

/// The ephemeral node of a client.
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
