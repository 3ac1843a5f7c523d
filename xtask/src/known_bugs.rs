//! Checks of the lists of known bugs: every test named in a list exists, and every test with the
//! number of a bug is listed. In `crates/ironkeeper-recipes/known-bugs.md` the numbers are in the
//! names of tests, in `crates/ironkeeper-sim/known-bugs.md` in the comments above them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ironkeeper_steps::repo;

/// Prefixes of the names of tests that contain a bug number.
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

/// The bugs that the list of server bugs must contain: those named in the notes on ZooKeeper's
/// protocol and on complaints of its users.
const OF_SERVERS: [u32; 79] = [
    335, 569, 582, 596, 764, 769, 790, 880, 962, 1154, 1156, 1192, 1270, 1277, 1282, 1291, 1319,
    1343, 1367, 1419, 1489, 1514, 1549, 1551, 1653, 1699, 1732, 1783, 1805, 1818, 2080, 2164, 2172,
    2307, 2325, 2354, 2355, 2418, 2623, 2819, 2845, 2846, 2872, 2959, 3023, 3056, 3104, 3109, 3125,
    3127, 3144, 3145, 3249, 3306, 3471, 3526, 3642, 3644, 3701, 3720, 3769, 3781, 3829, 3911, 4269,
    4352, 4394, 4643, 4646, 4685, 4712, 4785, 4787, 4837, 4846, 4882, 4886, 4925, 5094,
];

/// Collects the test functions below a directory, with the comments directly above them.
fn tests_below(folder: &Path, tests: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut comment = String::new();
            for line in fs::read_to_string(&path).unwrap().lines().map(str::trim) {
                if let Some(text) = line.strip_prefix("///") {
                    comment.push_str(text);
                } else if let Some((_, rest)) = line.split_once("fn ")
                    && let Some((name, _)) = rest.split_once('(')
                {
                    tests.insert(name.to_owned(), std::mem::take(&mut comment));
                } else if !line.starts_with("#[") {
                    comment.clear();
                }
            }
        }
    }
}

fn tests_in(folders: &[&str]) -> BTreeMap<String, String> {
    let mut tests = BTreeMap::new();
    for folder in folders {
        tests_below(&repo::root().join("crates").join(folder), &mut tests);
    }
    tests
}

fn rows(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"))
}

/// Returns the tests named in a row. Their names are long; other words in backquotes are commands
/// or parts of names.
fn named(row: &str) -> impl Iterator<Item = &str> {
    let quoted = row.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.matches('_').count() > 3 && !name.contains(' '))
}

/// Returns the numbers in a text.
fn numbers(text: &str) -> BTreeSet<u32> {
    text.split(|sign: char| !sign.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[track_caller]
fn check_that_all_are_tests<'a>(
    named: impl IntoIterator<Item = &'a str>,
    tests: &BTreeMap<String, String>,
) {
    let missing: Vec<_> = named.into_iter().filter(|name| !tests.contains_key(*name)).collect();
    assert!(missing.is_empty(), "in the list, but no tests: {missing:#?}");
}

#[test]
fn the_list_of_known_bugs_and_the_tests_agree() {
    let tests = tests_in(&[
        "ironkeeper-recipes/src",
        "ironkeeper-recipes/tests",
        "ironkeeper-client/tests",
    ]);
    let list =
        fs::read_to_string(repo::root().join("crates/ironkeeper-recipes/known-bugs.md")).unwrap();
    let named: BTreeSet<&str> = rows(&list).flat_map(named).collect();
    check_that_all_are_tests(named.iter().copied(), &tests);
    let unlisted: Vec<_> = tests
        .keys()
        .filter(|name| ORIGINS.iter().any(|origin| name.starts_with(origin)))
        .filter(|name| name.split('_').nth(1).is_some_and(|word| word.parse::<u32>().is_ok()))
        .filter(|name| !named.contains(name.as_str()))
        .collect();
    assert!(unlisted.is_empty(), "tests, but not in the list: {unlisted:#?}");
    for number in 1..=43 {
        assert!(list.contains(&format!("\n| {number} | ")), "number {number} is left out");
    }
}

#[test]
fn the_list_of_the_servers_bugs_and_the_tests_agree() {
    let tests = tests_in(&[
        "ironkeeper-sim/tests",
        "ironkeeper-zab/src",
        "ironkeeper-zab/tests",
        "ironkeeper-store/tests",
        "ironkeeper-tree/tests",
        "ironkeeper-engine/tests",
        "ironkeeper-node/src",
        "ironkeeper-server/src",
    ]);
    let list =
        fs::read_to_string(repo::root().join("crates/ironkeeper-sim/known-bugs.md")).unwrap();
    let (kept_out, impossible) = list.split_once("What cannot happen here:").unwrap();
    check_that_all_are_tests(rows(kept_out).flat_map(named), &tests);
    let mut listed = numbers(&rows(impossible).collect::<String>());
    for row in rows(kept_out).skip(1) {
        let bugs = numbers(row.split('|').nth(1).unwrap());
        let told: BTreeSet<u32> = named(row).flat_map(|name| numbers(&tests[name])).collect();
        let untold: Vec<_> = bugs.difference(&told).collect();
        assert!(untold.is_empty(), "no test named in this row tells of {untold:?}: {row}");
        listed.extend(bugs);
    }
    let left_out: Vec<_> = OF_SERVERS.iter().filter(|bug| !listed.contains(bug)).collect();
    assert!(left_out.is_empty(), "in no row: {left_out:?}");
    for story in tests_in(&["ironkeeper-sim/tests"]).values() {
        let unlisted: Vec<_> =
            numbers(story).into_iter().filter(|bug| *bug > 100 && !listed.contains(bug)).collect();
        assert!(unlisted.is_empty(), "told, but not in the list: {unlisted:?}");
    }
}
