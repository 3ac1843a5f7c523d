//! The test binaries of this workspace: built once, with the options of `cargo xtask test`, and run
//! concurrently.
//!
//! Cargo runs one binary after the other. Ours wait for servers, disks and clocks more than they
//! compute, so running several at a time takes much less time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::limited::Ran;
use crate::{limited, repo};

/// One test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestBinary {
    pub executable: PathBuf,
    /// The directory of its package, which is its working directory.
    pub home: PathBuf,
    pub package: String,
    /// `lib`, `bin` or `test`.
    pub kind: String,
    pub name: String,
}

impl TestBinary {
    /// Returns the cargo arguments that select only this binary.
    pub fn arguments(&self) -> String {
        let target = match self.kind.as_str() {
            "lib" => "--lib".to_owned(),
            kind => format!("--{kind} {}", self.name),
        };
        format!("-p {} {target}", self.package)
    }

    /// Runs the binary until it exits, or kills it after the limit. Its output goes to a file in
    /// `logs` first.
    pub fn run(
        &self,
        adjust: impl FnOnce(&mut Command),
        limit: Duration,
        logs: &Path,
    ) -> Result<Ran> {
        let log_path =
            logs.join(self.executable.file_name().unwrap_or_default()).with_extension("log");
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.home);
        adjust(&mut command);
        limited::run_to_file(&mut command, &log_path, limit)
    }
}

/// Builds all tests of the workspace, with all features.
pub fn build() -> Result<Vec<TestBinary>> {
    Ok(binaries(&messages()?, is_test))
}

/// Builds all targets of the tests, and returns the path of an example, which is among them and not
/// optimized.
pub fn example(package: &str, name: &str) -> Result<PathBuf> {
    let is_it = |built: &Value| built["target"]["kind"][0] == "example";
    binaries(&messages()?, is_it)
        .into_iter()
        .find(|built| built.package == package && built.name == name)
        .map(|built| built.executable)
        .with_context(|| format!("{package} has no example {name}"))
}

/// Returns cargo's messages about the built targets. Cargo runs only once, because several suites
/// need them.
fn messages() -> Result<String> {
    static SAID: Mutex<Option<String>> = Mutex::new(None);
    let mut said = SAID.lock().expect("no holder of the lock panics");
    if let Some(said) = &*said {
        return Ok(said.clone());
    }
    let output = crate::cargo::command()
        .args(["test", "--quiet", "--workspace", "--all-features", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(repo::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    Ok(said.insert(String::from_utf8_lossy(&output.stdout).into_owned()).clone())
}

fn is_test(built: &Value) -> bool {
    built["profile"]["test"] == true
}

/// Returns the selected binaries from cargo's messages.
fn binaries(messages: &str, is_wanted: impl Fn(&Value) -> bool) -> Vec<TestBinary> {
    let of_message = |built: Value| {
        if !is_wanted(&built) {
            return None;
        }
        let home = Path::new(built["manifest_path"].as_str()?).parent()?.to_owned();
        Some(TestBinary {
            executable: PathBuf::from(built["executable"].as_str()?),
            // Directories have the names of their packages.
            package: home.file_name()?.to_string_lossy().into_owned(),
            home,
            kind: built["target"]["kind"][0].as_str()?.to_owned(),
            name: built["target"]["name"].as_str()?.to_owned(),
        })
    };
    messages.lines().filter_map(|line| of_message(serde_json::from_str(line).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_among_what_cargo_says() {
        let built = |manifest: &str, kind: &str, name: &str, test: bool| {
            serde_json::json!({
                "manifest_path": format!("/repo/crates/{manifest}/Cargo.toml"),
                "target": { "kind": [kind], "name": name },
                "profile": { "test": test },
                "executable": format!("/target/{name}-1"),
            })
            .to_string()
        };
        let messages = [
            built("ours", "test", "lock", true),
            built("ours", "lib", "ours", true),
            "not JSON".to_owned(),
            built("ours", "example", "show", false),
        ]
        .join("\n");
        let found = binaries(&messages, is_test);
        let arguments: Vec<_> = found.iter().map(TestBinary::arguments).collect();
        assert_eq!(arguments, ["-p ours --test lock", "-p ours --lib"]);
        assert_eq!(found[0].executable, Path::new("/target/lock-1"));
        assert_eq!(found[0].home, Path::new("/repo/crates/ours"));
    }
}
