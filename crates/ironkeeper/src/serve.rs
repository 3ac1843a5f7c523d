//! `ironkeeper serve`: runs a server until a signal ends it.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ironkeeper_config::java_env::{self, Effect};
use ironkeeper_config::{Config, Loaded, Overrides, TableFormat, render_known_keys};
use ironkeeper_server::Server;
use ironkeeper_server::unused_memory;

#[cfg(unix)]
use crate::service_manager;
use crate::{allocator, open_files, panic_exit};

/// The data directory if none is configured.
const DATA_DIR_DEFAULT: &str = "ironkeeper-data";

/// The environment variable with the location at which a test requires a panic.
#[cfg(debug_assertions)]
const PLANTED_PANIC: &str = "IRONKEEPER_PLANTED_PANIC";

#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// The same as --config; the form that zkServer.sh accepts
    #[arg(value_name = "CONFIG", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// A zoo.cfg, as Apache ZooKeeper reads it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a key of zoo.cfg, with or without a file, such as 4lw.commands.whitelist=*
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// The directory of snapshots and transaction logs
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The port for clients (2181 unless configured; 0 for any free one)
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// The address to listen on: a host name or address, or * for all addresses
    #[arg(long, value_name = "HOST")]
    client_address: Option<String>,
    /// The tick in milliseconds, from which the limits of session timeouts are derived
    #[arg(long, value_name = "MS")]
    tick_time: Option<u32>,
    /// Print every zoo.cfg key: its meaning, its default, and whether it is applied
    #[arg(long)]
    list_config_keys: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list_config_keys {
        print!("{}", render_known_keys(TableFormat::Text));
        return Ok(ExitCode::SUCCESS);
    }
    let config = load(args)?;
    // Not in `Server`: the servers embedded in tests and demos are short-lived.
    if config.purge_interval_ms.is_none() {
        // Zero is the default of Apache ZooKeeper.
        let key = "autopurge.purgeInterval";
        tracing::warn!(key, "old snapshots and logs are never removed");
    }
    panic_exit::install();
    let data_dir = config.data_dir.clone();
    open_files::allow_all();
    unused_memory::release_with(allocator::release_unused);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the server is announced: a program that reads the announcement may end the server
    // immediately.
    let signals = runtime.block_on(async { EndSignals::listen() });
    let server = Server::start(config)?;
    announce(&server, &data_dir);
    #[cfg(unix)]
    service_manager::tell("READY=1");
    let reason = runtime.block_on(async {
        match signals {
            Ok(mut signals) => tokio::select! {
                () = server.stopped() => "a failure",
                signal = signals.next() => signal,
            },
            Err(error) => {
                tracing::warn!(%error, "signals cannot be received");
                server.stopped().await;
                "a failure"
            }
        }
    });
    tracing::info!(reason, "stopping");
    #[cfg(unix)]
    service_manager::tell("STOPPING=1");
    match server.stop() {
        Ok(()) => {
            tracing::info!(reason, "stopped");
            Ok(ExitCode::SUCCESS)
        }
        // The error is already in the log, unless logging is disabled.
        Err(_) if tracing::enabled!(tracing::Level::ERROR) => Ok(ExitCode::FAILURE),
        Err(error) => Err(anyhow::Error::msg(error)),
    }
}

/// Parses a value of `--set`.
fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, such as tickTime=2000".to_owned()),
    }
}

fn load(args: &Args) -> anyhow::Result<Config> {
    let jvmflags = std::env::var("JVMFLAGS").unwrap_or_default();
    let server_jvmflags = std::env::var("SERVER_JVMFLAGS").unwrap_or_default();
    let data_dir = args.data_dir.clone();
    let with = Overrides { jvmflags: &jvmflags, server_jvmflags: &server_jvmflags, set: &args.set };
    let file = args.config.as_ref().or(args.file.as_ref());
    let name =
        file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
    let loaded = match file {
        Some(file) => Config::from_file_with(file, &with),
        None => {
            let data_dir = data_dir.clone().unwrap_or_else(|| PathBuf::from(DATA_DIR_DEFAULT));
            Config::standalone_with(data_dir, &with)
        }
    };
    let Loaded { mut config, notices } =
        loaded.map_err(|error| anyhow::Error::msg(error.shown_in(&name)))?;
    for notice in &notices {
        let (key, text) = (&notice.key, notice.shown_in(&name));
        if notice.deserves_attention() {
            tracing::warn!(key, notice = text, "setting not in effect as written");
        } else {
            tracing::info!(key, notice = text, "setting without effect");
        }
    }
    if let Some(file) = file {
        warn_of_flags_beside(file, &with, &config);
    }
    if let Some(dir) = data_dir {
        // A separate log directory stays as configured in the file.
        if config.data_log_dir == config.data_dir {
            config.data_log_dir.clone_from(&dir);
        }
        config.data_dir = dir;
    }
    if let Some(port) = args.client_port {
        config.client_address.port = port;
    }
    if let Some(host) = &args.client_address {
        config.listen_on((host != "*").then(|| host.clone()));
    }
    if let Some(tick_time_ms) = args.tick_time {
        config.set_tick_time_ms(tick_time_ms);
    }
    #[cfg(debug_assertions)]
    if let Ok(place) = std::env::var(PLANTED_PANIC) {
        config.planted_panic = ironkeeper_server::panics::Place::from_name(&place);
    }
    config.validate()?;
    Ok(config)
}

/// Logs a warning for each flag of the scripts beside `file` that would change the configuration and
/// that the server does not receive.
fn warn_of_flags_beside(file: &Path, with: &Overrides<'_>, config: &Config) {
    for (property, effect) in java_env::effects_beside(file, with, config) {
        if matches!(effect, Effect::Change | Effect::Refusal(_)) {
            let (file, key) = (property.file.display(), property.key());
            tracing::warn!(%file, key, "flag of a start script ignored, zoo.cfg needs its key");
        }
    }
}

/// Prints a short announcement for the user.
fn announce(server: &Server, data_dir: &Path) {
    let files = &server.report().files;
    let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let address = server.address();
    let (bold, plain) = match std::io::stdout().is_terminal() {
        true => ("\x1b[1m", "\x1b[0m"),
        false => ("", ""),
    };
    let kind = match &server.shared().config.ensemble {
        None => "standalone".to_owned(),
        Some(ensemble) => {
            let members = ensemble.membership.members.len();
            format!("number {} of an ensemble of {members}", ensemble.my_id)
        }
    };
    println!("{bold}Ironkeeper {}{plain}, a ZooKeeper server, {kind}", env!("CARGO_PKG_VERSION"));
    println!("  clients  {bold}{address}{plain}");
    let found = match (&files.snapshot, files.fresh) {
        (_, true) | (None, _) => "new".to_owned(),
        (Some(_), false) => {
            format!("{} transactions replayed after the snapshot", files.txns)
        }
    };
    println!("  data     {} ({found})", data_dir.display());
    let when = if server.status().is_some() { ", once there is a leader" } else { "" };
    println!(
        "  connect  ironkeeper shell -server {}   or any ZooKeeper client{when}",
        reachable(address)
    );
    println!("  stop     Ctrl-C");
}

/// Returns an address at which a client on this machine reaches the server, also if it listens on
/// all addresses.
fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

/// The signals that end the process. SIGHUP is one of them, unless the process was started to
/// ignore it (`nohup`).
#[cfg(unix)]
struct EndSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl EndSignals {
    /// Registers the handlers. Must be called inside of a runtime.
    fn listen() -> std::io::Result<EndSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
        })
    }

    /// Waits for a signal and returns its name.
    async fn next(&mut self) -> &'static str {
        let EndSignals { terminate, interrupt, hangup } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = hangup => "SIGHUP",
        }
    }
}

#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn listen() -> std::io::Result<EndSignals> {
        Ok(EndSignals)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}

/// Returns whether SIGHUP was ignored when the process was started.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}

/// Returns when the process receives SIGTERM or SIGINT.
#[cfg(unix)]
pub(crate) async fn stop_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) async fn stop_signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
