//! Runs all targets on the corpus and on seeded mutations of it.
//!
//! `IRONKEEPER_FUZZ=100000 cargo test --release -p ironkeeper-fuzz` runs more mutations;
//! `IRONKEEPER_FUZZ_SEED` selects others. A failure names the target and prints the input.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use ironkeeper_fuzz::{Mutator, TARGETS, Target, target};

/// Mutations of each target. Those of `zoo_cfg` take thirty times as long as others.
const MUTATIONS: usize = 3000;
const MUTATIONS_OF_ZOO_CFG: usize = 100;

fn from_env(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

fn fuzz_dir() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz"].iter().collect()
}

/// The inputs of a target, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = fuzz_dir().join("corpus").join(target.name);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[track_caller]
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let mut hex = String::new();
        input.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
        println!("{} fails on {} bytes: {hex}", target.name, input.len());
        resume_unwind(panic);
    }
}

#[track_caller]
fn check(name: &str) {
    let target = target(name).expect("the target exists");
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    corpus.iter().for_each(|input| run(target, input));
    let mut mutator = Mutator::new(from_env("IRONKEEPER_FUZZ_SEED", 1) as u64);
    let mutations = if name == "zoo_cfg" { MUTATIONS_OF_ZOO_CFG } else { MUTATIONS };
    for _ in 0..from_env("IRONKEEPER_FUZZ", mutations) {
        run(target, &mutator.next(&corpus));
    }
}

macro_rules! checks {
    ($($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
        const CHECKED: &[&str] = &[$(stringify!($name)),*];
    };
}

checks! {
    client_session,
    connect,
    credentials,
    election,
    link,
    log_file,
    membership,
    packets_of_leader,
    packets_of_learner,
    request,
    snapshot_file,
    tree,
    txn,
    zoo_cfg,
}

#[test]
fn every_target_is_checked_and_has_a_program_for_libfuzzer() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, CHECKED);
    let manifest = std::fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    for name in names {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not in fuzz/Cargo.toml"
        );
        let program = fuzz_dir().join("fuzz_targets").join(name).with_extension("rs");
        let text = std::fs::read_to_string(&program).unwrap();
        assert!(text.contains(&format!("\"{name}\"")), "{program:?} runs another target");
    }
}

#[test]
fn a_seed_reproduces_its_inputs() {
    let corpus = vec![b"some bytes".to_vec(), vec![0; 100]];
    let inputs = |seed| {
        let mut mutator = Mutator::new(seed);
        (0..100).map(|_| mutator.next(&corpus)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
}
