//! Ironkeeper: a ZooKeeper server and its tools in one binary.

mod allocator;
mod deadlocks;
mod demo;
mod dev_cluster;
mod digest;
mod huge_pages;
mod journal;
mod json_log;
mod lock;
mod log_time;
mod migrate;
mod open_files;
mod panic_exit;
mod serve;
#[cfg(unix)]
mod service_manager;
mod status;
mod text_log;
mod tools;
mod top;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use ironkeeper_bench as bench;
use ironkeeper_shell as shell;
use tracing_subscriber::EnvFilter;

/// A ZooKeeper server and its tools, compatible with Apache ZooKeeper 3.9.
///
/// Without a command it starts a standalone server on 127.0.0.1:2181 with its data in
/// ./ironkeeper-data.
#[derive(Debug, Parser)]
#[command(version, long_version = LONG_VERSION.as_str())]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The log filter, for instance `debug` or `ironkeeper_server::role=debug` [default: info for a
    /// server, warn for everything else]
    #[arg(long, global = true, env = "IRONKEEPER_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// The log format
    #[arg(long, global = true, env = "IRONKEEPER_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// The text that `--version` prints after the name.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\ncommit    {}\ntarget    {}\nZooKeeper {} (protocol, files, configuration)",
        env!("CARGO_PKG_VERSION"),
        env!("IRONKEEPER_COMMIT"),
        env!("IRONKEEPER_TARGET"),
        ironkeeper_server::ZOOKEEPER_VERSION,
    )
});

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server (the default)
    Serve(serve::Args),
    Shell(shell::Args),
    Status(status::Args),
    Top(top::Args),
    Lock(lock::Args),
    Demo(demo::Args),
    DevCluster(dev_cluster::Args),
    /// Measure the performance of an Ironkeeper or Apache ZooKeeper server
    Bench(bench::Args),
    Migrate(migrate::Args),
    Digest(digest::Args),
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
            // The error and its causes, without a backtrace.
            let mut said = format!("error: {error}");
            for cause in error.chain().skip(1).map(|cause| cause.to_string()) {
                // Many errors include their cause in their own text.
                if !said.contains(&cause) {
                    said.push_str("\n  ");
                    said.push_str(&cause);
                }
            }
            journal::print_error(&said);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let serves = matches!(cli.command, None | Some(Command::Serve(_)));
    start_logging(cli.log.as_deref(), cli.log_format, serves)?;
    match cli.command {
        None => return serve::run(&serve::Args::default()),
        Some(Command::Serve(args)) => return serve::run(&args),
        Some(Command::Shell(args)) => return shell::run(args),
        Some(Command::Status(args)) => return status::run(&args),
        Some(Command::Top(args)) => return top::run(&args),
        Some(Command::Lock(args)) => return lock::run(&args),
        Some(Command::Demo(args)) => demo::run(&args)?,
        Some(Command::DevCluster(args)) => dev_cluster::run(&args, cli.log.as_deref())?,
        Some(Command::Bench(args)) => {
            open_files::allow_all();
            bench::run(args)?;
        }
        Some(Command::Migrate(args)) => return migrate::run(&args),
        Some(Command::Digest(args)) => digest::run(&args)?,
        Some(Command::Log(args)) => tools::log::run(&args)?,
        Some(Command::Snapshot(args)) => tools::snapshot::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The default log filter of a server.
const SERVER_LOG_FILTER: &str = "warn,ironkeeper=info,ironkeeper_server=info";
/// The default log filter of the other commands.
const LOG_FILTER: &str = "warn";

/// Sets up the log on standard error: with colours only on a terminal, and in the format of the
/// journal if standard error is connected to it.
fn start_logging(filter: Option<&str>, format: LogFormat, serves: bool) -> anyhow::Result<()> {
    let default = if serves { SERVER_LOG_FILTER } else { LOG_FILTER };
    let filter = log_filter(filter.unwrap_or(default))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(log_time::UtcMillis)
        .fmt_fields(text_log::TextFields)
        .with_writer(std::io::stderr);
    match (format, journal::is_connected()) {
        (LogFormat::Text, false) => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        (LogFormat::Text, true) => {
            let text = tracing_subscriber::fmt::format().without_time().with_ansi(false);
            lines.with_ansi(false).event_format(journal::Prioritized(text)).init();
        }
        (LogFormat::Json, false) => lines.event_format(json_log::JsonLines).init(),
        (LogFormat::Json, true) => {
            lines.event_format(journal::Prioritized(json_log::JsonLines)).init();
        }
    }
    Ok(())
}

/// Parses a filter. The library accepts any word as the name of a module, so a misspelled level
/// would disable all other log lines.
fn log_filter(text: &str) -> anyhow::Result<EnvFilter> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let is_level = LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        if !is_level && !part.contains(['=', '[']) && !part.starts_with("ironkeeper") {
            anyhow::bail!(
                "--log {text}: {part:?} is neither a level ({}) nor a module such as \
                 ironkeeper_server or ironkeeper_server::role=debug",
                LEVELS.join(", ")
            );
        }
    }
    EnvFilter::try_new(text).map_err(|error| anyhow::anyhow!("--log {text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_a_typing_error_is_refused() {
        for good in ["info", "WARN", "warn,ironkeeper_server=debug", "ironkeeper_server", "a=off"] {
            log_filter(good).unwrap_or_else(|error| panic!("{error}"));
        }
        for bad in ["inof", "warn,debg", "nonsense=xyz"] {
            let error = log_filter(bad).expect_err(bad).to_string();
            assert!(error.starts_with(&format!("--log {bad}: ")), "{error}");
        }
    }
}
