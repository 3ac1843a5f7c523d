//! Commands that run until they exit.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command until it exits; a non-zero exit status is an error that contains its output.
pub fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {program}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    bail!("{program} failed ({}):\n{}", output.status, tail(&format!("{stdout}{stderr}"), 20))
}

/// Returns the last `lines` lines of a text, where programs print the reason of their exit.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
