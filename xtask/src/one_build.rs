//! Checks that `cargo xtask`, the suites and the tests share one build of every crate. Cargo builds
//! a crate, and all crates that depend on it, once for each set of features: a difference costs a
//! minute or more of every clean run.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_steps::{process, repo};

/// Returns the features of each crate, as selected by these arguments of `cargo tree`.
fn features(arguments: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut command = ironkeeper_steps::cargo::command();
    command
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}\t{f}\t"])
        .args(arguments.split(' '))
        .current_dir(repo::root());
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in process::run(&mut command).unwrap().lines() {
        if let [package, features, _] = line.split('\t').collect::<Vec<_>>()[..] {
            found.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
    }
    found
}

#[test]
fn our_programs_and_the_tests_are_built_with_the_same_features() {
    let of_tests = features("--workspace --all-features --edges normal,build,dev");
    for (program, manifest, crates_min) in [
        ("xtask", "xtask/Cargo.toml", 20),
        ("ironkeeper-suites", "crates/ironkeeper-suites/Cargo.toml", 50),
    ] {
        let of_program = features(&format!("--package {program} --edges normal,build"));
        let listed = of_program.len();
        assert!(listed > crates_min, "cargo tree lists {listed} crates of {program}");
        for (package, features) in &of_program {
            assert_eq!(
                Some(features),
                of_tests.get(package),
                "{package} is built twice: change the features in {manifest}"
            );
        }
    }
}
