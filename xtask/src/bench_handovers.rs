//! `cargo xtask bench-handovers`: how often a lock changes hands, ours beside Curator's.
//!
//! So many contenders take the same lock and give it back at once. Both libraries do it on the same server, in three
//! settings:
//!
//! - All contenders are of one program and share its client, as the makers of both libraries advise.
//! - All contenders are of one program, each with a session of its own.
//! - Each contender is a program of its own.
//!
//! On Ironkeeper twice Curator's rate is required in each. The first two are played on an Apache ZooKeeper as well,
//! where its own time decides and nothing is required.
//!
//! A hand-over among sessions is one write, and the server syncs its log for it. How long that takes changes within
//! seconds on a shared disk, by more than the libraries differ. So both are there at the same time, each at a
//! lock of its own, and take turns of half a second: one stands still while the other goes on (`crowd.rs`). The table
//! shows medians, and a ratio is the median of those of neighbouring turns. Nobody is counted before it is warm: a
//! virtual machine of which each has its turn every thirty-second time takes about four minutes until
//! everything in it is compiled, and gets faster by half in the last of them.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::crowd::Crowd;
use crate::measured::{Load, median};
use crate::peers::Cache;
use crate::server::{Program, Server, Setup};
use crate::{ironkeeper, java};

/// Hand-overs each second, beside Curator's on the same server.
const RATIO_MIN: f64 = 2.0;
const TURN: Duration = Duration::from_millis(500);
/// Ours has nothing to compile.
const OURS_WARM: Duration = Duration::from_secs(5);

/// How contenders are dealt out.
struct Setting {
    name: &'static str,
    /// Each of them a process, or all in one.
    apart: bool,
    /// All with one session, or each with its own.
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
    /// The ironkeeper binary to serve; by default the release binary of this tree is built.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// How often each library has its turn in each setting.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Only the settings with this in their name, on Ironkeeper alone: `share`, `session`, `processes`.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Who wants the lock.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..))]
    contenders: u32,
    /// The folder to keep the data of the servers in, by default the system's for temporary files.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

/// Plays all settings and prints the table; `false` when ours is not as far ahead as it has to be.
pub fn run(options: &Options) -> Result<bool> {
    let wanted = |setting: &&Setting| {
        options.only.as_ref().is_none_or(|part| setting.name.contains(part.as_str()))
    };
    ensure!(SETTINGS.iter().any(|setting| wanted(&setting)), "no setting has that in its name");
    let binary = match &options.server {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => ironkeeper::build()?,
    };
    let cache = Cache::open()?;
    let example = ironkeeper::build_example("ironkeeper-recipes", "handovers")?;
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
            // Two libraries with a session for each contender are more than one host may have by default.
            let setup = Setup::on_free_port()?.set("maxClientCnxns", 0);
            let running = Server::start(&program, setup, dir.path())?;
            // One after the other: a session lasts only so long while its process stands still.
            let mut theirs = crowd(options, setting, &running, "/curator", curators)?;
            thread::sleep(setting.curator_warm);
            theirs.halt()?;
            let mut mine = crowd(options, setting, &running, "/ours", ours)?;
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

/// The contenders of one library, at work on a lock of their own.
fn crowd(
    options: &Options,
    setting: &Setting,
    server: &Server,
    path: &str,
    mut program: impl FnMut() -> Result<Command>,
) -> Result<Crowd> {
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
    Crowd::start(commands)
}
