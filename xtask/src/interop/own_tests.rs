//! Tests of our own crates, on the server under test instead of the embedded one.
//!
//! They are built as `cargo xtask test` builds them, so that there is nothing to build after it; and they are run
//! several binaries at a time, since they wait for replies more than they compute.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Lab, Tally};
use crate::{limited, repo, tools};

/// How long one binary may take: many times what the slowest takes.
const BINARY_MAX: Duration = Duration::from_secs(300);

/// Tests of one package.
pub struct OwnTests<'a> {
    pub package: &'a str,
    /// Which of its test binaries; all of them if none is named.
    pub binary: Option<&'a str>,
    /// How many binaries run at a time, and how many tests of each.
    pub binaries_at_once: usize,
    pub threads: usize,
    /// Where the server is.
    pub address: &'a str,
    /// Further variables of the environment.
    pub environment: &'a [(&'a str, String)],
}

impl OwnTests<'_> {
    /// Runs them to the end and counts.
    pub fn run(&self, lab: &Lab<'_>) -> Result<Tally> {
        let binaries = Mutex::new(self.build()?.into_iter());
        let next = || binaries.lock().expect("nobody panics with it").next();
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let work = || {
                let mut tally = Tally::default();
                while let Some(binary) = next() {
                    tally.add(self.run_one(lab, &binary)?);
                }
                Ok(tally)
            };
            let workers: Vec<_> = (0..self.binaries_at_once).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                let worked: Result<Tally> = worker.join().expect("it passes its errors on");
                tally.add(worked?);
            }
            Ok(tally)
        })
    }

    fn build(&self) -> Result<Vec<PathBuf>> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "--workspace", "--all-features", "--no-run"])
            .arg("--message-format=json-render-diagnostics")
            .current_dir(repo::root())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        ensure!(output.status.success(), "the tests do not build");
        let messages = String::from_utf8_lossy(&output.stdout);
        let binaries = binaries(&messages, self.package, self.binary);
        ensure!(!binaries.is_empty(), "{} has no such tests", self.package);
        Ok(binaries)
    }

    fn run_one(&self, lab: &Lab<'_>, binary: &Path) -> Result<Tally> {
        let name = binary.file_stem().unwrap_or_default();
        let log_path = lab.dir.join(name).with_extension("log");
        let log = File::create(&log_path)?;
        let mut child = Command::new(binary)
            .args(["--format", "pretty", "--test-threads", &self.threads.to_string()])
            .env("IRONKEEPER_TEST_SERVER", self.address)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(repo::root().join("crates").join(self.package))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let ended = limited::wait(&mut child, BINARY_MAX)?;
        let text = fs::read_to_string(&log_path)?;
        let mut tally = count(&text);
        let succeeded = ended.is_some_and(|status| status.success());
        if !succeeded && tally.failures.is_empty() {
            let what = if ended.is_some() { "ended early" } else { "hung" };
            let name = name.to_string_lossy();
            tally.failures.push(format!("{name} {what}: {}", tools::tail(&text, 20)));
        }
        Ok(tally)
    }
}

/// The test binaries of a package among what cargo has built.
fn binaries(messages: &str, package: &str, wanted: Option<&str>) -> Vec<PathBuf> {
    let manifest = Path::new("crates").join(package).join("Cargo.toml");
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|built| {
            let target = &built["target"];
            let is_of_package = built["manifest_path"]
                .as_str()
                .is_some_and(|path| Path::new(path).ends_with(&manifest));
            is_of_package
                && target["kind"][0] == "test"
                && wanted.is_none_or(|name| target["name"] == name)
        })
        .filter_map(|built| built["executable"].as_str().map(PathBuf::from))
        .collect()
}

/// What the test runner says of each test.
fn count(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("test ")) {
        match line.rsplit_once(" ... ") {
            Some((_, "ok")) => tally.passed += 1,
            Some((name, _)) => tally.failures.push(name.to_owned()),
            None => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_failures_named() {
        let tally = count(
            "\nrunning 2 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\n\
             test result: FAILED. 1 passed; 1 failed\n",
        );
        assert_eq!(tally.passed, 1);
        assert_eq!(tally.failures, ["a::two"]);
    }

    #[test]
    fn the_binaries_of_one_package_are_found() {
        let built = |manifest: &str, kind: &str, name: &str| {
            serde_json::json!({
                "manifest_path": format!("/repo/crates/{manifest}/Cargo.toml"),
                "target": { "kind": [kind], "name": name },
                "executable": format!("/target/{name}-1"),
            })
            .to_string()
        };
        let messages = [
            built("ours", "test", "lock"),
            built("ours", "lib", "ours"),
            "not JSON".to_owned(),
            built("theirs", "test", "lock"),
            built("ours", "test", "queue"),
        ]
        .join("\n");
        let all = [Path::new("/target/lock-1"), Path::new("/target/queue-1")];
        assert_eq!(binaries(&messages, "ours", None), all);
        assert_eq!(binaries(&messages, "ours", Some("queue")), all[1..]);
    }
}
