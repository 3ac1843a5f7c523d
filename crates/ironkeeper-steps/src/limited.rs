//! `cargo xtask limited`: runs a command and kills it after a timeout.
//!
//! `cargo xtask test` runs every test binary this way: a test that waits forever becomes one failed
//! binary instead of a run that never ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

/// The interval at which a running command is polled.
const LOOK: Duration = Duration::from_millis(20);

/// Options of `cargo xtask limited`.
#[derive(Debug, Args)]
pub struct Options {
    /// The timeout in seconds.
    seconds: u64,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Its whole output.
    pub text: String,
    pub end: End,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Well,
    Failed,
    Hung,
}

/// Runs a command until it exits, or kills it after the limit. The output goes to a file first,
/// because a process that the command leaves behind may keep a pipe open.
pub fn run_to_file(command: &mut Command, log_path: &Path, limit: Duration) -> Result<Ran> {
    let log = File::create(log_path)?;
    let began = Instant::now();
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} did not start", program.display()))?;
    let end = match wait(&mut child, limit)? {
        Some(status) if status.success() => End::Well,
        Some(_) => End::Failed,
        None => End::Hung,
    };
    let text = String::from_utf8_lossy(&fs::read(log_path)?).into_owned();
    Ok(Ran { text, end, took: began.elapsed() })
}

/// Runs the command; returns whether it succeeded in time.
pub fn run(options: &Options) -> Result<bool> {
    let [program, arguments @ ..] = options.command.as_slice() else {
        anyhow::bail!("a command is needed");
    };
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("{} did not start", program.display()))?;
    let limit = Duration::from_secs(options.seconds);
    match wait(&mut child, limit)? {
        Some(status) => Ok(status.success()),
        None => {
            eprintln!("{} hangs: ended after {} s", program.display(), limit.as_secs());
            Ok(false)
        }
    }
}

/// Waits for a process to exit; kills it after the limit and returns `None`.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(seconds: u64, command: &[&str]) -> Options {
        Options { seconds, command: command.iter().map(OsString::from).collect() }
    }

    #[test]
    fn a_command_that_hangs_is_ended_and_counts_as_failed() {
        assert!(!run(&command(0, &["sleep", "3600"])).unwrap());
    }

    #[test]
    fn output_and_end_of_a_command_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let run = |script: &str, seconds| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let limit = Duration::from_secs(seconds);
            run_to_file(&mut command, &dir.path().join("log"), limit).unwrap()
        };
        let ran = run("echo out; echo err >&2; exit 3", 3600);
        assert_eq!((ran.text.as_str(), ran.end), ("out\nerr\n", End::Failed));
        assert_eq!(run("true", 3600).end, End::Well);
        assert_eq!(run("exec sleep 3600", 0).end, End::Hung);
    }

    #[test]
    fn a_command_that_ends_gives_its_own_result() {
        assert!(run(&command(3600, &["true"])).unwrap());
        assert!(!run(&command(3600, &["false"])).unwrap());
        assert!(run(&command(3600, &["no-such-command"])).is_err());
    }
}
