//! The program that runs under a lock, and all its descendants.
//!
//! If only the shell of a script were stopped, the command that it was running would continue
//! without the lock. So all descendants are stopped. On Linux an orphaned descendant becomes a
//! child of this process, so none is missed. Process groups are not changed, because a terminal
//! uses them for input and for interrupts.

use std::collections::HashMap;
use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The interval at which the remaining descendants are polled; there is no notification of their
/// end.
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

    /// Resolves when the program itself has ended. Background processes that it leaves are not
    /// awaited.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.context("cannot wait for the program")
    }

    /// Sends a signal to the program itself.
    pub fn tell(&self, what: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.into_iter().for_each(|pid| send(pid, what));
    }

    /// Stops the program and all its descendants: sends SIGTERM, and SIGKILL after `patience`.
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

/// Makes the kernel kill the program when this process is killed by a signal that it cannot catch.
/// This does not apply to the descendants of the program.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the call.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls and nothing else.
    unsafe { command.pre_exec(ask) };
}

fn send(to: Pid, what: Signal) {
    // The process may have ended already.
    let _ = kill_process(to, what);
}

/// Returns all descendants of this process that have not ended; none where there is no `/proc`.
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

/// Returns a process and its parent, unless the process is a zombie.
fn parse_stat(stat: &str) -> Option<(Pid, Pid)> {
    // The program name is in parentheses, and may contain parentheses.
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
