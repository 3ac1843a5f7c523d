//! `cargo xtask bench-handovers`: how often a lock changes hands, ours beside Curator's.
//!
//! So many contenders take the same lock and give it back at once. Both libraries do it in one run on the same
//! server, in three settings:
//!
//! - All contenders are of one program and share its client, as the makers of both libraries advise.
//! - All contenders are of one program, each with a session of its own.
//! - Each contender is a program of its own (`apart.rs`).
//!
//! On Ironkeeper twice Curator's rate is required in each. The first two are played on an Apache ZooKeeper as well,
//! where its own time decides and nothing is required. The libraries take turns in rounds; the table shows medians, and
//! a ratio is the median of the rounds' own: what is slow for a while is slow for neighbours. Each is a small
//! program (see `measured.rs`).
//!
//! A hand-over among sessions is one write, and the server syncs its log for it. On a slow or busy disk that takes
//! most of the time, and is the same for both: `--dir` puts the data of the servers elsewhere, `/dev/shm` for one.

mod apart;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::measured::{self, Load, median};
use crate::peers::Cache;
use crate::server::{Program, Server, Setup};
use crate::{ironkeeper, java};

/// Hand-overs each second, beside Curator's on the same server.
const RATIO_MIN: f64 = 2.0;

/// Those of one program: what it is called, and the sessions, as many as contenders if it does not say.
const SETTINGS: [(&str, Option<u32>); 2] =
    [("tasks that share a client", Some(1)), ("tasks with a session each", None)];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The ironkeeper binary to serve; by default the release binary of this tree is built.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// How often each library has its turn on each server.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each turn, after the first ones that are not counted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Who wants the lock.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..))]
    contenders: u32,
    /// The folder to keep the data of the servers in, by default the system's for temporary files.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

/// Runs the rounds and prints the table; `false` when ours is not as far ahead as it has to be.
pub fn run(options: &Options) -> Result<bool> {
    let binary = match &options.server {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => ironkeeper::build()?,
    };
    let cache = Cache::open()?;
    let ours = ironkeeper::build_example("ironkeeper-recipes", "handovers")?;
    let curators = || java::program(&cache, "Handovers", &["-Dironkeeper.interop.log=OFF"]);
    let start = |program: &Program| {
        let dir = match &options.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        }?;
        let server = Server::start(program, Setup::on_free_port()?, dir.path())?;
        anyhow::Ok((server, dir))
    };
    let servers = [Program::Ironkeeper(binary), Program::Apache(cache.apache()?)];
    println!(
        "| server | contenders | `ironkeeper-recipes` | client CPU for each | Curator | client CPU for each | ratio |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    let contenders = options.contenders;
    let mut all_met = true;
    let mut told = Vec::new();
    let mut row = |program: &Program,
                   setting: &str,
                   [ours, curators]: [(f64, f64); 2],
                   by_round: &[f64]| {
        let required = matches!(program, Program::Ironkeeper(_));
        let ratio = median(by_round.iter().copied());
        println!(
            "| {} | {contenders} {setting} | {:.0}/s | {:.0} us | {:.0}/s | {:.0} us | {ratio:.2}x |",
            program.name(),
            ours.0,
            ours.1,
            curators.0,
            curators.1,
        );
        let rounds: Vec<String> = by_round.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let required_text =
            if required { format!(", at least {RATIO_MIN}x required") } else { String::new() };
        told.push(format!(
            "{}, {setting}: rounds {}{required_text}",
            program.name(),
            rounds.join(" ")
        ));
        all_met &= !required || ratio >= RATIO_MIN;
    };

    let (server, _dir) = start(&servers[0])?;
    eprintln!("contenders of ours in processes of their own (eight minutes):");
    let ours_apart = apart::measure(&server, contenders, || Ok(Command::new(&ours)))?;
    eprintln!("contenders of Curator's in processes of their own (eight minutes):");
    let curators_apart = apart::measure(&server, contenders, curators)?;
    let figures = [&ours_apart, &curators_apart].map(|load| (load.per_second(), load.cpu_us()));
    let ratio = ours_apart.per_second() / curators_apart.per_second();
    row(&servers[0], "processes", figures, &[ratio]);
    drop(server);

    for program in &servers {
        for (setting, sessions) in SETTINGS {
            let (server, _dir) = start(program)?;
            let sessions = sessions.unwrap_or(contenders);
            let mut turns = [Vec::new(), Vec::new()];
            for number in 1..=options.rounds {
                let commands = [Command::new(&ours), curators()?];
                for (turns, mut command) in turns.iter_mut().zip(commands) {
                    command.arg(server.address()).args(
                        [contenders, sessions, options.seconds].map(|number| number.to_string()),
                    );
                    let loads = measured::run(&mut command)?;
                    let load = loads.into_iter().next().context("it measured nothing")?;
                    eprintln!(
                        "round {number} of {} on {}, {setting}: {:.0}/s",
                        options.rounds,
                        program.name(),
                        load.per_second()
                    );
                    turns.push(load);
                }
            }
            let figures = turns.each_ref().map(|turns| {
                let middle = |of: fn(&Load) -> f64| median(turns.iter().map(of));
                (middle(Load::per_second), middle(Load::cpu_us))
            });
            let [of_ours, of_curators] = &turns;
            let by_round: Vec<f64> = of_ours
                .iter()
                .zip(of_curators)
                .map(|(ours, curators)| ours.per_second() / curators.per_second())
                .collect();
            row(program, setting, figures, &by_round);
        }
    }
    println!();
    for line in told {
        println!("{line}");
    }
    Ok(all_met)
}
