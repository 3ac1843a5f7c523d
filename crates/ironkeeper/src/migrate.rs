//! `ironkeeper migrate`: prepares the migration from Apache ZooKeeper.
//!
//! `check` examines everything that a replacement affects: settings, data, the other members. It
//! changes nothing, so it can run beside a server in production.

mod data;
mod ensemble;
mod findings;
mod settings;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use ironkeeper_client::Host;

use findings::Findings;

use crate::status;

/// Exit code: no obstacle was found, but a server could not be queried.
const NOT_KNOWN: u8 = 2;

/// Prepare the migration from Apache ZooKeeper
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Check(CheckArgs),
}

/// Find the obstacles to replacing Apache ZooKeeper, without changing anything
///
/// For a zoo.cfg it checks every setting, java.env and zookeeper-env.sh beside it, performs a
/// dry-run start on the data, and queries the status of the members. For servers it queries their
/// status. Exits with 0 if there is no obstacle, with 1 if there is one or a file cannot be read,
/// with 2 if none was found, but a server could not be queried.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper migrate check /etc/zookeeper/conf/zoo.cfg
  ironkeeper migrate check db1:2181,db2:2181,db3:2181")]
struct CheckArgs {
    /// A zoo.cfg on this machine, or servers, as host:port,host:port
    #[arg(value_name = "ZOO_CFG|HOSTS", required = true)]
    targets: Vec<String>,
    /// The timeout for the reply of a server
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
}

/// Runs the checks and prints the findings. The exit code tells whether there are obstacles.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Action::Check(args) = &args.action;
    let mut findings = Findings::default();
    let (files, words): (Vec<String>, Vec<String>) =
        args.targets.iter().cloned().partition(|target| is_file(target));
    if let Some(word) = words.iter().find(|word| !word.contains(':')) {
        bail!("there is no file {word}, and servers are written as host:port");
    }
    let mut hosts = if words.is_empty() { Vec::new() } else { status::hosts(&words)? };
    for file in files {
        hosts.extend(check_file(Path::new(&file), &mut findings));
    }
    hosts.dedup();
    ask(hosts, Duration::from_millis(args.timeout.max(1)), &mut findings)?;
    print!("{findings}");
    Ok(match (findings.obstacles(), findings.unknowns()) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(NOT_KNOWN),
        _ => ExitCode::FAILURE,
    })
}

/// Returns whether a target is meant as a file: it contains a slash, ends in `.cfg`, or exists.
fn is_file(target: &str) -> bool {
    target.contains('/') || target.ends_with(".cfg") || Path::new(target).exists()
}

/// Checks a configuration and its data; returns the client addresses of the members.
fn check_file(file: &Path, findings: &mut Findings) -> Vec<Host> {
    let Some(config) = settings::check(file, findings) else { return Vec::new() };
    data::check(&config, findings);
    settings::members(&config)
}

fn ask(hosts: Vec<Host>, within: Duration, findings: &mut Findings) -> Result<()> {
    if hosts.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(status::ask_all(hosts, within));
    let answers: Vec<_> =
        reports.into_iter().map(|report| (report.server.to_string(), report.answer)).collect();
    ensemble::check(&answers, findings);
    Ok(())
}
