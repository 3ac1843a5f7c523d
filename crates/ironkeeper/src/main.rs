//! Ironkeeper: a ZooKeeper server and its tools in one binary.

mod bench;
mod deadlocks;
mod demo;
mod dev_cluster;
mod four_letter;
mod huge_pages;
mod lock;
mod migrate;
mod open_files;
mod serve;
mod shell;
mod status;
mod table;
mod tools;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A coordination service that ZooKeeper clients cannot tell from Apache ZooKeeper.
///
/// Without a command it starts a standalone server on 127.0.0.1:2181 with its data in
/// ./ironkeeper-data.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// What is logged, for instance `info` or `ironkeeper_server=debug` [default: warn]
    #[arg(long, global = true, env = "IRONKEEPER_LOG", value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server (the default)
    Serve(serve::Args),
    Shell(shell::Args),
    Status(status::Args),
    Lock(lock::Args),
    Demo(demo::Args),
    DevCluster(dev_cluster::Args),
    /// Measure a ZooKeeper server, ours or Apache's
    Bench(bench::Args),
    Migrate(migrate::Args),
    /// Show or check transaction log files
    Log(tools::log::Args),
    /// Show or check snapshot files
    Snapshot(tools::snapshot::Args),
}

fn main() -> ExitCode {
    huge_pages::forbid();
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // For people: what went wrong and why, without a backtrace.
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    start_logging(cli.log.as_deref())?;
    match cli.command {
        None => serve::run(&serve::Args::default())?,
        Some(Command::Serve(args)) => serve::run(&args)?,
        Some(Command::Shell(args)) => return shell::run(args),
        Some(Command::Status(args)) => return status::run(&args),
        Some(Command::Lock(args)) => return lock::run(&args),
        Some(Command::Demo(args)) => demo::run(&args)?,
        Some(Command::DevCluster(args)) => dev_cluster::run(&args)?,
        Some(Command::Bench(args)) => bench::run(args)?,
        Some(Command::Migrate(args)) => return migrate::run(&args),
        Some(Command::Log(args)) => tools::log::run(&args)?,
        Some(Command::Snapshot(args)) => tools::snapshot::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is logged if nobody says otherwise: trouble, and which part a member has in its ensemble.
const LOG_FILTER: &str = "warn,ironkeeper_server::role=info";

/// Logs go to standard error: quiet by default, with colour on a terminal only.
fn start_logging(filter: Option<&str>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter.unwrap_or(LOG_FILTER))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
