//! Whether `crates/ironkeeper-recipes/known-bugs.md` tells the truth: every test it names is there, and none that
//! carries the number of a bug is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::repo;

/// How the names of tests begin that carry a number.
const ORIGINS: [&str; 9] = [
    "clickhouse_",
    "curator_",
    "elastic_",
    "gh_",
    "helix_",
    "kazoo_",
    "netflix_",
    "pravega_",
    "zk_ruby_",
];

/// The names of all functions of tests below a folder.
fn test_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            test_names(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let functions = text.lines().filter_map(|line| line.trim().split_once("fn "));
            names.extend(
                functions.filter_map(|(_, rest)| Some(rest.split_once("()")?.0.to_owned())),
            );
        }
    }
}

#[test]
fn the_list_of_known_bugs_and_the_tests_agree() {
    let mut tests = BTreeSet::new();
    for folder in ["ironkeeper-recipes/src", "ironkeeper-recipes/tests", "ironkeeper-client/tests"]
    {
        test_names(&repo::root().join("crates").join(folder), &mut tests);
    }
    let list =
        fs::read_to_string(repo::root().join("crates/ironkeeper-recipes/known-bugs.md")).unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    // Names of tests are long; other words between backquotes are commands or parts of names.
    let named: BTreeSet<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|name| name.matches('_').count() > 3 && !name.contains(' '))
        .collect();
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "in the list, but no tests: {missing:#?}");
    let unlisted: Vec<_> = tests
        .iter()
        .filter(|name| ORIGINS.iter().any(|origin| name.starts_with(origin)))
        .filter(|name| name.split('_').nth(1).is_some_and(|word| word.parse::<u32>().is_ok()))
        .filter(|name| !named.contains(name.as_str()))
        .collect();
    assert!(unlisted.is_empty(), "tests, but not in the list: {unlisted:#?}");
    for number in 1..=43 {
        assert!(list.contains(&format!("\n| {number} | ")), "number {number} is left out");
    }
}
