//! `cargo xtask bench-handovers`: how often a lock changes hands, ours beside Curator's.
//!
//! So many contenders, each with a session of its own, take the same lock and give it back at once. Both
//! libraries do it in one run on the same server, in two settings:
//!
//! - Each contender is a process of its own, as in life (`apart.rs`).
//! - All contenders live in one process, on the same Ironkeeper server, then on the same Apache ZooKeeper. The
//!   libraries take turns in rounds; the table shows medians, and a ratio is the median of the rounds' own:
//!   what is slow for a while is slow for neighbours. Each is a small program (see `measured.rs`).
//!
//! A hand-over is one write, and the server syncs its log for it. On a slow or busy disk that takes most of
//! the time, and is the same for both: `--dir` puts the data of the servers elsewhere, `/dev/shm` for one.
//! With Apache ZooKeeper so does the server, which is why nothing is required there.

mod apart;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::measured::{self, Load, median};
use crate::peers::Cache;
use crate::server::{Program, Server, Setup};
use crate::{ironkeeper, java};

/// Hand-overs each second, beside Curator's on the same Ironkeeper server, in either setting.
const RATIO_MIN: f64 = 2.0;

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
        "| server | contenders | `ironkeeper-recipes` | client CPU for each | Curator | client CPU for each |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    let row = |program: &Program, apart: &str, [ours, curators]: [(f64, f64); 2]| {
        println!(
            "| {} | {} {apart} | {:.0}/s | {:.0} us | {:.0}/s | {:.0} us |",
            program.name(),
            options.contenders,
            ours.0,
            ours.1,
            curators.0,
            curators.1,
        );
    };

    let (server, _dir) = start(&servers[0])?;
    eprintln!("contenders of ours in processes of their own, until the rate has settled:");
    let ours_apart = apart::measure(&server, options.contenders, || Ok(Command::new(&ours)))?;
    eprintln!("contenders of Curator's in processes of their own, until the rate has settled:");
    let curators_apart = apart::measure(&server, options.contenders, curators)?;
    row(
        &servers[0],
        "processes",
        [&ours_apart, &curators_apart].map(|load| (load.per_second(), load.cpu_us())),
    );
    let ratio_apart = ours_apart.per_second() / curators_apart.per_second();
    let cpu_ratio_apart = curators_apart.cpu_us() / ours_apart.cpu_us();
    drop(server);

    let mut ratios = Vec::new();
    for program in &servers {
        let (server, _dir) = start(program)?;
        let mut turns = [Vec::new(), Vec::new()];
        for number in 1..=options.rounds {
            let commands = [Command::new(&ours), curators()?];
            for (turns, mut command) in turns.iter_mut().zip(commands) {
                command
                    .arg(server.address())
                    .args([options.contenders.to_string(), options.seconds.to_string()]);
                let loads = measured::run(&mut command)?;
                let load = loads.into_iter().next().context("it measured nothing")?;
                eprintln!(
                    "round {number} of {} on {}: {:.0}/s",
                    options.rounds,
                    program.name(),
                    load.per_second()
                );
                turns.push(load);
            }
        }
        let figures =
            |of: fn(&Load) -> f64| turns.each_ref().map(|turns| median(turns.iter().map(of)));
        let [ours, curators] = figures(Load::per_second);
        let [of_ours, of_curators] = &turns;
        let by_round = of_ours
            .iter()
            .zip(of_curators)
            .map(|(ours, curators)| ours.per_second() / curators.per_second());
        let by_round: Vec<f64> = by_round.collect();
        let [ours_cpu, curators_cpu] = figures(Load::cpu_us);
        row(program, "in one process", [(ours, ours_cpu), (curators, curators_cpu)]);
        ratios.push((program, by_round, curators_cpu / ours_cpu));
    }
    println!();
    println!(
        "{}: {ratio_apart:.2}x Curator's hand-overs with {} contenders, each a process of its own (at least \
         {RATIO_MIN}x), {cpu_ratio_apart:.1}x for each second of client CPU",
        servers[0].name(),
        options.contenders,
    );
    let mut met = ratio_apart >= RATIO_MIN;
    for (program, by_round, cpu_ratio) in &ratios {
        let ratio = median(by_round.iter().copied());
        let rounds: Vec<String> = by_round.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let is_ours = matches!(program, Program::Ironkeeper(_));
        let wanted = if is_ours { format!(", at least {RATIO_MIN}x") } else { String::new() };
        met &= !is_ours || ratio >= RATIO_MIN;
        println!(
            "{}: {ratio:.2}x with {} contenders in one process (rounds {}{wanted}), {cpu_ratio:.1}x for each \
             second of client CPU",
            program.name(),
            options.contenders,
            rounds.join(" "),
        );
    }
    Ok(met)
}
