//! The programs of this workspace: the Ironkeeper binary and others.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, repo};

/// The cargo profile for tests: optimized, with all assertions, and without the settings that make
/// a release build slow. It is for the simulator and other programs that are tested but not
/// measured.
pub const CHECKED: &str = "checked";
const RELEASE: &str = "release";

/// The programs of this profile, always built together. Built one by one, their common crates would
/// be built twice: the simulator needs features of `tokio` and `ironkeeper-zab` (seeded bugs for
/// tests) that the server does not.
const CHECKED_PROGRAMS: [&str; 2] = ["ironkeeper", "ironkeeper-sim"];

/// Builds the binary for tests and returns its path.
pub fn build_checked() -> Result<PathBuf> {
    build_programs(CHECKED, &CHECKED_PROGRAMS, "bin", "ironkeeper")
}

/// Returns the command that [`build_checked`] and [`build_simulator`] run.
pub fn build_checked_command() -> Command {
    build_command(CHECKED, &CHECKED_PROGRAMS, "bin", "ironkeeper")
}

/// Builds the simulator and returns its path.
pub fn build_simulator() -> Result<PathBuf> {
    build_programs(CHECKED, &CHECKED_PROGRAMS, "bin", "ironkeeper-sim")
}

/// Builds the release binary and returns its path.
pub fn build() -> Result<PathBuf> {
    build_program(RELEASE, "ironkeeper", "bin", "ironkeeper")
}

/// Builds the example `name` of the crate `package` in release and returns its path.
pub fn build_example(package: &str, name: &str) -> Result<PathBuf> {
    build_program(RELEASE, package, "example", name)
}

fn build_command(profile: &str, packages: &[&str], kind: &str, name: &str) -> Command {
    let mut command = cargo::command();
    command.args(["build", "--profile", profile, "--locked"]);
    for package in packages {
        command.args(["--package", package]);
    }
    match kind {
        // One build for all packages.
        "bin" => command.arg("--bins"),
        _ => command.args([&format!("--{kind}"), name]),
    };
    command.arg("--message-format=json-render-diagnostics");
    command
}

fn build_program(profile: &str, package: &str, kind: &str, name: &str) -> Result<PathBuf> {
    build_programs(profile, &[package], kind, name)
}

/// Builds programs of this kind of all packages and returns the path of one.
fn build_programs(profile: &str, packages: &[&str], kind: &str, name: &str) -> Result<PathBuf> {
    eprintln!("building {name} ({profile})");
    let output = build_command(profile, packages, kind, name)
        .current_dir(repo::root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{name} does not build");
    }
    // Cargo reports the path of the binary; a path guessed from target directories fails with some
    // of its settings.
    let messages = String::from_utf8_lossy(&output.stdout);
    messages
        .lines()
        .filter(|line| {
            line.contains(&format!("\"name\":\"{name}\""))
                && line.contains(&format!("\"kind\":[\"{kind}\"]"))
        })
        .find_map(|line| {
            let (_, rest) = line.split_once("\"executable\":\"")?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        })
        .with_context(|| format!("cargo built {name} but named no executable"))
}
