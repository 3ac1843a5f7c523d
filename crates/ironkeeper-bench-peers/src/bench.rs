//! `cargo xtask bench`: measures Apache ZooKeeper and Ironkeeper side by side and prints one table.
//!
//! Both servers run on this machine with the same `zoo.cfg` and with fsync; `ironkeeper bench`
//! generates the load for both. A disk may be slow for a minute, which must not decide a ratio.
//! Therefore each round starts both servers with an empty database and runs every load on one
//! server and directly afterwards on the other, while the first is idle. A ratio is computed from
//! two such neighbours, and the table shows medians over the rounds. The measurements with a big
//! tree ([`big_tree`]) run last.
//!
//! With `--ensemble N`, ensembles of N members of each server are measured instead, and an etcd
//! cluster of the same size ([`ensemble`]).

mod big_tree;
mod ensemble;
mod etcd;
mod load;
mod machine;
mod table;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use ironkeeper_peers::cache::Cache;
use ironkeeper_peers::ports;
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_steps::builds;

use load::{Generator, Target};
use table::{Measures, Side};

/// The heap size that Apache's start script gives its server.
const APACHE_HEAP: &str = "-Xmx1000m";
/// The time a started server has for its remaining start-up work before it counts as idle.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The ironkeeper binary to measure [default: build the release binary of this working tree]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Measure only this measurement; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(table::names()))]
    only: Vec<String>,
    /// The servers to measure.
    #[arg(long, value_enum, default_value_t = Peer::Both)]
    peer: Peer,
    /// Measure this ironkeeper binary instead of Apache; ratios refer to it.
    #[arg(long, value_name = "PATH", conflicts_with = "peer")]
    before: Option<PathBuf>,
    /// Measure ensembles of N members instead of single servers, and etcd if it is available.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    ensemble: Option<u8>,
    /// One short round with a smaller tree: a quick check, not a result.
    #[arg(long)]
    quick: bool,
    /// Rounds of every measurement [default: 5, ensembles: 3; quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Seconds of each load [default: 3, ensembles: 5; quick: 2]
    #[arg(long)]
    seconds: Option<f64>,
    /// Nodes of the big tree [default: 1000000; quick: 100000]
    #[arg(long)]
    nodes: Option<u32>,
    /// Directory for the servers' data, on the disk to measure [default: next to this program]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Print the result as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Ours,
    Apache,
    Both,
}

/// The parameters of a whole run.
struct Plan {
    sides: Vec<(Side, Program)>,
    generator: Generator,
    only: Vec<String>,
    rounds: u32,
    seconds: f64,
    warm_up_seconds: f64,
    nodes: u32,
    /// The number of members if ensembles are measured.
    ensemble: Option<u8>,
    /// The load average before the servers were started: another load would distort the figures.
    load_before: Option<f64>,
    /// The parent directory of the servers' directories; removed at the end.
    dir: tempfile::TempDir,
}

/// Runs the measurements and prints the table; returns `false` when a requirement is not met.
pub fn run(options: &Options) -> Result<bool> {
    let plan = Plan::of(options)?;
    let mut measures = Measures::default();
    if let Some(members) = plan.ensemble {
        ensemble::run(&plan, members, &mut measures);
    } else {
        run_single(&plan, &mut measures);
    }
    let note = machine::note(&plan);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&measures.to_json(&note))?);
    } else {
        println!("{}\n\n{}", measures.to_markdown(), note.join("; "));
    }
    for failure in measures.failures() {
        eprintln!("failed: {failure}");
    }
    Ok(measures.all_met())
}

/// Runs all measurements on single servers.
fn run_single(plan: &Plan, measures: &mut Measures) {
    if plan.wants_load() {
        for round in 1..=plan.rounds {
            eprintln!("round {round} of {}", plan.rounds);
            let result = load_round(plan, round, measures);
            measures.note_failure(result.with_context(|| format!("round {round}")));
        }
    }
    if plan.wants(&big_tree::NAMES) {
        big_tree::run(plan, measures);
    }
}

impl Plan {
    fn of(options: &Options) -> Result<Plan> {
        if let Some(name) = options
            .only
            .iter()
            .find(|name| table::is_of_ensembles(name) != options.ensemble.is_some())
        {
            bail!(
                "{name} is measured {} --ensemble",
                if options.ensemble.is_some() { "without" } else { "with" }
            );
        }
        let found =
            |path: &PathBuf| path.canonicalize().with_context(|| format!("no {}", path.display()));
        let binary = match &options.server {
            Some(path) => found(path)?,
            None => builds::build()?,
        };
        let mut sides = Vec::new();
        if let Some(before) = &options.before {
            sides.push((Side::Before, Program::Ironkeeper(found(before)?)));
        } else if options.peer != Peer::Ours {
            sides.push((Side::Apache, Program::Apache(Cache::open()?.apache()?)));
        }
        if options.peer != Peer::Apache {
            sides.push((Side::Ironkeeper, Program::Ironkeeper(binary.clone())));
        }
        let (rounds, seconds, warm_up_seconds, nodes) = match (options.quick, options.ensemble) {
            (true, _) => (1, 2.0, 4.0, 100_000),
            (false, None) => (5, 3.0, 10.0, 1_000_000),
            // Several JVMs share the processors: each needs longer until it runs at full speed.
            (false, Some(_)) => (3, 5.0, 30.0, 1_000_000),
        };
        // Only a JVM gets faster while it runs.
        let warm_up_seconds = if options.before.is_some() { 1.0 } else { warm_up_seconds };
        let parent = match &options.dir {
            Some(dir) => dir.clone(),
            // The build directory is on a real disk more often than the directory for temporary
            // files.
            None => {
                std::env::current_exe()?.parent().context("a program is in a folder")?.to_owned()
            }
        };
        Ok(Plan {
            sides,
            generator: Generator::new(binary),
            only: options.only.clone(),
            rounds: options.rounds.unwrap_or(rounds),
            seconds: options.seconds.unwrap_or(seconds),
            warm_up_seconds,
            nodes: options.nodes.unwrap_or(nodes),
            ensemble: options.ensemble,
            load_before: machine::load_average(),
            dir: tempfile::Builder::new()
                .prefix("bench-")
                .tempdir_in(&parent)
                .with_context(|| format!("cannot make a folder in {}", parent.display()))?,
        })
    }

    fn wants(&self, names: &[&str]) -> bool {
        self.only.is_empty() || names.iter().any(|name| self.only.iter().any(|only| only == name))
    }

    fn wants_load(&self) -> bool {
        self.wants(&["empty"]) || load::LOADS.iter().any(|load| self.wants(&[load.name]))
    }

    /// Returns the `zoo.cfg` of a server.
    fn setup(&self, program: &Program) -> Result<Setup> {
        let setup = Setup::on_port(ports::one()?).set("maxClientCnxns", 0);
        Ok(match program {
            Program::Apache(_) => setup.jvm_flag(APACHE_HEAP),
            Program::Ironkeeper(_) => setup,
        })
    }
}

/// Starts both servers, runs every selected load on them and stops them. The order of the servers
/// alternates from round to round.
fn load_round(plan: &Plan, round: u32, measures: &mut Measures) -> Result<()> {
    let wanted: Vec<_> = load::LOADS.iter().filter(|load| plan.wants(&[load.name])).collect();
    let dir = tempfile::tempdir_in(plan.dir.path())?;
    let mut servers = Vec::new();
    for (side, program) in &plan.sides {
        let dir = dir.path().join(side.short());
        let server = Server::start(program, plan.setup(program)?, &dir)?;
        if plan.wants(&["empty"]) {
            thread::sleep(SETTLE);
            measures.add("empty", *side, resident_bytes(&server)? as f64);
        }
        if !wanted.is_empty() {
            // A JVM compiles while it runs: both servers get the same time to reach their steady
            // state.
            plan.generator.warm_up(&Target::of([&server])?, plan.warm_up_seconds)?;
        }
        servers.push((*side, server));
    }
    if round.is_multiple_of(2) {
        servers.reverse();
    }
    for load in wanted {
        for (side, server) in &servers {
            // A load that fails does not end the other loads, unless the server has terminated.
            let target = Target::of([server])?;
            let result = plan.generator.measure(&target, load, plan.seconds, *side, measures);
            measures.note_failure(result.with_context(|| {
                format!("{} on {side}, whose log ends:\n{}\n", load.name, server.log_tail(10))
            }));
        }
    }
    for (_, server) in &mut servers {
        server.stop()?;
    }
    Ok(())
}

/// Returns the resident memory of a server's process.
fn resident_bytes(server: &Server) -> Result<u64> {
    resident_bytes_of(server.pid().context("the server is not running")?)
}

fn resident_bytes_of(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .context("memory is read from /proc, which only Linux has")?;
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    match kib {
        Some(kib) => Ok(kib * 1024),
        None => bail!("the server has no resident memory; did it end?"),
    }
}
