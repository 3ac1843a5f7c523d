//! `cargo xtask ensemble`: ensembles of real processes under load, while things happen to their members.
//!
//! A [`Scenario`] is played by a [`cast::Cast`]: Ironkeeper alone, Apache alone (which proves the scenario), or
//! both together. [`load`] is the clients' side, [`history`] its judge, [`cluster`] the processes, [`links`] the
//! wires between them. Nothing waits for a fixed time where it can wait for what it wants to see; limits only
//! bound failure.

mod background;
pub(crate) mod cast;
pub(crate) mod cluster;
mod digests;
mod history;
mod links;
pub(crate) mod load;
mod scenarios;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::interop::Tally;
use crate::ironkeeper;
use crate::peers::{Cache, MissingPeer};
use crate::server::Program;
use cast::{Cast, Kind, Programs};
use scenarios::Scenario;

/// Options of `cargo xtask ensemble`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to test; by default the release binary of this tree is built.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Play only this scenario; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<Scenario>,
    /// The members, in the order of their ids: ours, apache or apache38, with `:observer` behind those that do
    /// not vote [default: each scenario has casts of its own]
    #[arg(long, value_name = "LIST")]
    members: Option<Cast>,
    /// Every cast of every scenario, the release line before included.
    #[arg(long)]
    long: bool,
    /// What the load does is drawn from this.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep logs and data even if all is well.
    #[arg(long)]
    keep: bool,
}

/// What a scenario is given.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    cast: Cast,
    programs: &'a Programs,
    dir: PathBuf,
    seed: u64,
}

struct Row {
    scenario: Scenario,
    cast: Cast,
    took: Duration,
    failures: Vec<String>,
    missing: Option<&'static str>,
}

impl Row {
    fn has_foreigners(&self) -> bool {
        self.scenario.all_kinds(&self.cast).0.iter().any(|part| part.kind != Kind::Ours)
    }
}

/// Plays the scenarios and prints a table; false when anything failed.
pub fn run(options: &Options) -> Result<bool> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let cache = Cache::open()?;
    let scenarios: &[Scenario] =
        if options.only.is_empty() { Scenario::value_variants() } else { &options.only };
    let mut plays = Vec::new();
    for &scenario in scenarios {
        let casts = match &options.members {
            Some(cast) => vec![cast.clone()],
            None => scenario.casts(options.long),
        };
        plays.extend(casts.into_iter().map(|cast| (scenario, cast)));
    }
    let wants_ours =
        plays.iter().any(|(scenario, cast)| scenario.needs_ours() || cast.has(Kind::Ours));
    let mut programs = if wants_ours {
        let binary = match &options.server {
            Some(given) => fs::canonicalize(given)?,
            None => ironkeeper::build()?,
        };
        Programs::only(Kind::Ours, Program::Ironkeeper(binary))
    } else {
        Programs::default()
    };
    let work = tempfile::Builder::new().prefix("ironkeeper-ensemble-").tempdir()?;
    let mut rows = Vec::new();
    for (number, (scenario, cast)) in plays.into_iter().enumerate() {
        let dir = work.path().join(format!("{number}-{}", scenario.name()));
        let mut row = play(scenario, cast, &mut programs, &cache, &dir, options.seed);
        // Apache's members have races of their own. What is ours to blame shows again.
        if !row.failures.is_empty() && row.has_foreigners() {
            println!("   FAILED, and played once more, because not all of the members are ours");
            let dir = dir.with_extension("again");
            row = play(scenario, row.cast, &mut programs, &cache, &dir, options.seed);
        }
        rows.push(row);
    }
    let good = summarise(&rows, in_ci);
    if !good || options.keep {
        println!("logs and data are kept in {}", work.keep().display());
    }
    Ok(good)
}

fn play(
    scenario: Scenario,
    cast: Cast,
    programs: &mut Programs,
    cache: &Cache,
    dir: &Path,
    seed: u64,
) -> Row {
    println!("== {} with {cast}", scenario.name());
    let start = Instant::now();
    let mut missing = None;
    let result = programs.fetch(&scenario.all_kinds(&cast), cache).and_then(|()| {
        fs::create_dir_all(dir)?;
        scenario.play(&Stage { cast: cast.clone(), programs, dir: dir.to_owned(), seed })
    });
    let failures = match result {
        Ok(tally) => {
            println!("   {tally}");
            tally.failures
        }
        Err(why) => match why.downcast_ref::<MissingPeer>() {
            Some(peer) => {
                println!("   not run: {peer}");
                missing = Some(peer.peer);
                Vec::new()
            }
            None => {
                println!("   broken: {why:#}");
                vec![format!("{why:#}")]
            }
        },
    };
    Row { scenario, cast, took: start.elapsed(), failures, missing }
}

/// Prints the closing table. A missing peer is a failure in CI only.
fn summarise(rows: &[Row], in_ci: bool) -> bool {
    println!("\n{:<10} {:<32} {:>8}  result", "scenario", "members", "seconds");
    let mut good = true;
    for row in rows {
        let result = match row.missing {
            Some(peer) => {
                good &= !in_ci;
                format!("{}: {peer} is missing", if in_ci { "FAILED" } else { "skipped" })
            }
            None if row.failures.is_empty() => "ok".to_owned(),
            None => {
                good = false;
                format!("FAILED ({})", row.failures.len())
            }
        };
        let seconds = row.took.as_secs_f64();
        println!(
            "{:<10} {:<32} {seconds:>8.1}  {result}",
            row.scenario.name(),
            row.cast.to_string()
        );
    }
    println!("ensemble: {}", if good { "all good" } else { "FAILED" });
    good
}

/// What a load's report means for a scenario, with the members' own complaints.
fn judge(cluster: &cluster::Cluster, load: load::Load) -> Result<Tally> {
    let mut report = load.finish()?;
    println!(
        "   {} writes acknowledged, {} unknown, {} reconnects",
        report.acknowledged, report.unknown, report.reconnects
    );
    for (port, what) in report.stale {
        // Seen once, with Apache's members. It may be that an Apache leader answers `sync` before it has applied
        // what a follower has told its client already; it is shown, and not held against us.
        if cluster.was_apache(port) {
            println!("   on an Apache server: {what}");
        } else {
            report.failures.push(what);
        }
    }
    let mut tally = Tally { passed: 1, failures: report.failures, ..Tally::default() };
    tally.failures.extend(digests::disagreements(cluster));
    if !tally.failures.is_empty() {
        tally.passed = 0;
    }
    Ok(tally)
}
