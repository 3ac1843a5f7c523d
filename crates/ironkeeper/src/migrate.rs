//! `ironkeeper migrate`: on the way from Apache ZooKeeper.
//!
//! `check` looks at everything a replacement touches: settings, data, the other members. It changes
//! nothing, so it can be run beside a server in production.

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

/// A server could not be asked, so it is not known whether the way is free.
const NOT_KNOWN: u8 = 2;

/// Prepare to take over from Apache ZooKeeper
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Check(CheckArgs),
}

/// Find out what stands in the way of replacing Apache ZooKeeper, without changing anything
///
/// Given a zoo.cfg it checks every setting, java.env and zookeeper-env.sh beside it, rehearses a
/// start on the data, and asks the members how they are. Given servers it asks these. Exits with 0
/// if nothing stands in the way, with 1 if something does or a file cannot be read, with 2 if
/// nothing is known to, but a server could not be asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper migrate check /etc/zookeeper/conf/zoo.cfg
  ironkeeper migrate check db1:2181,db2:2181,db3:2181")]
struct CheckArgs {
    /// A zoo.cfg on this machine, or servers, as host:port,host:port
    #[arg(value_name = "ZOO_CFG|HOSTS", required = true)]
    targets: Vec<String>,
    /// How long a server has to answer
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
}

/// Checks and prints. The exit code says whether the way is free.
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

/// What has a slash in it, or is there, was meant to be a file.
fn is_file(target: &str) -> bool {
    target.contains('/') || target.ends_with(".cfg") || Path::new(target).exists()
}

/// Checks a configuration and its data; tells where the members are.
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
