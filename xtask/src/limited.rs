//! `cargo xtask limited`: runs a command and ends it if it hangs.
//!
//! `cargo xtask test` runs every test binary this way: a test that waits for ever is then one failed binary,
//! and not a run that never ends.

use std::ffi::OsString;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Options of `cargo xtask limited`.
#[derive(Debug, Args)]
pub struct Options {
    /// How long the command may take.
    seconds: u64,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Whether the command ended well and in time.
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

/// Waits for a process to end; kills it when the time is over, and then there is no status.
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
    fn a_command_that_ends_gives_its_own_result() {
        assert!(run(&command(3600, &["true"])).unwrap());
        assert!(!run(&command(3600, &["false"])).unwrap());
        assert!(run(&command(3600, &["no-such-command"])).is_err());
    }
}
