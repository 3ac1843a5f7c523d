//! `cargo xtask bench-handovers`: measures lock handovers per second, `ironkeeper-recipes` beside
//! Curator.
//!
//! N contenders repeatedly acquire the same lock and release it at once. Both libraries run on the
//! same server, in three settings:
//!
//! - All contenders are in one process and share its client, as the documentation of both libraries
//!   recommends.
//! - All contenders are in one process, each with its own session.
//! - Each contender is a process of its own.
//!
//! On Ironkeeper twice Curator's rate is required in each setting. The first two settings also run
//! on Apache ZooKeeper, where the server dominates the time and nothing is required.
//!
//! A handover between sessions is one write, for which the server syncs its log. On a shared disk
//! the time of a sync changes within seconds by more than the libraries differ. Therefore the
//! processes of both libraries exist at the same time, each library with its own lock, and run in
//! alternating turns of half a second: one library is stopped while the other runs
//! (`contenders.rs`). The table shows medians; a ratio is the median of the ratios of neighbouring
//! turns. No turn is counted before the process is warm: of 32 JVMs in which the lock rotates, each
//! takes about four minutes until all of its code is compiled, and its rate rises by half in the
//! last of these minutes.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ironkeeper_peers::cache::Cache;
use ironkeeper_peers::java;
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_steps::builds;

use crate::contenders::Contenders;
use crate::measured::{Load, median};

/// The required ratio of handovers per second to Curator's on the same server.
const RATIO_MIN: f64 = 2.0;
const TURN: Duration = Duration::from_millis(500);
/// Rust has nothing to compile at run time.
const OURS_WARM: Duration = Duration::from_secs(5);

/// The distribution of contenders over processes and sessions.
struct Setting {
    name: &'static str,
    /// Whether each contender is a process of its own; otherwise all are in one process.
    apart: bool,
    /// The number of sessions of a process with this many contenders: one, or one for each
    /// contender.
    sessions: fn(u32) -> u32,
    curator_warm: Duration,
    on_apache: bool,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "tasks that share a client",
        apart: false,
        sessions: |_| 1,
        curator_warm: Duration::from_secs(45),
        on_apache: true,
    },
    Setting {
        name: "tasks with a session each",
        apart: false,
        sessions: |contenders| contenders,
        curator_warm: Duration::from_secs(45),
        on_apache: true,
    },
    Setting {
        name: "processes",
        apart: true,
        sessions: |_| 1,
        curator_warm: Duration::from_secs(360),
        on_apache: false,
    },
];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The ironkeeper binary to serve [default: build the release binary of this working tree]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The number of turns of each library in each setting.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Run only the settings whose names contain this, on Ironkeeper alone: `share`, `session`,
    /// `processes`.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// The number of contenders for the lock.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..))]
    contenders: u32,
    /// The directory for the data of the servers [default: the system's for temporary files]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

/// Runs all settings and prints the table; returns `false` when a required ratio is not reached.
pub fn run(options: &Options) -> Result<bool> {
    let wanted = |setting: &&Setting| {
        options.only.as_ref().is_none_or(|part| setting.name.contains(part.as_str()))
    };
    ensure!(SETTINGS.iter().any(|setting| wanted(&setting)), "no setting has that in its name");
    let binary = match &options.server {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => builds::build()?,
    };
    let cache = Cache::open()?;
    let example = builds::build_example("ironkeeper-recipes", "handovers")?;
    let ours = || Ok(Command::new(&example));
    let curators = || java::program(&cache, "Handovers", &["-Dironkeeper.interop.log=OFF"]);
    println!(
        "| server | {} contenders | `ironkeeper-recipes` | client CPU for each | Curator | client CPU for each | ratio |",
        options.contenders
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    let mut all_met = true;
    let mut told = Vec::new();
    for program in [Program::Ironkeeper(binary), Program::Apache(cache.apache()?)] {
        let is_ours = matches!(program, Program::Ironkeeper(_));
        let is_played = |setting: &&Setting| match is_ours {
            true => wanted(setting),
            false => options.only.is_none() && setting.on_apache,
        };
        for setting in SETTINGS.iter().filter(is_played) {
            let (name, server) = (setting.name, program.name());
            eprintln!("{server}, {name}: Curator gets warm ({:?})", setting.curator_warm);
            let dir = match &options.dir {
                Some(dir) => tempfile::tempdir_in(dir),
                None => tempfile::tempdir(),
            }?;
            // Two libraries with a session for each contender exceed the default limit of
            // connections per host.
            let setup = Setup::on_free_port()?.set("maxClientCnxns", 0);
            let running = Server::start(&program, setup, dir.path())?;
            // Curator warms up first, then ours: a session expires if its process is stopped for
            // too long.
            let mut theirs = contenders(options, setting, &running, "/curator", curators)?;
            thread::sleep(setting.curator_warm);
            theirs.halt()?;
            let mut mine = contenders(options, setting, &running, "/ours", ours)?;
            thread::sleep(OURS_WARM);
            mine.halt()?;
            let mut turns: Vec<[Load; 2]> = Vec::new();
            for _ in 0..options.turns {
                turns.push([mine.take_turn(&running, TURN)?, theirs.take_turn(&running, TURN)?]);
            }
            let middle = |of: &dyn Fn(&[Load; 2]) -> f64| median(turns.iter().map(of));
            let ratio_of = |[mine, theirs]: &[Load; 2]| mine.per_second() / theirs.per_second();
            let ratio = middle(&ratio_of);
            println!(
                "| {server} | {name} | {:.0}/s | {:.0} us | {:.0}/s | {:.0} us | {ratio:.2}x |",
                middle(&|turn| turn[0].per_second()),
                middle(&|turn| turn[0].cpu_us()),
                middle(&|turn| turn[1].per_second()),
                middle(&|turn| turn[1].cpu_us()),
            );
            let mut ratios: Vec<f64> = turns.iter().map(ratio_of).collect();
            ratios.sort_by(f64::total_cmp);
            let quarter = ratios.len() / 4;
            let required =
                if is_ours { format!(", at least {RATIO_MIN}x required") } else { String::new() };
            told.push(format!(
                "{server}, {name}: half of the turns from {:.2}x to {:.2}x{required}",
                ratios[quarter],
                ratios[ratios.len() - 1 - quarter]
            ));
            all_met &= !is_ours || ratio >= RATIO_MIN;
        }
    }
    println!();
    for line in told {
        println!("{line}");
    }
    Ok(all_met)
}

/// Starts the contenders of one library on their own lock.
fn contenders(
    options: &Options,
    setting: &Setting,
    server: &Server,
    path: &str,
    mut program: impl FnMut() -> Result<Command>,
) -> Result<Contenders> {
    let (processes, each) = match setting.apart {
        true => (options.contenders, 1),
        false => (1, options.contenders),
    };
    let mut commands = Vec::new();
    for _ in 0..processes {
        let mut command = program()?;
        command.arg(server.address()).arg(path);
        command.args([each, (setting.sessions)(each)].map(|number| number.to_string()));
        commands.push(command);
    }
    Contenders::start(commands)
}
