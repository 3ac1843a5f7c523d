//! Starting, running and stopping a server.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ironkeeper_engine::conn::CloseReason;
use ironkeeper_engine::{Engine, Input};
use ironkeeper_proto::SessionId;
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Store, StoreError};
use thiserror::Error;

use crate::clock::Clock;
use crate::config::Config;
use crate::core::Core;
use crate::io::{Accepted, IoHandle};
use crate::limits::Limits;
use crate::log_thread::{self, LogQueue};
use crate::metrics::Metrics;
use crate::recovery::Report;
use crate::shared::{Connections, Shared};
use crate::shutdown::Shutdown;
use crate::snapshot_thread::{self, SnapshotQueue};
use crate::{io as io_threads, open_files, recovery, settings};

/// Apache's default trace mask, shown by `gtmk`.
const TRACE_MASK_DEFAULT: i64 = 306;
/// The longest wait between two looks at the clock for expiry.
const TIMER_PAUSE_MAX: Duration = Duration::from_millis(500);
const TIMER_PAUSE_MIN: Duration = Duration::from_millis(1);
const BACKLOG_DEFAULT: i32 = 1024;

/// Why a server could not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the data could not be recovered: {0}")]
    Recovery(String),
    #[error("cannot listen on {address}: {error}{}", listen_hint(.error))]
    Listen { address: String, error: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server is running there: stop it or choose another --client-port"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        _ => "",
    }
}

/// A running server. Dropping it stops it.
///
/// ```
/// use ironkeeper_server::Server;
/// use ironkeeper_server::config::Config;
///
/// let dir = tempfile::tempdir().unwrap();
/// let mut config = Config::standalone_default(dir.path().to_owned());
/// config.client_address.port = 0; // any free port
/// let server = Server::start(config).unwrap();
/// println!("clients connect to {}", server.address());
/// server.stop().unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    report: Report,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// These end after the others, when nothing can be written any more.
    writers: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Recovers the data and starts serving. Returns when clients can connect.
    pub fn start(config: Config) -> Result<Server, StartError> {
        let clock = Clock::start();
        let (listener, address) = listen(&config)?;
        let store = Store::open(RealDisk, settings::dirs(&config), settings::store(&config))?;
        let seed = random_seed();
        let engine_config = settings::engine(&config, seed);
        let (recovered, report) = recovery::recover(&store, engine_config.tree)?;
        let (engine, db) = Engine::new(engine_config, recovered, seed, clock.now());

        let (io, receivers): (Vec<_>, Vec<_>) = (0..io_thread_count()).map(IoHandle::new).unzip();
        let shutdown = Arc::new(Shutdown::default());
        let log = Arc::new(LogQueue::default());
        let snapshots = Arc::new(SnapshotQueue::default());
        let core = Arc::new(Core::new(engine, db, clock, log, snapshots, io, shutdown));
        let metrics = Arc::new(Metrics::default());
        metrics.note_startup(report.snapshot_took, report.txns, report.txns_took);
        let shared = Arc::new(Shared {
            limits: Limits::new(
                config.max_client_cnxns,
                config.max_cnxns,
                open_files::connections_max(),
            ),
            sessionless_timeout: Duration::from_millis(u64::from(config.sessionless_timeout_ms)),
            client_port: address.port(),
            config,
            core,
            store,
            metrics,
            connections: Connections::default(),
            trace_mask: AtomicI64::new(TRACE_MASK_DEFAULT),
            conn_ids: AtomicU64::new(1),
        });
        let server = Server {
            shared: Arc::clone(&shared),
            address,
            report,
            threads: Mutex::default(),
            writers: Mutex::default(),
        };
        // Apache refuses to start on a log without a snapshot; there must always be one.
        if server.report.snapshot.is_none() {
            server.first_snapshot()?;
        }
        server.start_threads(&listener, receivers)?;
        Ok(server)
    }

    fn first_snapshot(&self) -> Result<(), StartError> {
        let core = &self.shared.core;
        core.submit([Input::TakeSnapshot]);
        if let Some(mut job) = core.snapshots.take_now() {
            let began = Instant::now();
            snapshot_thread::write(&self.shared.store, core, &mut job)?;
            self.shared.metrics.note_snapshot(began.elapsed());
            core.submit([Input::SnapshotDone(job.into_walk())]);
        }
        Ok(())
    }

    fn start_threads(
        &self,
        listener: &TcpListener,
        receivers: Vec<tokio::sync::mpsc::UnboundedReceiver<Accepted>>,
    ) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let writer = shared.store.log_writer();
        let log_settings = settings::log(&shared.config);
        self.spawn(&self.writers, "log", move || {
            log_thread::run(writer, log_settings, &shared.core, &shared.metrics);
        })?;
        let shared = Arc::clone(&self.shared);
        let purge = settings::purge(&shared.config);
        self.spawn(&self.writers, "snapshot", move || {
            snapshot_thread::run(&shared.store, purge, &shared.core, &shared.metrics);
        })?;
        for (index, receiver) in receivers.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let handle = shared.core.io[index].clone();
            let listener = listener.try_clone().map_err(StartError::Thread)?;
            self.spawn(&self.threads, &format!("io-{index}"), move || {
                io_threads::run(&handle, listener, receiver, &shared);
            })?;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(&self.threads, "timer", move || run_timer(&shared))?;
        Ok(())
    }

    fn spawn(
        &self,
        group: &Mutex<Vec<JoinHandle<()>>>,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let shutdown = Arc::clone(&self.shared.core.shutdown);
        let thread_name = name.to_owned();
        let thread = std::thread::Builder::new()
            .name(thread_name.clone())
            .spawn(move || {
                // A thread that dies must not leave a server that only looks alive.
                let _guard = PanicGuard { shutdown, thread_name };
                body();
            })
            .map_err(StartError::Thread)?;
        group.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was found on the disk.
    pub fn report(&self) -> &Report {
        &self.report
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns when the server stops by itself, which it does only after a failure, or is stopped.
    pub async fn stopped(&self) {
        self.shared.core.shutdown.begun().await;
    }

    /// Takes a snapshot soon, in the background.
    pub fn take_snapshot(&self) {
        self.shared.core.submit([Input::TakeSnapshot]);
    }

    /// Ends a session now, as if its client had been silent for too long: its ephemeral nodes go and
    /// its connection is closed. False if there is no such session.
    ///
    /// The end is decided when this returns. It shows, as for any write, once it is in the log.
    pub fn expire_session(&self, session: SessionId) -> bool {
        let known = self.shared.core.db.read().sessions.contains(session);
        if known {
            self.shared.core.submit([Input::ExpireSession(session)]);
        }
        known
    }

    /// Closes every connection there is now. Sessions live on, and their clients may come back.
    pub fn drop_connections(&self) {
        for conn in self.shared.connections.all() {
            conn.end(CloseReason::Asked);
            let io = &self.shared.core.io[IoHandle::thread_of(conn.tag)];
            io.push_ready(conn);
            io.wake();
        }
    }

    /// Stops: no new connections, last replies leave, everything accepted is written.
    pub fn stop(self) -> Result<(), String> {
        self.join();
        match self.shared.core.shutdown.failure() {
            None => Ok(()),
            Some(reason) => Err(reason),
        }
    }

    fn join(&self) {
        let core = &self.shared.core;
        core.shutdown.begin();
        let join_all = |group: &Mutex<Vec<JoinHandle<()>>>| {
            let threads =
                std::mem::take(&mut *group.lock().unwrap_or_else(PoisonError::into_inner));
            for thread in &threads {
                // The timer sleeps without an ear for the shutdown.
                thread.thread().unpark();
            }
            for thread in threads {
                // The guard in the thread has reported a panic already.
                let _ = thread.join();
            }
        };
        join_all(&self.threads);
        core.log.close();
        core.snapshots.close();
        join_all(&self.writers);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.join();
    }
}

struct PanicGuard {
    shutdown: Arc<Shutdown>,
    thread_name: String,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shutdown.fail(format!("the thread `{}` failed", self.thread_name));
        }
    }
}

/// One I/O thread leaves a core to the log thread, and on two cores that beats two of them in every
/// workload: they would only take turns.
fn io_thread_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match cores {
        0..=2 => 1,
        3..=16 => cores - 1,
        _ => 16,
    }
}

/// Different on every start, so that nobody can aim at the buckets of our hash tables.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(wall.as_nanos());
    hasher.finish()
}

fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let host = config.client_address.host.as_deref();
    let port = config.client_address.port;
    let text = config.client_address.to_string();
    let fail = |error| StartError::Listen { address: text.clone(), error };
    let candidates: Vec<SocketAddr> = match host {
        Some(host) => (host, port).to_socket_addrs().map_err(fail)?.collect(),
        // Every address of both families, or of IPv4 alone where IPv6 is switched off.
        None => vec![
            (std::net::Ipv6Addr::UNSPECIFIED, port).into(),
            (std::net::Ipv4Addr::UNSPECIFIED, port).into(),
        ],
    };
    let backlog = config
        .client_port_listen_backlog
        .and_then(|backlog| i32::try_from(backlog).ok())
        .unwrap_or(BACKLOG_DEFAULT);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in candidates {
        match bind(candidate, backlog) {
            Ok(listener) => {
                let address = listener.local_addr().map_err(fail)?;
                return Ok((listener, address));
            }
            Err(error) => last = error,
        }
    }
    Err(fail(last))
}

pub(crate) fn bind(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Calls the engine whenever a session or a container is due.
fn run_timer(shared: &Arc<Shared>) {
    let core = &shared.core;
    // A session opened meanwhile may be due before what was known of, but not within a tick.
    let tick = Duration::from_millis(u64::from(shared.config.tick_time_ms));
    let pause_max = TIMER_PAUSE_MAX.min(tick).max(TIMER_PAUSE_MIN);
    while !core.shutdown.has_begun() {
        let due_ms = core.on_timer();
        let left = due_ms.saturating_sub(core.clock.now().mono_ms);
        let pause = Duration::from_millis(left).clamp(TIMER_PAUSE_MIN, pause_max);
        std::thread::park_timeout(pause);
    }
}

#[cfg(test)]
mod tests;
