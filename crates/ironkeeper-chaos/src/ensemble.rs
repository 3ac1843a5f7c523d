//! `cargo xtask ensemble`: runs ensembles of real processes under load while faults are injected.
//!
//! A [`Scenario`] runs on an ensemble described by a [`Membership`]: Ironkeeper alone, Apache alone
//! (which validates the scenario), or both together. [`load`] is the clients' side, [`history`] the
//! checker of its results, [`ironkeeper_peers::cluster`] the processes, [`ironkeeper_peers::links`]
//! the connections between them. A scenario waits for conditions instead of fixed times; time
//! limits only bound failures.

mod background;
mod digests;
mod history;
pub mod load;
mod scenarios;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use ironkeeper_peers::cache::{Cache, MissingPeer};
use ironkeeper_peers::cluster::Cluster;
use ironkeeper_peers::server::Program;
use ironkeeper_steps::builds;
use ironkeeper_steps::count::Count;
use ironkeeper_steps::slots::Slots;
use ironkeeper_steps::tally::Tally;

use ironkeeper_peers::members::{Kind, Membership, Programs};
use scenarios::Scenario;

/// Options of `cargo xtask ensemble`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to test [default: build this working tree, with all assertions]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Run only this scenario; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<Scenario>,
    /// The members in the order of their ids: ours, apache or apache38, followed by `:observer` for
    /// observers [default: each scenario has its own ensembles]
    #[arg(long, value_name = "LIST")]
    members: Option<Membership>,
    /// Run every ensemble of every scenario, including the previous Apache release line.
    #[arg(long)]
    long: bool,
    /// The number of scenarios that run at a time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    at_once: usize,
    /// The seed of the load.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep logs and data even if all scenarios pass.
    #[arg(long)]
    keep: bool,
}

/// The context of one scenario run.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    membership: Membership,
    programs: &'a Programs,
    dir: PathBuf,
    seed: u64,
}

struct Row {
    scenario: Scenario,
    membership: Membership,
    took: Duration,
    failures: Vec<String>,
    missing: Option<&'static str>,
}

/// Runs the scenarios and prints a table; returns `false` when any of them failed.
pub fn run(options: &Options) -> Result<bool> {
    Ok(play(options, &Slots::new(options.at_once))?.is_good())
}

/// Runs the scenarios, at most as many at a time as `slots` has slots, and prints a table.
pub fn play(options: &Options, slots: &Slots) -> Result<Count> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let cache = Cache::open()?;
    let scenarios: &[Scenario] =
        if options.only.is_empty() { Scenario::value_variants() } else { &options.only };
    let mut plays = Vec::new();
    for &scenario in scenarios {
        let memberships = match &options.members {
            Some(membership) => vec![membership.clone()],
            None => scenario.memberships(options.long),
        };
        plays.extend(memberships.into_iter().map(|membership| (scenario, membership)));
    }
    let wants_ours = plays
        .iter()
        .any(|(scenario, membership)| scenario.needs_ours() || membership.has(Kind::Ours));
    let mut programs = if wants_ours {
        let binary = match &options.server {
            Some(given) => fs::canonicalize(given)?,
            None => builds::build_checked()?,
        };
        Programs::only(Kind::Ours, Program::Ironkeeper(binary))
    } else {
        Programs::default()
    };
    let work = tempfile::Builder::new().prefix("ironkeeper-ensemble-").tempdir()?;
    let members = plays.iter().flat_map(|(scenario, membership)| scenario.all_kinds(membership).0);
    let missing = programs.fetch(&Membership(members.collect()), &cache).err();
    let numbers: Vec<usize> = (0..plays.len()).collect();
    let mut rows = slots.run(&numbers, |number| {
        let (scenario, membership) = &plays[*number];
        let dir = work.path().join(format!("{number}-{}", scenario.name()));
        let row = play_one(*scenario, membership, &programs, missing.as_ref(), &dir, options.seed);
        Ok((*number, row))
    })?;
    rows.sort_by_key(|(number, _)| *number);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let (table, count) = summarise(&rows, in_ci);
    print!("{table}");
    for row in rows.iter().filter(|row| !row.failures.is_empty()) {
        let (scenario, membership) = (row.scenario.name(), &row.membership);
        println!("to run it again: cargo xtask ensemble --only {scenario} --members {membership}");
    }
    if !count.is_good() || options.keep {
        println!("logs and data are kept in {}", work.keep().display());
    }
    Ok(count)
}

fn play_one(
    scenario: Scenario,
    membership: &Membership,
    programs: &Programs,
    missing: Option<&anyhow::Error>,
    dir: &Path,
    seed: u64,
) -> Row {
    let title = format!("{} with {membership}", scenario.name());
    println!("== {title}");
    let start = Instant::now();
    let row = |failures, missing| Row {
        scenario,
        membership: membership.clone(),
        took: start.elapsed(),
        failures,
        missing,
    };
    if let Some(why) = missing.filter(|_| !programs.have(&scenario.all_kinds(membership))) {
        println!("== {title}: not run: {why:#}");
        return match why.downcast_ref::<MissingPeer>() {
            Some(peer) => row(Vec::new(), Some(peer.peer)),
            None => row(vec![format!("{why:#}")], None),
        };
    }
    let result = fs::create_dir_all(dir).map_err(Into::into).and_then(|()| {
        scenario.play(&Stage {
            membership: membership.clone(),
            programs,
            dir: dir.to_owned(),
            seed,
        })
    });
    let failures = match result {
        Ok(tally) => {
            println!("== {title}: {tally}");
            tally.failures
        }
        Err(why) => {
            println!("== {title}: broken: {why:#}");
            vec![format!("{why:#}")]
        }
    };
    row(failures, None)
}

/// Returns the final table and its sum. A missing peer is a failure in CI only.
fn summarise(rows: &[Row], in_ci: bool) -> (String, Count) {
    let mut text = format!("\n{:<10} {:<36} {:>8}  result\n", "scenario", "members", "seconds");
    let mut count = Count::default();
    for row in rows {
        let result = match row.missing {
            Some(peer) => {
                count.failed += usize::from(in_ci);
                format!("{}: {peer} is missing", if in_ci { "FAILED" } else { "skipped" })
            }
            None if row.failures.is_empty() => {
                count.passed += 1;
                "ok".to_owned()
            }
            None => {
                count.failed += 1;
                format!("FAILED ({})", row.failures.len())
            }
        };
        text += &format!(
            "{:<10} {:<36} {:>8.1}  {result}\n",
            row.scenario.name(),
            row.membership.to_string(),
            row.took.as_secs_f64()
        );
    }
    text += &format!("ensemble: {}\n", if count.is_good() { "all good" } else { "FAILED" });
    (text, count)
}

/// Returns the result of a scenario from its load's report and the members' digests.
fn judge(cluster: &Cluster, load: load::Load) -> Result<Tally> {
    let mut report = load.finish()?;
    cluster.tell(&format!(
        "{} writes acknowledged, {} unknown, {} reconnects",
        report.acknowledged, report.unknown, report.reconnects
    ));
    for (port, what) in report.stale {
        // Observed once, with Apache's members. An Apache leader replies to the `sync` of its own
        // clients like to a read, from the state it has applied; a follower may have applied more
        // and may have replied to its clients. So this is accepted on members that have led as
        // Apache servers. All other members wait for a reply of the leader, which may be an
        // Ironkeeper server.
        if cluster.has_led_as_apache(port) {
            cluster.tell(&format!("on an Apache server: {what}"));
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
