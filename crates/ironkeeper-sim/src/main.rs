//! Runs seeds and prints their number, the speed, and the failures.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ironkeeper_sim::broken_rules::{IN_RECIPES, IN_SERVERS};
use ironkeeper_sim::campaign::{Campaign, Outcome};
use ironkeeper_sim::{Layer, Report, run_seed};

/// The duration of a seed of whole servers, in seeds of the ZAB machine.
const ZAB_PER_SERVER: u64 = 4;

/// The duration of a seed of programs, in seeds of whole servers.
const SERVERS_PER_RECIPES: u64 = 4;

/// The number of seeds within which a broken rule must be detected.
const BROKEN_RULE_SEEDS: u64 = 5000;

/// Runs simulated clusters, one for each seed.
#[derive(Debug, Parser)]
struct Options {
    /// The layer to run; all layers by default.
    #[arg(long)]
    layer: Option<Layer>,
    /// Number of seeds, over all layers.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run for this many minutes, with as many seeds as fit.
    #[arg(long)]
    minutes: Option<f64>,
    /// Run only this seed and print every event.
    #[arg(long)]
    seed: Option<u64>,
    /// Check that rules that are broken on purpose are detected.
    #[arg(long)]
    broken_rules: bool,
    /// Stop after this number of failures.
    #[arg(long, default_value_t = 5)]
    failures: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return tell_seed(options.layer.unwrap_or(Layer::Server), seed);
    }
    let beyond_zab = options.seeds / (ZAB_PER_SERVER + 1);
    let of_recipes = beyond_zab / (SERVERS_PER_RECIPES + 1);
    let third = 1.0 / 3.0;
    let runs = match options.layer {
        Some(layer) => vec![(layer, options.seeds, 1.0)],
        None => vec![
            (Layer::Zab, options.seeds - beyond_zab, third),
            (Layer::Server, beyond_zab - of_recipes, third),
            (Layer::Recipes, of_recipes, third),
        ],
    };
    let (mut checks, mut failures) = (0, 0);
    for (layer, seeds, share) in runs {
        let limit = options.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0 * share));
        let (from, failures_max) = (options.from, options.failures);
        let campaign = Campaign { layer, from, seeds, limit, failures_max };
        let outcome = campaign.run(|failure| println!("{failure}"));
        tell(layer, &outcome);
        checks += outcome.seeds as usize;
        failures += outcome.failures;
    }
    if options.broken_rules {
        checks += IN_SERVERS.len() + IN_RECIPES.len();
        failures += look_for_broken_rules();
    }
    println!("{} passed, {failures} failed", checks.saturating_sub(failures));
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the number of broken rules that were not detected.
fn look_for_broken_rules() -> usize {
    // Assertions of the product are expected to fail here.
    std::panic::set_hook(Box::new(|_| {}));
    let mut unnoticed = 0;
    let in_servers = IN_SERVERS.iter().map(|rule| (Layer::Server, rule));
    let in_recipes = IN_RECIPES.iter().map(|rule| (Layer::Recipes, rule));
    for (layer, (rule, from, expected)) in in_servers.chain(in_recipes) {
        match rule.find(layer, *from..from + BROKEN_RULE_SEEDS, expected) {
            Ok(failure) => {
                let what: String = failure.what.chars().take(100).collect();
                println!("{rule:?} is noticed by seed {}: {what}", failure.seed);
            }
            Err(what) => {
                unnoticed += 1;
                println!("{what}");
            }
        }
    }
    unnoticed
}

fn tell_seed(layer: Layer, seed: u64) -> ExitCode {
    match run_seed(layer, seed, true) {
        Ok(report) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn tell(layer: Layer, outcome: &Outcome) {
    let Outcome { seeds, took, total, failures } = outcome;
    let seconds = took.as_secs_f64();
    let Report {
        events,
        committed,
        leaders,
        truncations,
        snapshots,
        faults,
        reconfigurations,
        answers,
        watch_events,
        expired,
        operations,
        read_only_answers,
        upgrades,
        ..
    } = total;
    println!(
        "{layer}: {seeds} seeds in {seconds:.1} s ({:.1} a second), {:.1} simulated hours, {failures} failures",
        *seeds as f64 / seconds,
        total.simulated_us as f64 / 3.6e9,
    );
    println!(
        "  {events} events, {faults} faults, {leaders} leaders, {committed} commits, {truncations} truncations, \
         {snapshots} trees taken over, {reconfigurations} changes of members"
    );
    if layer == Layer::Recipes {
        println!("  {operations} things done by recipes, {expired} sessions lost");
    }
    if layer == Layer::Server {
        println!(
            "  {answers} answers, {watch_events} events of watches, {expired} sessions ended by silence, \
             {read_only_answers} answers by servers without a leader, {upgrades} nodes of sessions that were local"
        );
    }
}
