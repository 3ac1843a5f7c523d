//! `cargo xtask interop`: runs third-party software against a standalone server, and some of it
//! against three members.
//!
//! Each `Suite` runs one third-party program, unchanged, against Ironkeeper or against Apache
//! ZooKeeper. The expected results of a suite are stored in `interop/` and were recorded from
//! Apache (`--peer apache --bless`), so a run against Ironkeeper alone is a comparison with Apache,
//! and a run against Apache checks the recording.
//!
//! Suites run concurrently, each with its own servers: they wait more than they compute.

mod c_client;
mod client;
mod driver;
mod ensemble;
mod files;
mod foreign_races;
mod java;
mod kazoo;
mod own_tests;
mod recipe_tests;
mod recipes;
mod rust_client;
mod shell;
mod shell_session;
mod transcript;
mod zkcli;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use ironkeeper_peers::cache::{Cache, MissingPeer};
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_steps::builds;
use ironkeeper_steps::count::{Count, SecondTry};
use ironkeeper_steps::slots::Slots;
use ironkeeper_steps::tally::Tally;

/// Options of `cargo xtask interop`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to test [default: build this working tree, with all assertions]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Run only this suite; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<Suite>,
    /// The server to run against [default: ours, and Apache for our own tests, unless suites are
    /// named]
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Also run the suites that otherwise run only if named.
    #[arg(long)]
    long: bool,
    /// Record Apache's behaviour as the expected one instead of comparing; needs `--peer apache`.
    #[arg(long)]
    bless: bool,
    /// The number of suites that run at a time.
    #[arg(long, value_name = "N", default_value_t = 3)]
    at_once: usize,
    /// Keep the logs of servers and drivers even if all suites pass.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Ours,
    Apache,
    Both,
}

/// One third-party program, or one of our own test suites.
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
    /// The C client: cli_mt and a program with libzookeeper_mt.
    C,
    /// zookeeper-client from crates.io.
    Rust,
    /// kazoo's own test suite.
    Kazoo,
    /// Our own client: its tests against real servers.
    Client,
    /// Our recipes and Curator's on the same paths.
    Recipes,
    /// Our recipes and kazoo's on the same paths.
    KazooRecipes,
    /// Our own recipes: their tests against the server.
    RecipeTests,
    /// kazoo's own test suite on three members.
    KazooEnsemble,
    /// Curator on three members, whose leader is killed.
    CuratorEnsemble,
    /// The C client on three members, whose leader is killed.
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
            Self::Recipes => recipes::curator(lab),
            Self::KazooRecipes => recipes::kazoo(lab),
            Self::RecipeTests => recipe_tests::run(lab),
            Self::Files => files::run(lab),
        }
    }

    /// Returns whether the suite runs only on demand. The tests of our recipes also run on the
    /// embedded server.
    fn is_on_demand(self) -> bool {
        matches!(self, Self::KazooEnsemble | Self::RecipeTests)
    }

    /// Our own tests, which also run on Apache's server.
    const OURS: [Suite; 2] = [Self::Client, Self::RecipeTests];

    /// Returns whether the suite takes longer than most: it starts first, so that none runs alone
    /// at the end.
    fn takes_long(self) -> bool {
        matches!(
            self,
            Self::Kazoo
                | Self::KazooEnsemble
                | Self::RecipeTests
                | Self::Client
                | Self::CuratorEnsemble
                | Self::Files
        )
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The environment of a suite: the server to test, the peers, and its own directory.
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
    /// Starts the server under test; `adjust` receives the default setup and may change it.
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
    fn has_failed(&self) -> bool {
        match self {
            Self::Ran(tally) => !tally.failures.is_empty(),
            Self::Broken(_) => true,
            Self::Missing(_) => false,
        }
    }

    /// Converts an error into the result of a suite: a missing peer, or a failure.
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

/// One suite on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    server: &'static str,
    suite: Suite,
}

struct Row {
    job: Job,
    verdict: Verdict,
    took: Duration,
}

const OURS: &str = "ironkeeper";
const APACHE: &str = "apache";

/// Returns the selected jobs, in the order of the final table.
fn jobs(options: &Options) -> Vec<Job> {
    let all = Suite::value_variants().iter().copied();
    let usual: Vec<Suite> = all.filter(|suite| options.long || !suite.is_on_demand()).collect();
    let suites = if options.only.is_empty() { &usual } else { &options.only };
    let on = |server, suites: &[Suite]| -> Vec<Job> {
        suites.iter().map(|&suite| Job { server, suite }).collect()
    };
    match options.peer {
        Some(Peer::Ours) => on(OURS, suites),
        Some(Peer::Apache) => on(APACHE, suites),
        Some(Peer::Both) => [on(APACHE, suites), on(OURS, suites)].concat(),
        None if options.only.is_empty() => [on(OURS, suites), on(APACHE, &Suite::OURS)].concat(),
        None => on(OURS, suites),
    }
}

/// Runs the selected suites and prints a table; returns `false` when any of them failed.
pub fn run(options: &Options) -> Result<bool> {
    Ok(play(options, &Slots::new(options.at_once))?.is_good())
}

/// Runs the selected suites, at most as many at a time as `slots` has slots, and prints a table.
pub fn play(options: &Options, slots: &Slots) -> Result<Count> {
    if options.bless && options.peer != Some(Peer::Apache) {
        bail!("only Apache's behaviour is worth recording: --bless needs --peer apache");
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let cache = Cache::open()?;
    let jobs = jobs(options);
    let work = tempfile::Builder::new().prefix("ironkeeper-interop-").tempdir()?;

    let wants = |server| jobs.iter().any(|job| job.server == server);
    let apache = wants(APACHE).then(|| cache.apache().map(Program::Apache));
    let binary = match &options.server {
        Some(given) => Some(fs::canonicalize(given)?),
        // Our shell is also tested on Apache's server.
        None if wants(OURS) || jobs.iter().any(|job| job.suite == Suite::Shell) => {
            Some(builds::build_checked()?)
        }
        None => None,
    };
    let ours = binary.clone().map(Program::Ironkeeper);

    let run = |job: Job| {
        let program = match (job.server, &apache, &ours) {
            (OURS, _, Some(ours)) => ours,
            (APACHE, Some(Ok(apache)), _) => apache,
            (_, Some(Err(why)), _) => {
                return Ok(Row { job, verdict: Verdict::of_error(why), took: Duration::ZERO });
            }
            _ => bail!("no program was made ready for {}", job.server),
        };
        let lab = Lab {
            cache: &cache,
            program,
            binary: binary.as_deref(),
            dir: work.path().join(job.server).join(job.suite.name()),
            bless: options.bless,
        };
        Ok(run_one(&lab, job))
    };
    let rows = run_all(&jobs, slots, run)?;

    let (table, count) = summarise(&rows, in_ci);
    print!("{table}");
    for Row { job, .. } in rows.iter().filter(|row| row.verdict.has_failed()) {
        let peer = if job.server == OURS { "ours" } else { APACHE };
        println!("to run it again: cargo xtask interop --peer {peer} --only {}", job.suite.name());
    }
    if !count.is_good() || options.keep {
        println!("logs are kept in {}", work.keep().display());
    }
    Ok(count)
}

/// Runs the jobs, long ones first, as slots become free; returns the results in the order of the
/// jobs.
fn run_all(
    jobs: &[Job],
    slots: &Slots,
    run: impl Fn(Job) -> Result<Row> + Sync,
) -> Result<Vec<Row>> {
    let mut places: Vec<usize> = (0..jobs.len()).collect();
    places.sort_by_key(|at| !jobs[*at].suite.takes_long());
    let mut rows = slots.run(&places, |at| Ok((*at, run(jobs[*at])?)))?;
    rows.sort_by_key(|(at, _)| *at);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn run_one(lab: &Lab<'_>, job: Job) -> Row {
    let what = format!("{} against {}", job.suite.name(), job.server);
    println!("== {what}");
    let start = Instant::now();
    let result = fs::create_dir_all(&lab.dir).map_err(Into::into).and_then(|()| job.suite.run(lab));
    let verdict = match result {
        Ok(tally) => {
            println!("== {what}: {tally}");
            Verdict::Ran(tally)
        }
        Err(why) => {
            println!("== {what}:");
            Verdict::of_error(&why)
        }
    };
    Row { job, verdict, took: start.elapsed() }
}

/// Returns the final table and its sum. A missing peer is a failure in CI only.
fn summarise(rows: &[Row], in_ci: bool) -> (String, Count) {
    let mut text = format!(
        "\n{:<11} {:<16} {:>7} {:>7} {:>8} {:>9}\n",
        "server", "suite", "passed", "failed", "skipped", "seconds"
    );
    let mut count = Count::default();
    let mut missing = 0;
    for row in rows {
        let head = format!("{:<11} {:<16}", row.job.server, row.job.suite.name());
        let seconds = row.took.as_secs_f64();
        match &row.verdict {
            Verdict::Ran(tally) => {
                count.passed += tally.passed;
                count.failed += tally.failures.len();
                count.second_tries.extend(tally.second_tries.iter().cloned());
                text += &format!(
                    "{head} {:>7} {:>7} {:>8} {seconds:>9.1}\n",
                    tally.passed,
                    tally.failures.len(),
                    tally.skipped
                );
            }
            Verdict::Missing(peer) => {
                count.failed += usize::from(in_ci);
                let weight = if in_ci { "FAILED" } else { "skipped" };
                text += &format!("{head} {weight}: {peer} is missing\n");
                missing += 1;
            }
            Verdict::Broken(why) => {
                count.failed += 1;
                text += &format!("{head} FAILED: {}\n", why.lines().next().unwrap_or_default());
            }
        }
    }
    for SecondTry { check, cause } in &count.second_tries {
        text += &format!("passed at the second try only: {check} ({cause})\n");
    }
    text += &match (count.is_good(), missing) {
        (false, _) => "interop: FAILED\n".to_owned(),
        (true, 0) => "interop: all good\n".to_owned(),
        (true, _) => format!("interop: nothing failed, {missing} not run\n"),
    };
    (text, count)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn jobs_of(arguments: &[&str]) -> Vec<Job> {
        let arguments = ["interop"].iter().chain(arguments);
        jobs(&Cli::try_parse_from(arguments).unwrap().options)
    }

    #[test]
    fn what_is_our_own_is_run_on_apache_as_well() {
        let usual = jobs_of(&[]);
        for suite in Suite::OURS {
            assert!(usual.contains(&Job { server: APACHE, suite }));
        }
        assert!(!usual.contains(&Job { server: APACHE, suite: Suite::Kazoo }));
        assert_eq!(jobs_of(&["--only", "c"]), [Job { server: OURS, suite: Suite::C }]);
        let both = [APACHE, OURS].map(|server| Job { server, suite: Suite::C });
        assert_eq!(jobs_of(&["--only", "c", "--peer", "both"]), both);
    }

    #[test]
    fn suites_run_side_by_side_and_are_told_in_order() {
        let jobs = jobs_of(&[]);
        let began = Mutex::new(Vec::new());
        let rows = run_all(&jobs, &Slots::new(2), |job| {
            began.lock().unwrap().push(job);
            Ok(Row { job, verdict: Verdict::Ran(Tally::default()), took: Duration::ZERO })
        })
        .unwrap();
        assert_eq!(rows.iter().map(|row| row.job).collect::<Vec<_>>(), jobs);
        assert!(began.into_inner().unwrap()[0].suite.takes_long());
    }
}
