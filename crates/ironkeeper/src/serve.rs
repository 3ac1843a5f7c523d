//! `ironkeeper serve`: runs a server until it is told to stop.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ironkeeper_server::Server;
use ironkeeper_server::config::{Config, ListenAddress, Loaded, TableFormat, render_known_keys};

use crate::open_files;

/// Where data goes when nobody says where.
const DATA_DIR_DEFAULT: &str = "ironkeeper-data";

#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// A zoo.cfg, as Apache ZooKeeper reads it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where snapshots and transaction logs are kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The port for clients (2181 unless configured; 0 for any free one)
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// The address to listen on: a host name or address, or * for all
    #[arg(long, value_name = "HOST")]
    client_address: Option<String>,
    /// The tick in milliseconds, from which session timeouts follow
    #[arg(long, value_name = "MS")]
    tick_time: Option<u32>,
    /// Print every zoo.cfg key: what it means, its default, and whether it is applied
    #[arg(long)]
    list_config_keys: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.list_config_keys {
        print!("{}", render_known_keys(TableFormat::Text));
        return Ok(());
    }
    let config = load(args)?;
    let data_dir = config.data_dir.clone();
    open_files::allow_all();
    let server = Server::start(config)?;
    announce(&server, &data_dir);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            () = server.stopped() => {}
            signal = stop_signal() => if let Err(error) = signal {
                tracing::warn!("signals cannot be heard: {error}");
                server.stopped().await;
            },
        }
    });
    server.stop().map_err(anyhow::Error::msg)
}

fn load(args: &Args) -> anyhow::Result<Config> {
    let jvmflags = std::env::var("JVMFLAGS").unwrap_or_default();
    let server_jvmflags = std::env::var("SERVER_JVMFLAGS").unwrap_or_default();
    let data_dir = args.data_dir.clone();
    let Loaded { mut config, notices } = match &args.config {
        Some(file) => Config::from_file(file, &jvmflags, &server_jvmflags)
            .with_context(|| format!("{} cannot be used", file.display()))?,
        None => {
            let data_dir = data_dir.clone().unwrap_or_else(|| PathBuf::from(DATA_DIR_DEFAULT));
            Config::standalone(data_dir, &jvmflags, &server_jvmflags)?
        }
    };
    for notice in &notices {
        if notice.deserves_attention() {
            tracing::warn!("{notice}");
        } else {
            tracing::info!("{notice}");
        }
    }
    if let Some(dir) = data_dir {
        // A log directory of its own stays where the file says.
        if config.data_log_dir == config.data_dir {
            config.data_log_dir.clone_from(&dir);
        }
        config.data_dir = dir;
    }
    if let Some(port) = args.client_port {
        config.client_address.port = port;
    }
    if let Some(host) = &args.client_address {
        let host = (host != "*").then(|| host.clone());
        config.client_address = ListenAddress { host, port: config.client_address.port };
    }
    if let Some(tick_time_ms) = args.tick_time {
        config.set_tick_time_ms(tick_time_ms);
    }
    config.validate()?;
    Ok(config)
}

/// A few lines for the person who started it.
fn announce(server: &Server, data_dir: &Path) {
    let report = server.report();
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
    let found = match (&report.snapshot, report.fresh) {
        (_, true) | (None, _) => "new".to_owned(),
        (Some(_), false) => {
            format!("{} transactions replayed after the snapshot", report.txns)
        }
    };
    println!("  data     {} ({found})", data_dir.display());
    println!("  connect  ironkeeper shell -server {address}   or any ZooKeeper client");
    println!("  stop     Ctrl-C");
}

/// Returns when the process is asked to end.
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
