//! Checks the dependencies of the workspace against the lists in `deny.toml`: licences, sources,
//! crates in two versions, and dependencies that no source file names.
//!
//! `cargo deny` and `cargo machete` check the same and more, but are tools with two hundred crates
//! to build. These tests need only `cargo tree`, without a network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A package in the build of the workspace.
struct Package {
    name: String,
    version: String,
    /// `None` for crates.io.
    source: Option<String>,
    license: String,
}

/// Returns the packages that `Cargo.lock` selects for this platform, with all features.
fn packages() -> Vec<Package> {
    let output = ironkeeper_steps::cargo::command()
        .args(["tree", "--offline", "--locked", "--workspace", "--all-features"])
        .args(["--prefix", "none", "--format", "{p}\t{l}\t"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let packages: Vec<Package> = lines.into_iter().map(package).collect();
    assert!(packages.len() > 50, "cargo tree lists {} packages", packages.len());
    packages
}

/// Parses `name v1.2.3 (source)<tab>licence<tab>`; crates of crates.io have no source, and `(*)`
/// and `(proc-macro)` are notes.
fn package(line: &str) -> Package {
    let (package, rest) = line.split_once('\t').expect("a line has two fields");
    let license = rest.split('\t').next().unwrap_or_default().to_owned();
    let mut words = package.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let version = words.next().and_then(|word| word.strip_prefix('v'));
    let version = version.expect("a version follows the name").to_owned();
    let source = words.find(|word| !matches!(*word, "(*)" | "(proc-macro)")).map(str::to_owned);
    Package { name, version, source, license }
}

/// Returns the strings in the lines that follow `start` in `deny.toml` up to the line `]`.
fn listed(start: &str) -> Vec<String> {
    let deny = read(&root().join("deny.toml"));
    let mut lines = deny.lines().skip_while(|line| *line != start);
    assert!(lines.next().is_some(), "deny.toml has no line {start:?}");
    let entries = lines.take_while(|line| *line != "]");
    let entries = entries.filter_map(|line| line.split('"').nth(1)).map(str::to_owned);
    entries.collect()
}

/// Returns whether the SPDX expression can be satisfied with the allowed licences. `AND` binds more
/// tightly than `OR`; the old form `A/B` means `A OR B`.
fn is_allowed(license: &str, allowed: &[String]) -> bool {
    let spaced = license.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let satisfied = any_of(&words, &mut at, allowed);
    satisfied && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut satisfied = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        satisfied |= all_of(words, at, allowed);
    }
    satisfied
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut satisfied = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        satisfied &= one(words, at, allowed);
    }
    satisfied
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let satisfied = any_of(words, at, allowed);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return satisfied && is_closed;
    }
    let mut license = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        license = format!("{word} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    allowed.contains(&license)
}

/// Returns the folders of the workspace's members.
fn members() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the crates can be listed");
    let mut members: Vec<PathBuf> = crates.map(|entry| entry.expect("an entry").path()).collect();
    members.push(root().join("xtask"));
    members.retain(|member| member.join("Cargo.toml").is_file());
    members.sort();
    members
}

/// Returns the dependencies in a manifest, and those it declares as needed without being named.
fn dependencies(manifest: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut dependencies, mut ignored) = (BTreeSet::new(), BTreeSet::new());
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if section.ends_with("dependencies") {
            // Comments, and the further lines of a list, do not begin with a name.
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if key.starts_with(|first: char| first.is_alphanumeric()) {
                dependencies.insert(key);
            }
        } else if section == "package.metadata.cargo-machete" {
            ignored.extend(line.split('"').skip(1).step_by(2));
        }
    }
    (dependencies, ignored)
}

/// Appends all Rust sources and the documentation with examples below a folder.
fn append_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            append_sources(&path, text);
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "md") {
            text.push_str(&read(&path));
        }
    }
}

/// Returns whether the text contains the name as a whole identifier.
fn names(text: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

#[test]
fn every_licence_is_allowed_by_deny_toml() {
    let allowed = listed("allow = [");
    for Package { name, version, license, .. } in packages() {
        assert!(is_allowed(&license, &allowed), "{name} {version} has the licence {license:?}");
    }
}

#[test]
fn dependencies_come_from_crates_io_only() {
    for Package { name, version, source, .. } in packages() {
        if let Some(source) = source {
            let path = Path::new(source.trim_matches(['(', ')']));
            assert!(path.starts_with(root()), "{name} {version} comes from {source}");
        }
    }
}

#[test]
fn two_versions_of_a_crate_are_listed_in_deny_toml() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let skipped = listed("skip = [");
    for (name, versions) in &versions {
        let of_crate = versions.iter().map(|version| format!("{name}@{version}"));
        let rest: Vec<String> = of_crate.filter(|version| !skipped.contains(version)).collect();
        assert_eq!(rest.len(), 1, "more than one version without an entry in deny.toml: {rest:?}");
    }
    for skipped in &skipped {
        let (name, version) = skipped.split_once('@').expect("an entry is name@version");
        let is_second =
            versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version));
        assert!(is_second, "deny.toml lists {skipped}, which is not a second version");
    }
}

#[test]
fn every_dependency_is_named_in_the_sources() {
    let mut checked = 0;
    for member in members() {
        let manifest = read(&member.join("Cargo.toml"));
        let (dependencies, ignored) = dependencies(&manifest);
        let mut sources = String::new();
        append_sources(&member, &mut sources);
        for dependency in &dependencies {
            let is_named = names(&sources, &dependency.replace('-', "_"));
            assert!(
                is_named != ignored.contains(dependency),
                "{}: {dependency} is unused, or is used and listed as ignored",
                member.display()
            );
            checked += 1;
        }
        let unknown: Vec<_> = ignored.difference(&dependencies).collect();
        assert!(unknown.is_empty(), "{}: not dependencies: {unknown:?}", member.display());
    }
    assert!(checked > 50, "{checked} dependencies");
}

#[test]
fn expressions_of_licences_are_evaluated() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (license, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("GPL-3.0 AND MIT OR ISC", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("(MIT", false),
        ("MIT ISC", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(license, &allowed), expected, "{license:?}");
    }
}

#[test]
fn dependencies_of_a_manifest_are_found() {
    let manifest = [
        "[package]",
        "name = \"x\"",
        "[package.metadata.cargo-machete]",
        "ignored = [\"a-b\"]",
        "[dependencies]",
        "# c = 1",
        "a-b.workspace = true",
        "c = { version = \"1\", features = [",
        "    \"d\",",
        "] }",
        "[target.'cfg(unix)'.dependencies]",
        "e = \"1\"",
        "[lints]",
        "workspace = true",
    ];
    let manifest = manifest.join("\n");
    let (all, ignored) = dependencies(&manifest);
    assert_eq!(all, BTreeSet::from(["a-b", "c", "e"]));
    assert_eq!(ignored, BTreeSet::from(["a-b"]));
    assert!(names("use a_b::c;", "a_b") && !names("use a_b_c;", "a_b"));
}
