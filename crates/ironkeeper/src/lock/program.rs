//! The program that runs under a lock, and everything that it has started.
//!
//! A script whose shell is stopped leaves what it was just running behind, and that would go on without the lock. So
//! all descendants are told to end. Whoever loses its parent becomes a child of this process (where the system is
//! Linux), so that nobody among them is overlooked; groups of processes are left alone, since a terminal reads and
//! interrupts by them.

use std::collections::HashMap;
use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How often it is looked who is left: only a look tells.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct Program {
    child: Child,
}

impl Program {
    pub fn start(command: &mut Command) -> Result<Program> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid())).context("cannot take in orphans")?;
        #[cfg(target_os = "linux")]
        end_with_parent(command);
        Ok(Program { child: command.kill_on_drop(true).spawn()? })
    }

    /// Resolves when the program itself has ended. What it has left to run behind it is its own affair.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.context("cannot wait for the program")
    }

    /// Passes a signal on to the program itself.
    pub fn tell(&self, what: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.into_iter().for_each(|pid| send(pid, what));
    }

    /// Ends the program and all that it has started: they are told to, and killed if they take longer than this.
    pub async fn stop(mut self, patience: Duration) -> Result<()> {
        self.tell(Signal::TERM);
        for process in descendants() {
            send(process, Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while self.child.try_wait()?.is_none() || !descendants().is_empty() {
            if Instant::now() >= deadline {
                for process in descendants() {
                    send(process, Signal::KILL);
                }
                self.child.start_kill()?;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// Whoever kills this process with a signal that it cannot catch kills the program with it, though not what that has
/// started.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before it was asked.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec it makes two system calls and nothing else.
    unsafe { command.pre_exec(ask) };
}

fn send(to: Pid, what: Signal) {
    // Whoever is not there any more needs no telling.
    let _ = kill_process(to, what);
}

/// All processes below this one that have not ended. None where there is no `/proc`.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        if let Some((pid, parent)) = parse_stat(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut to_ask = vec![getpid()];
    while let Some(pid) = to_ask.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            to_ask.push(child);
        }
    }
    found
}

/// A process and its parent, unless it has ended and only waits to be asked how.
fn parse_stat(stat: &str) -> Option<(Pid, Pid)> {
    // The name of the program stands in parentheses, and may have any in it.
    let (pid, rest) = stat.split_once(' ')?;
    let mut fields = rest.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (fields.next()?, fields.next()?);
    let number = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    (state != "Z").then_some((number(pid)?, number(parent)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_parent_are_read_whatever_its_name_is() {
        let pids =
            |stat| parse_stat(stat).map(|(pid, parent)| (pid.as_raw_pid(), parent.as_raw_pid()));
        assert_eq!(pids("12 (sh) S 7 12 12 0 -1"), Some((12, 7)));
        assert_eq!(pids("12 (a) S 9 (b) R 7 12"), Some((12, 7)));
        assert_eq!(pids("12 (sh) Z 7 12 12 0 -1"), None);
        assert_eq!(pids(""), None);
    }
}
