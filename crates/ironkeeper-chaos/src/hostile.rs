//! `cargo xtask hostile`: measures what one hostile client or peer can do to other clients.
//!
//! Each [`attack::Attack`] runs on a fresh server, or on an ensemble of three, while a
//! [`victim::Victim`] measures its own requests. The table shows the victim's latencies, the
//! server's memory before, during and after the attack, and the number of lines in its log, and
//! compares them with [`limits::Limits`]. [`fuzz`] sends random and corrupted requests and packets
//! instead.

mod attack;
mod attacks;
mod client;
mod fuzz;
mod limits;
mod log;
mod memory;
mod non_member;
mod op;
mod round;
mod row;
mod target;
mod victim;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use ironkeeper_steps::builds;
use ironkeeper_steps::count::Count;

use attack::Attack;
use round::{Build, Times};
use row::{HEADER, Row};
use target::Size;

/// Options of `cargo xtask hostile`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to attack; may be repeated: then the binaries take turns, and the
    /// limits apply to the last one [default: build this working tree, with all assertions]
    #[arg(long, value_name = "PATH")]
    server: Vec<PathBuf>,
    /// Run only attacks whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the attacks without running them.
    #[arg(long)]
    list: bool,
    /// Smaller attacks, with limits that hold on a busy machine.
    #[arg(long)]
    short: bool,
    /// The length of an attack [default: 5, or 1 with --short]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// The time after an attack until memory is measured [default: 60; with --short up to 10, until
    /// it has shrunk]
    #[arg(long, value_name = "SECONDS")]
    after: Option<u64>,
    /// Send this many random and corrupted requests and packets instead of running attacks.
    #[arg(long, value_name = "N")]
    fuzz: Option<u64>,
    /// The seed of the requests and packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first conversation, to repeat the end of a run.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Keep logs and data even if all attacks pass.
    #[arg(long)]
    keep: bool,
}

/// The number of requests and packets that `--short` sends after the attacks.
const FUZZ_SHORT: u64 = 200_000;

/// Runs the attacks and prints a table; returns `false` when a limit was exceeded.
pub fn run(options: &Options) -> Result<bool> {
    if options.list {
        attack::all().for_each(|attack| println!("{:32} {}", attack.name, attack.about));
        return Ok(true);
    }
    Ok(play(options)?.is_good())
}

/// Runs the attacks and returns their counts; the fuzz run counts as one of them.
pub fn play(options: &Options) -> Result<Count> {
    let builds = builds(&options.server)?;
    let work = tempfile::Builder::new().prefix("ironkeeper-hostile-").tempdir()?;
    let judged = builds.last().context("there is a build")?;
    let mut count = Count::default();
    let mut note = |is_good: bool| match is_good {
        true => count.passed += 1,
        false => count.failed += 1,
    };
    if options.fuzz.is_none() {
        let rows = attack_all(options, &builds, work.path())?;
        println!("\n{HEADER}");
        rows.iter().for_each(|row| println!("{row}"));
        rows.iter().filter(|row| row.build == judged.name).for_each(|row| note(row.is_good()));
    }
    if let Some(requests) = fuzz_requests(options) {
        let (seed, from) = (options.seed, options.from);
        let (size, after) = (size(options), times(options).after);
        let plan = fuzz::Plan { requests, seed, from, size, after };
        note(fuzz::run(&plan, judged, work.path())?);
    }
    println!("\n{count}");
    if !count.is_good() || options.keep {
        println!("logs and data are in {}", work.keep().display());
    }
    Ok(count)
}

fn fuzz_requests(options: &Options) -> Option<u64> {
    options.fuzz.or((options.short && options.only.is_empty()).then_some(FUZZ_SHORT))
}

fn size(options: &Options) -> Size {
    if options.short { Size::Short } else { Size::Full }
}

fn times(options: &Options) -> Times {
    let (attack, after) = if options.short { (1, 10) } else { (5, 60) };
    Times {
        attack: Duration::from_secs(options.seconds.unwrap_or(attack)),
        after: Duration::from_secs(options.after.unwrap_or(after)),
    }
}

fn attack_all(options: &Options, builds: &[Build], work: &Path) -> Result<Vec<Row>> {
    let (size, times) = (size(options), times(options));
    let wanted: Vec<&'static Attack> = attack::all()
        .filter(|attack| {
            options.only.is_empty() || options.only.iter().any(|part| attack.name.contains(part))
        })
        .collect();
    ensure!(!wanted.is_empty(), "no attack has such a name; --list prints them");
    let mut rounds = Vec::new();
    for (at, attack) in wanted.iter().enumerate() {
        for build in builds {
            eprintln!("{}/{} {} {}", at + 1, wanted.len(), attack.name, build.name);
            let dir = work.join(format!("{:02}-{}", at + 1, build.name));
            let round = round::run(attack, build, size, times, &dir);
            rounds.push((attack.name, build.name.clone(), round));
        }
    }
    let rows = rounds.into_iter().map(|(attack, build, round)| {
        round.and_then(|rest| rest.join().ok().context("a panic")).unwrap_or_else(|why| Row {
            attack,
            build,
            failures: vec![format!("{why:#}")],
            ..Row::default()
        })
    });
    Ok(rows.collect())
}

fn builds(given: &[PathBuf]) -> Result<Vec<Build>> {
    if given.is_empty() {
        return Ok(vec![Build { name: "this".to_owned(), binary: builds::build_checked()? }]);
    }
    let build = |path: &PathBuf| -> Result<Build> {
        let binary = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Build { name, binary })
    };
    let mut builds = given.iter().map(build).collect::<Result<Vec<Build>>>()?;
    // Two builds of one name are distinguished by their order.
    if builds.iter().any(|build| builds.iter().filter(|b| b.name == build.name).count() > 1) {
        for (at, build) in builds.iter_mut().enumerate() {
            build.name = format!("{}-{}", build.name, at + 1);
        }
    }
    Ok(builds)
}
