//! Starting, running and stopping a server.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ironkeeper_config::Config;
use ironkeeper_engine::conn::CloseReason;
use ironkeeper_engine::planted::Place;
use ironkeeper_engine::{Engine, Input};
use ironkeeper_node::{
    LogWork, NO_DATABASE, Recovery, RecoveryError, withdraw_unlogged, write_first_snapshot,
};
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Store, StoreError};
use ironkeeper_zab::Status;
use thiserror::Error;

use crate::clock::Clock;
use crate::connection_log::ConnectionLog;
use crate::engine_driver::EngineDriver;
use crate::io::{IoHandle, NewConnection};
use crate::limits::Limits;
use crate::log_reader::{self, LogReads};
use crate::log_thread::LogThread;
use crate::member::{self, Member};
use crate::metrics::Metrics;
use crate::peer::PeerError;
use crate::recovery::StartReport;
use crate::shared::{Connections, Shared};
use crate::{io as io_threads, open_files, panics, recovery, settings, snapshot_thread};

/// Apache's default trace mask, shown by `gtmk`.
const TRACE_MASK_DEFAULT: i64 = 306;
/// The maximum wait between two checks of the clock for expiry.
const TIMER_PAUSE_MAX: Duration = Duration::from_millis(500);
const BACKLOG_DEFAULT: i32 = 1024;

/// The reason why a server could not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{error}{hint}", error = .0, hint = damage_hint(.0))]
    Store(StoreError),
    #[error("the data could not be recovered: {0}")]
    Recovery(String),
    #[error("cannot listen on {address}: {error}{}", listen_hint(.error))]
    Listen { address: String, error: io::Error },
    #[error(transparent)]
    ListenForPeers(#[from] PeerError),
    #[error("the directory of the configuration file cannot be synced: {0}")]
    Members(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> StartError {
        StartError::Store(error)
    }
}

impl From<RecoveryError> for StartError {
    fn from(error: RecoveryError) -> StartError {
        match error {
            RecoveryError::Store(error) => StartError::Store(error),
            error => StartError::Recovery(error.to_string()),
        }
    }
}

/// Returns advice for the owner of damaged files.
fn damage_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged { .. } | StoreError::NoValidSnapshot { .. } => {
            ". Nothing was changed. `ironkeeper log --check` and `ironkeeper snapshot --check` show \
             what can be read. A member of an ensemble copies its leader's data if it is started \
             with an empty data directory (keep myid); a server on its own needs a backup"
        }
        _ => "",
    }
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
/// use ironkeeper_config::Config;
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
    report: StartReport,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// These threads end after the others, when nothing can be appended any more.
    writers: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Recovers the data and starts serving. Returns when clients can connect.
    pub fn start(mut config: Config) -> Result<Server, StartError> {
        let clock = Clock::start();
        let (listener, address) = listen(&config)?;
        remark_on(&config);
        let store = Store::open(RealDisk, settings::dirs(&config), settings::store(&config))?;
        let seed = random_seed();
        let engine_config = settings::engine(&config, seed);
        let kind = settings::server_kind(config.ensemble.as_ref());
        let (mut recovery, took) = recovery::recover(&store, engine_config.tree, kind)?;
        let metrics = Arc::new(Metrics::default());
        let awaits_database = config.ensemble.is_some() && recovery.history.last == NO_DATABASE;
        if recovery.report.snapshot.is_none() && !awaits_database {
            let began = Instant::now();
            write_first_snapshot(&store, &mut recovery)?;
            metrics.note_snapshot(began.elapsed());
        }
        let Recovery { recovered, history, report: files } = recovery;
        let report = StartReport { files, took };
        let files = settings::member_files(&config);
        if let Some(ensemble) = &mut config.ensemble {
            let proposed = ensemble.proposed.take();
            ensemble.proposed = withdraw_unlogged(files.as_deref(), proposed, history.last)
                .map_err(|error| {
                    StartError::Recovery(format!("proposed members stay where they are: {error}"))
                })?;
        }
        let (log_reads, wishes) = LogReads::new();
        let (engine, member) = match &config.ensemble {
            None => (Engine::new(engine_config, recovered, seed, clock.now()), None),
            Some(ensemble) => {
                if let Some(files) = settings::dynamic_files(ensemble) {
                    files.settle().map_err(StartError::Members)?;
                }
                let member = Member::bind(&config, ensemble, &store, log_reads, &metrics)?;
                let epochs = store.load_epochs(history.last.max(Zxid::ZERO))?;
                let start = member::start(&config, ensemble, epochs, history);
                let engine = Engine::member(engine_config, recovered, start, seed, clock.now());
                (engine, Some(member))
            }
        };

        let (io, receivers): (Vec<_>, Vec<_>) = (0..io_thread_count()).map(IoHandle::new).unzip();
        let core = EngineDriver::new(engine, clock, io, member);
        metrics.note_startup(took.snapshot, report.files.txns, took.txns);
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
            connection_log: ConnectionLog::default(),
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
        server.start_threads(&listener, receivers)?;
        if server.shared.core.member.is_some() {
            server.start_member_threads(wishes)?;
        }
        server.log_start();
        Ok(server)
    }

    /// Logs one line with what an operator needs first.
    fn log_start(&self) {
        let Server { shared, report: StartReport { files, took }, .. } = self;
        let (data_dir, log_dir) =
            (shared.store.snap_dir().display(), shared.store.log_dir().display());
        let snapshot = files.snapshot.as_ref().filter(|_| !files.fresh);
        let snapshot = snapshot.and_then(|(_, path)| path.file_name()?.to_str());
        let server = shared.config.ensemble.as_ref().map(|ensemble| ensemble.my_id.0);
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            server,
            addr = %self.address,
            %data_dir,
            %log_dir,
            snapshot,
            txns = files.txns,
            took_ms = (took.snapshot + took.txns).as_millis(),
            "started",
        );
    }

    fn start_threads(
        &self,
        listener: &TcpListener,
        receivers: Vec<tokio::sync::mpsc::UnboundedReceiver<NewConnection>>,
    ) -> Result<(), StartError> {
        let shared = &self.shared;
        let steps = settings::durable_steps(&shared.config, &shared.core.db, &shared.store);
        let log_thread = LogThread {
            work: LogWork::new(steps, settings::log_file_bytes_max(&shared.config)),
            settings: settings::log(&shared.config),
            core: Arc::clone(&shared.core),
            metrics: Arc::clone(&shared.metrics),
        };
        self.spawn(&self.writers, "log", move || log_thread.run())?;
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

    fn start_member_threads(
        &self,
        wishes: Receiver<Option<ironkeeper_zab::LogQuery>>,
    ) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let factor = shared.config.ensemble.as_ref().and_then(|to| to.snapshot_size_factor);
        self.spawn(&self.threads, "log-reader", move || {
            log_reader::run(&shared.store, &wishes, factor, &shared.core);
        })?;
        let core = Arc::clone(&self.shared.core);
        self.spawn(&self.threads, "peers", move || {
            if let Some(member) = &core.member {
                member.run_links(&core);
            }
        })
    }

    fn spawn(
        &self,
        group: &Mutex<Vec<JoinHandle<()>>>,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let shutdown = Arc::clone(&self.shared.core.shutdown);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                panics::stop_on_panic(&shutdown);
                body();
            })
            .map_err(StartError::Thread)?;
        group.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the role of the server in its ensemble; `None` if it is standalone.
    pub fn status(&self) -> Option<Status> {
        self.shared.core.member.as_ref().map(Member::status)
    }

    /// Returns what recovery found on the disk.
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns why the server has stopped by itself: for example a failure of its disk, or a panic
    /// on one of its threads, with thread, place and reason.
    pub fn failure(&self) -> Option<String> {
        self.shared.core.shutdown.failure()
    }

    /// Waits until the server is stopped or stops by itself, which it does only after a
    /// [`failure`](Server::failure).
    pub async fn stopped(&self) {
        self.shared.core.shutdown.begun().await;
    }

    /// Takes a snapshot soon, in the background.
    pub fn take_snapshot(&self) {
        self.shared.core.submit([Input::TakeSnapshot]);
    }

    /// Expires a session now, as if it had not been touched for its timeout: its ephemeral nodes
    /// are deleted and its connection is closed. Returns false if there is no such session.
    ///
    /// The transaction is proposed when this returns. It is visible, like any write, once it is in
    /// the log.
    pub fn expire_session(&self, session: SessionId) -> bool {
        let known = self.shared.core.db.read().sessions.contains(session);
        if known {
            self.shared.core.submit([Input::ExpireSession(session)]);
        }
        known
    }

    /// Closes all present connections. Sessions continue, and their clients may reconnect.
    pub fn drop_connections(&self) {
        for conn in self.shared.connections.all() {
            conn.end(CloseReason::Asked);
            let io = &self.shared.core.io[IoHandle::thread_of(conn.tag)];
            io.push_ready(conn);
            io.wake();
        }
    }

    /// Stops the server: it accepts no new connections, sends the last replies and writes
    /// everything that was accepted. An error is the [`failure`](Server::failure) after which the
    /// server had stopped by itself.
    pub fn stop(self) -> Result<(), String> {
        self.join();
        self.failure().map_or(Ok(()), Err)
    }

    fn join(&self) {
        let core = &self.shared.core;
        core.shutdown.begin();
        if let Some(member) = &core.member {
            member.stop();
        }
        let join_all = |group: &Mutex<Vec<JoinHandle<()>>>| {
            let threads =
                std::mem::take(&mut *group.lock().unwrap_or_else(PoisonError::into_inner));
            for thread in &threads {
                // The parked timer thread does not notice the shutdown by itself.
                thread.thread().unpark();
            }
            for thread in threads {
                // The panic hook has reported a panic already.
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

/// Returns the number of I/O threads. On two cores a single one is faster than two in every
/// workload, because it leaves a core to the log thread; two would only alternate.
fn io_thread_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match cores {
        0..=2 => 1,
        3..=16 => cores - 1,
        _ => 16,
    }
}

/// Returns a number that differs on every start, so that clients cannot choose keys that collide in
/// our hash tables.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(wall.as_nanos());
    hasher.finish()
}

/// Logs warnings before the data is opened.
fn remark_on(config: &Config) {
    for dir in [&config.data_dir, &config.data_log_dir] {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for name in names.filter(|name| name.starts_with("version-") && name != "version-2") {
            let dir = dir.join(name);
            tracing::warn!(dir = %dir.display(), "directory ignored, only version-2 is supported");
        }
        if config.data_dir == config.data_log_dir {
            break;
        }
    }
}

fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let host = config.client_address.host.as_deref();
    let port = config.client_address.port;
    let text = config.client_address.to_string();
    let fail = |error| StartError::Listen { address: text.clone(), error };
    let candidates: Vec<SocketAddr> = match host {
        Some(host) => (host, port).to_socket_addrs().map_err(fail)?.collect(),
        // Every address of both families, or of IPv4 alone where IPv6 is disabled.
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

/// Calls the engine whenever a deadline of a session, a container or ZAB is due.
fn run_timer(shared: &Arc<Shared>) {
    let core = &shared.core;
    // A session opened meanwhile may expire before the known deadlines, but not within a tick.
    let tick = Duration::from_millis(u64::from(shared.config.tick_time_ms));
    let pause_max = TIMER_PAUSE_MAX.min(tick);
    while !core.shutdown.has_begun() {
        core.alarm.begin();
        core.db.planted_panic.strike(Place::Timer);
        let due_ms = core.on_timer();
        core.session_log.flush();
        shared.connection_log.flush();
        if let Some(member) = &core.member {
            member.report_no_leader(core.clock.now());
        }
        core.alarm.sleep(due_ms, core.clock.now().mono_ms, pause_max);
    }
}

#[cfg(test)]
mod tests;
