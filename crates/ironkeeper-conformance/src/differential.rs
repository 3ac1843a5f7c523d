//! `cargo xtask differential`: sends the same requests to Apache ZooKeeper and to Ironkeeper and
//! compares the replies.
//!
//! A script (generated from a seed, or written as a scenario) runs against two fresh servers at the
//! same time. Replies, errors, Stats, watch events, their order and the closing of connections are
//! recorded as text, in which values that a server chooses freely (session ids, clocks) are
//! symbols. The two texts must be equal, including zxids. A script with a difference is reduced to
//! the steps that are necessary for the difference, and printed with both transcripts.
//!
//! Start from [`script::Script`], [`player::play`] and the table in [`exceptions`].

mod exceptions;
mod generate;
mod player;
mod recorded;
mod report;
mod rules;
mod scenario_file;
mod scenarios;
mod script;
mod shrink;
mod transcript;

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use ironkeeper_peers::cache::Cache;
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_steps::builds;
use ironkeeper_steps::count::{Count, SecondTry};
use ironkeeper_steps::slots::Slots;

use player::Transcript;
use script::Script;
use transcript::Purpose;

/// In one of this many seeds all connections write concurrently.
const CONCURRENT_EVERY: u64 = 10;

/// Options of `cargo xtask differential`.
#[derive(Debug, Args)]
pub struct Options {
    /// The ironkeeper binary to compare with Apache [default: build this working tree, with all
    /// assertions]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The server to compare with Apache; `apache` checks that the comparison itself is sound.
    #[arg(long, value_enum, default_value_t = Peer::Ours)]
    peer: Peer,
    /// Run only this seed, in every arrangement or in the given one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The number of seeds in each arrangement.
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    first: u64,
    /// The number of steps of each script.
    #[arg(long, value_name = "N", default_value_t = 60)]
    steps: usize,
    /// Use only this configuration of the servers; may be repeated.
    #[arg(long, value_enum)]
    arrangement: Vec<Arrangement>,
    /// Run only this part; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Run only scenarios and rules whose names contain this.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Stop after this many differences.
    #[arg(long, value_name = "N", default_value_t = 5)]
    differences: usize,
    /// Do not reduce scripts: print every step whose replies differ.
    #[arg(long)]
    whole: bool,
    /// Print the transcript of every script.
    #[arg(long)]
    verbose: bool,
    /// Run only the scenarios, against one server, and compare its replies with those recorded from
    /// Apache; needs no Java unless `--peer apache` checks the recording.
    #[arg(long)]
    alone: bool,
    /// Record Apache's replies to the scenarios; needs `--alone --peer apache`.
    #[arg(long, requires = "alone")]
    bless: bool,
    /// The first of two ports to use [default: free ports]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    Ours,
    Apache,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Scripts generated from seeds.
    Seeds,
    /// Scripts written by hand, against both servers.
    Scenarios,
    /// The behaviour of Ironkeeper where it differs from Apache on purpose.
    Rules,
}

/// A configuration of both servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Arrangement {
    /// Apache's defaults, with sessions that do not expire during a script.
    Plain,
    /// TTL nodes and reconfiguration are enabled.
    Extended,
    /// Quotas are enforced.
    Quota,
    /// Short ticks, and containers and TTL nodes are reaped quickly.
    Quick,
    /// ACLs are stored but not checked.
    Unguarded,
    /// Only clients that have authenticated by digest are served.
    Guarded,
    /// Frames have at most 4096 bytes.
    Narrow,
}

impl Arrangement {
    const ALL: [Arrangement; 7] = [
        Arrangement::Plain,
        Arrangement::Extended,
        Arrangement::Quota,
        Arrangement::Quick,
        Arrangement::Unguarded,
        Arrangement::Guarded,
        Arrangement::Narrow,
    ];

    fn name(self) -> &'static str {
        match self {
            Arrangement::Plain => "plain",
            Arrangement::Extended => "extended",
            Arrangement::Quota => "quota",
            Arrangement::Quick => "quick",
            Arrangement::Unguarded => "unguarded",
            Arrangement::Guarded => "guarded",
            Arrangement::Narrow => "narrow",
        }
    }

    /// Returns whether generated scripts run in this arrangement. Where a script depends on the
    /// clock it would not be reproducible; in the other arrangements most of its requests would be
    /// rejected.
    fn takes_seeds(self) -> bool {
        matches!(self, Arrangement::Plain | Arrangement::Extended | Arrangement::Quota)
    }

    fn setup(self, port: u16) -> Setup {
        // The comparison needs replies, not durability, and fsync would take most of the time.
        let setup = Setup::on_port(port)
            .set("maxClientCnxns", 0)
            .set("forceSync", "no")
            .set("maxSessionTimeout", 60_000)
            .jvm_flag(player::SUPER_DIGEST_FLAG);
        // The intervals are so long that neither an expiry nor the container check occurs during a
        // script.
        let still = |setup: Setup| {
            setup
                .set("minSessionTimeout", 30_000)
                .jvm_flag("-Dznode.container.checkIntervalMs=2000000000")
        };
        match self {
            Arrangement::Plain => still(setup),
            Arrangement::Extended => {
                still(setup).set("extendedTypesEnabled", true).set("reconfigEnabled", true)
            }
            Arrangement::Quota => still(setup).set("enforceQuota", true),
            Arrangement::Unguarded => still(setup).set("skipACL", "yes"),
            Arrangement::Guarded => {
                still(setup).set("enforce.auth.enabled", true).set("enforce.auth.schemes", "digest")
            }
            Arrangement::Narrow => still(setup).jvm_flag("-Djute.maxbuffer=4096"),
            Arrangement::Quick => setup
                .set("tickTime", 200)
                .set("extendedTypesEnabled", true)
                .jvm_flag("-Dznode.container.checkIntervalMs=300"),
        }
    }
}

/// The number of repetitions of a script with a difference, to confirm the difference.
const REPLAYS: usize = 3;
/// The bound of differences that no repetition confirms, in scripts in which several connections
/// race or that depend on the clock. One may be caused by a race in Apache's threads; more indicate
/// an error.
const SEEN_ONCE_MAX: usize = 1;

/// The reported cause of such a difference.
const RACE: &str = "requests of several connections, or a clock, race inside Apache's threads";

/// Runs the comparison, one arrangement after the other; returns `false` when a difference is
/// found.
pub fn run(options: &Options) -> Result<bool> {
    Ok(play(options, &Slots::new(1))?.is_good())
}

/// Runs the comparison; at most as many arrangements run at a time as `slots` has slots.
pub fn play(options: &Options, slots: &Slots) -> Result<Count> {
    if options.alone {
        return alone(options);
    }
    let apache = Program::Apache(Cache::open()?.apache()?);
    let other = match (options.peer, &options.server) {
        (Peer::Apache, None) => apache.clone(),
        (Peer::Apache, Some(_)) => bail!("--server has no part in a run of Apache against Apache"),
        (Peer::Ours, Some(binary)) => Program::Ironkeeper(
            std::fs::canonicalize(binary).with_context(|| format!("no {}", binary.display()))?,
        ),
        (Peer::Ours, None) => Program::Ironkeeper(builds::build_checked()?),
    };
    let programs = [apache, other];
    let wanted = |arrangement: &Arrangement| {
        options.arrangement.is_empty() || options.arrangement.contains(arrangement)
    };
    let arrangements: Vec<Arrangement> = Arrangement::ALL.into_iter().filter(wanted).collect();
    let labs = slots.run(&arrangements, |arrangement| {
        let mut lab = Lab::new(options, programs.clone());
        lab.arrangement(*arrangement)?;
        Ok(lab)
    })?;
    let mut all = Lab::new(options, programs);
    for lab in labs {
        all.played += lab.played;
        all.differences += lab.differences;
        all.seen_once.extend(lab.seen_once);
    }
    all.finish()
}

/// Runs the scenarios on one server.
fn alone(options: &Options) -> Result<Count> {
    let mode = if options.bless { recorded::Mode::Record } else { recorded::Mode::Compare };
    let program = match (options.peer, &options.server) {
        (Peer::Apache, _) => Program::Apache(Cache::open()?.apache()?),
        (Peer::Ours, _) if options.bless => bail!("--bless records Apache: add --peer apache"),
        (Peer::Ours, Some(binary)) => Program::Ironkeeper(binary.canonicalize()?),
        (Peer::Ours, None) => Program::Ironkeeper(builds::build_checked()?),
    };
    recorded::play(&program, mode, |scenario| {
        (options.arrangement.is_empty() || options.arrangement.contains(&scenario.arrangement))
            && options.name.as_ref().is_none_or(|name| scenario.name.contains(name.as_str()))
    })
}

struct Lab<'a> {
    options: &'a Options,
    /// The two servers; the first is the reference.
    programs: [Program; 2],
    differences: usize,
    /// Differences that no repetition confirmed: a race in one of the servers, or a stalled
    /// machine.
    seen_once: Vec<SecondTry>,
    played: usize,
}

impl<'a> Lab<'a> {
    fn new(options: &'a Options, programs: [Program; 2]) -> Self {
        Lab { options, programs, differences: 0, seen_once: Vec::new(), played: 0 }
    }

    fn wants(&self, part: Part) -> bool {
        self.options.only.is_empty() || self.options.only.contains(&part)
    }

    fn names(&self, name: &str) -> bool {
        self.options.name.as_ref().is_none_or(|wanted| name.contains(wanted.as_str()))
    }

    fn had_enough(&self) -> bool {
        self.differences >= self.options.differences
    }

    fn arrangement(&mut self, arrangement: Arrangement) -> Result<()> {
        let mut scripts = Vec::new();
        if self.wants(Part::Scenarios) && self.options.seed.is_none() {
            for scenario in scenarios::all()?.into_iter().filter(|s| s.arrangement == arrangement) {
                if self.names(&scenario.name) {
                    scripts.push((format!("scenario {}", scenario.name), scenario.script));
                }
            }
        }
        let seeds = match self.options.seed {
            _ if !arrangement.takes_seeds() => 0..0,
            _ if !self.wants(Part::Seeds) || self.options.name.is_some() => 0..0,
            Some(seed) => seed..seed + 1,
            None => self.options.first..self.options.first + self.options.seeds,
        };
        let rules: Vec<rules::Rule> = rules::all()
            .into_iter()
            .filter(|rule| rule.arrangement == arrangement && self.names(rule.name))
            .filter(|_| self.wants(Part::Rules) && self.options.seed.is_none())
            .filter(|_| matches!(self.programs[1], Program::Ironkeeper(_)))
            .collect();
        if scripts.is_empty() && seeds.is_empty() && rules.is_empty() {
            return Ok(());
        }

        let mut pair = Pair::start(&self.programs, arrangement, self.options.port)?;
        for (name, script) in scripts {
            if self.had_enough() {
                return Ok(());
            }
            let name = format!("{name} ({})", arrangement.name());
            // Scenarios contain no races, except where they wait for time to pass.
            let may_race = arrangement == Arrangement::Quick;
            self.compare(&mut pair, &name, &script, may_race)?;
        }
        let begun = Instant::now();
        let count = seeds.end - seeds.start;
        for seed in seeds {
            if self.had_enough() {
                return Ok(());
            }
            let again = format!("--arrangement {} --seed {seed}", arrangement.name());
            let script = match seed % CONCURRENT_EVERY {
                _ if arrangement == Arrangement::Quota => {
                    generate::one_by_one(generate::script(seed, self.options.steps))
                }
                0 => generate::concurrent(seed, self.options.steps),
                _ => generate::script(seed, self.options.steps),
            };
            self.compare(&mut pair, &format!("seed {seed} ({again})"), &script, true)?;
        }
        if count > 0 {
            let rate = count as f64 / begun.elapsed().as_secs_f64();
            println!("{}: {count} seeds, {rate:.1} per second", arrangement.name());
        }
        for rule in rules {
            self.rule(&mut pair, &rule)?;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        pair: &mut Pair,
        name: &str,
        script: &Script,
        may_race: bool,
    ) -> Result<()> {
        self.played += 1;
        let transcripts = pair.play(script)?;
        if self.options.verbose {
            println!("== {name}\n{}", report::transcripts(script, &transcripts, &pair.titles()));
        }
        if report::equal(&transcripts) {
            return Ok(());
        }
        if !seen_again(pair, script) {
            if may_race {
                let check = format!("differential {name}");
                self.seen_once.push(SecondTry { check, cause: RACE });
            } else {
                self.differences += 1;
            }
            println!("SEEN ONCE in {name}, and not in {REPLAYS} more plays");
            println!("{}", report::differences(script, &transcripts, &pair.titles()));
            return Ok(());
        }
        self.differences += 1;
        if self.options.whole {
            println!("DIFFERENCE in {name}");
            println!("{}", report::differences(script, &transcripts, &pair.titles()));
            return Ok(());
        }
        println!("DIFFERENCE in {name}; cutting it down");
        let mut last = None;
        let smallest = shrink::shrink(script, &mut |candidate: &Script| {
            match pair.play(candidate) {
                Ok(transcripts) if !report::equal(&transcripts) => {
                    last = Some(transcripts);
                    true
                }
                // A server that does not start again ends the search; the smallest script so far is
                // reported.
                Ok(_) | Err(_) => false,
            }
        });
        // If no smaller script shows the difference, the original is printed.
        let (script, transcripts) = match &last {
            Some(last) => (&smallest, last),
            None => (script, &transcripts),
        };
        println!("{}", report::transcripts(script, transcripts, &pair.titles()));
        Ok(())
    }

    fn rule(&mut self, pair: &mut Pair, rule: &rules::Rule) -> Result<()> {
        self.played += 1;
        let transcript = pair.play_on_second(&rule.script)?;
        let got = rules::answers(&transcript);
        let survives = rule.answers.is_empty() && !transcript.world.is_empty();
        if survives || got == rule.answers {
            return Ok(());
        }
        self.differences += 1;
        println!("RULE {} does not hold", rule.name);
        for step in &rule.script.steps {
            println!("      {step:?}");
        }
        println!("    wanted: {:#?}\n    got: {got:#?}", rule.answers);
        Ok(())
    }

    fn finish(self) -> Result<Count> {
        println!(
            "{} scripts against {} and {}: {} differences, {} more seen once",
            self.played,
            self.programs[0].name(),
            self.programs[1].name(),
            self.differences,
            self.seen_once.len(),
        );
        if self.played == 0 {
            bail!("nothing was selected");
        }
        println!("known and left out of the comparison:");
        for exception in exceptions::EXCEPTIONS {
            println!("  - {} ({}): {}", exception.what, exception.way.as_str(), exception.why);
        }
        let too_many = self.seen_once.len().saturating_sub(SEEN_ONCE_MAX);
        let failed = self.differences + too_many;
        let passed = self.played.saturating_sub(failed);
        Ok(Count { passed, failed, second_tries: self.seen_once })
    }
}

/// Returns whether a repetition of the script, on servers with equal histories, shows a difference.
fn seen_again(pair: &mut Pair, script: &Script) -> bool {
    (0..REPLAYS).any(|_| match pair.play(script) {
        Ok(transcripts) => !report::equal(&transcripts),
        // A server that does not start again counts as a difference.
        Err(_) => true,
    })
}

/// Two servers with equal histories.
struct Pair {
    programs: [Program; 2],
    arrangement: Arrangement,
    port: Option<u16>,
    running: Option<([Server; 2], tempfile::TempDir)>,
}

impl Pair {
    fn start(programs: &[Program; 2], arrangement: Arrangement, port: Option<u16>) -> Result<Self> {
        let mut pair = Self { programs: programs.clone(), arrangement, port, running: None };
        pair.restart()?;
        Ok(pair)
    }

    fn titles(&self) -> [&'static str; 2] {
        [self.programs[0].name(), self.programs[1].name()]
    }

    /// Starts both servers again with empty databases.
    fn restart(&mut self) -> Result<()> {
        self.running = None;
        let dir = tempfile::Builder::new().prefix("differential-").tempdir()?;
        let mut setups = Vec::new();
        for index in 0..2 {
            let port = match self.port {
                Some(first) => first + index,
                None => ironkeeper_peers::ports::one()?,
            };
            setups.push(self.arrangement.setup(port));
        }
        let start = |index: usize, setup: Setup| {
            let home = dir.path().join(["a", "b"][index]);
            Server::start(&self.programs[index], setup, &home)
        };
        let (second, first) = (setups.pop(), setups.pop());
        let (Some(first), Some(second)) = (first, second) else { bail!("two setups were made") };
        // Sequentially, so that a server that does not start is distinguished from a server that
        // starves the other.
        let servers = [start(0, first)?, start(1, second)?];
        self.running = Some((servers, dir));
        Ok(())
    }

    fn servers(&mut self) -> Result<&[Server; 2]> {
        if self.running.is_none() {
            self.restart()?;
        }
        Ok(&self.running.as_ref().context("the servers run")?.0)
    }

    /// Runs a script on both servers. If the final states differ, both servers are restarted empty,
    /// so that every script finds two servers with equal histories.
    fn play(&mut self, script: &Script) -> Result<[Transcript; 2]> {
        let servers = self.servers()?;
        let transcripts = thread::scope(|scope| {
            let first = scope.spawn(|| played(&servers[0], script, Purpose::Compare));
            let second = played(&servers[1], script, Purpose::Compare);
            let first = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            [first, second]
        });
        let same_past = transcripts.iter().all(|t| !t.world.is_empty())
            && transcripts[0].world == transcripts[1].world;
        if !same_past {
            self.running = None;
        }
        Ok(transcripts)
    }

    fn play_on_second(&mut self, script: &Script) -> Result<Transcript> {
        let servers = self.servers()?;
        Ok(played(&servers[1], script, Purpose::Rule))
    }
}

/// Runs a script; a server that cannot be reached becomes a transcript, like any other result.
fn played(server: &Server, script: &Script, purpose: Purpose) -> Transcript {
    player::play(server.port(), script, purpose).unwrap_or_else(|why| Transcript {
        remains: vec![format!(
            "the server is lost: {why:#}; its log ends:\n{}",
            server.log_tail(15)
        )],
        ..Transcript::default()
    })
}
