//! `cargo xtask interop`: foreign software against a standalone server, and some of it against three members.
//!
//! Each [`Suite`] runs one foreign program, unchanged, against Ironkeeper or against Apache ZooKeeper. What a
//! suite demands is written down in `interop/` and was recorded from Apache (`--peer apache --bless`), so a
//! run against Ironkeeper alone is a comparison with Apache, and a run against Apache checks the record.

mod c_client;
mod client;
mod driver;
mod ensemble;
mod files;
mod java;
mod kazoo;
mod own_tests;
mod recipe_tests;
mod recipes;
mod rust_client;
mod shell;
mod shell_session;
mod tally;
mod transcript;
mod zkcli;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::ironkeeper;
use crate::peers::{Cache, MissingPeer};
use crate::server::{Program, Server, Setup};

pub use tally::Tally;

/// Options of `cargo xtask interop`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to test; by default the release binary of this tree is built.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Run only this suite; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<Suite>,
    /// The server to run against.
    #[arg(long, value_enum, default_value_t = Peer::Ours)]
    peer: Peer,
    /// The suites that are run only when asked for as well.
    #[arg(long)]
    long: bool,
    /// Record what Apache does as what is expected, instead of comparing; needs `--peer apache`.
    #[arg(long)]
    bless: bool,
    /// Keep the logs of servers and drivers even if all is well.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Ours,
    Apache,
    Both,
}

/// One foreign program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Apache's shell, every command.
    Zkcli,
    /// Our own shell, compared with Apache's.
    Shell,
    /// Apache's Java client.
    Java,
    /// Curator's framework and recipes.
    Curator,
    /// The C client: cli_mt and a program against libzookeeper_mt.
    C,
    /// zookeeper-client from crates.io.
    Rust,
    /// kazoo's own test suite.
    Kazoo,
    /// Our own client: its tests against real servers.
    Client,
    /// Our recipes and Curator's on the same paths.
    Recipes,
    /// Our own recipes: their tests against the server.
    RecipeTests,
    /// kazoo's own test suite on three members.
    KazooEnsemble,
    /// Curator on three members, whose leader fails.
    CuratorEnsemble,
    /// The C client on three members, whose leader fails.
    CEnsemble,
    /// Data directories that move between Apache ZooKeeper and the server.
    Files,
}

impl Suite {
    fn run(self, lab: &Lab<'_>) -> Result<Tally> {
        match self {
            Self::Zkcli => zkcli::run(lab),
            Self::Shell => shell::run(lab),
            Self::Java => java::client(lab),
            Self::Curator => java::curator(lab),
            Self::C => c_client::run(lab),
            Self::Rust => rust_client::run(lab),
            Self::Kazoo => kazoo::run(lab, &kazoo::ALONE),
            Self::KazooEnsemble => kazoo::run(lab, &kazoo::ENSEMBLE),
            Self::CuratorEnsemble => ensemble::curator(lab),
            Self::CEnsemble => ensemble::c(lab),
            Self::Client => client::run(lab),
            Self::Recipes => recipes::run(lab),
            Self::RecipeTests => recipe_tests::run(lab),
            Self::Files => files::run(lab),
        }
    }

    /// Whether it is run only when asked for.
    fn is_on_demand(self) -> bool {
        matches!(self, Self::KazooEnsemble | Self::RecipeTests)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What a suite is given: the server to test, the peers, and a folder of its own.
#[derive(Debug)]
struct Lab<'a> {
    cache: &'a Cache,
    program: &'a Program,
    /// The ironkeeper binary, if one was given or built.
    binary: Option<&'a Path>,
    dir: PathBuf,
    bless: bool,
}

impl Lab<'_> {
    /// Starts the server under test; `adjust` sees the usual setup first.
    fn server(&self, adjust: impl FnOnce(Setup) -> Setup) -> Result<Server> {
        let setup = Setup::on_free_port()?
            .set("extendedTypesEnabled", true)
            .set("enforceQuota", true)
            .set("maxClientCnxns", 0);
        Server::start(self.program, adjust(setup), &self.dir.join("server"))
    }
}

enum Verdict {
    Ran(Tally),
    Missing(String),
    Broken(String),
}

impl Verdict {
    /// What an error means for a suite: a peer that cannot be had, or something broken.
    fn of_error(why: &anyhow::Error) -> Self {
        match why.downcast_ref::<MissingPeer>() {
            Some(missing) => {
                println!("   not run: {missing}");
                Self::Missing(missing.peer.to_owned())
            }
            None => {
                println!("   broken: {why:#}");
                Self::Broken(why.to_string())
            }
        }
    }
}

struct Row {
    peer: &'static str,
    suite: Suite,
    verdict: Verdict,
    took: Duration,
}

/// Runs the chosen suites and prints a table; false when anything failed.
pub fn run(options: &Options) -> Result<bool> {
    if options.bless && options.peer != Peer::Apache {
        bail!("only Apache's behaviour is worth recording: --bless needs --peer apache");
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let cache = Cache::open()?;
    let usual: Vec<Suite> = Suite::value_variants()
        .iter()
        .copied()
        .filter(|suite| options.long || !suite.is_on_demand())
        .collect();
    let suites = if options.only.is_empty() { &usual } else { &options.only };
    let work = tempfile::Builder::new().prefix("ironkeeper-interop-").tempdir()?;

    let mut rows = Vec::new();
    let mut programs = Vec::new();
    if options.peer != Peer::Ours {
        match cache.apache() {
            Ok(apache) => programs.push(Program::Apache(apache)),
            Err(why) => rows.extend(suites.iter().map(|&suite| {
                let verdict = Verdict::of_error(&why);
                Row { peer: "apache", suite, verdict, took: Duration::ZERO }
            })),
        }
    }
    let ours = options.peer != Peer::Apache;
    let binary = match &options.server {
        Some(given) => Some(fs::canonicalize(given)?),
        // Our shell is tried on Apache's server, too.
        None if ours || suites.contains(&Suite::Shell) => Some(ironkeeper::build()?),
        None => None,
    };
    if ours && let Some(binary) = &binary {
        programs.push(Program::Ironkeeper(binary.clone()));
    }

    for program in &programs {
        for &suite in suites {
            let dir = work.path().join(program.name()).join(suite.name());
            let lab = Lab {
                cache: &cache,
                program,
                binary: binary.as_deref(),
                dir,
                bless: options.bless,
            };
            rows.push(run_one(&lab, suite));
        }
    }

    let good = summarise(&rows, in_ci);
    if !good || options.keep {
        println!("logs are kept in {}", work.keep().display());
    }
    Ok(good)
}

fn run_one(lab: &Lab<'_>, suite: Suite) -> Row {
    let program = lab.program;
    println!("== {} against {}", suite.name(), program.name());
    let start = Instant::now();
    let result = fs::create_dir_all(&lab.dir).map_err(Into::into).and_then(|()| suite.run(lab));
    let verdict = match result {
        Ok(tally) => {
            println!("   {tally}");
            Verdict::Ran(tally)
        }
        Err(why) => Verdict::of_error(&why),
    };
    Row { peer: program.name(), suite, verdict, took: start.elapsed() }
}

/// Prints the closing table. A missing peer is a failure in CI only.
fn summarise(rows: &[Row], in_ci: bool) -> bool {
    println!();
    println!(
        "{:<11} {:<16} {:>7} {:>7} {:>8} {:>9}",
        "server", "suite", "passed", "failed", "skipped", "seconds"
    );
    let mut good = true;
    let mut missing = 0;
    for row in rows {
        let head = format!("{:<11} {:<16}", row.peer, row.suite.name());
        let seconds = row.took.as_secs_f64();
        match &row.verdict {
            Verdict::Ran(tally) => {
                good &= tally.failures.is_empty();
                println!(
                    "{head} {:>7} {:>7} {:>8} {seconds:>9.1}",
                    tally.passed,
                    tally.failures.len(),
                    tally.skipped
                );
            }
            Verdict::Missing(peer) => {
                good &= !in_ci;
                let weight = if in_ci { "FAILED" } else { "skipped" };
                println!("{head} {weight}: {peer} is missing");
                missing += 1;
            }
            Verdict::Broken(why) => {
                good = false;
                println!("{head} FAILED: {}", why.lines().next().unwrap_or_default());
            }
        }
    }
    match (good, missing) {
        (false, _) => println!("interop: FAILED"),
        (true, 0) => println!("interop: all good"),
        (true, _) => println!("interop: nothing failed, {missing} not run"),
    }
    good
}
