//! One member of a cluster, as a process.

use std::fs::OpenOptions;
use std::future::Future;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_client::Host;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::layout::Place;
use ironkeeper_shell::four_letter::{self, Overview};

/// The timeout of a status request to a member.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long a member may take to shut down.
const END_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Member {
    pub place: Place,
    /// Killed on drop. It survives only if the cluster process is killed by a signal that cannot be
    /// caught.
    process: Option<Child>,
    paused: bool,
    /// The log filter, if one was specified.
    log_filter: Option<String>,
}

impl Member {
    pub fn new(place: Place, log_filter: Option<String>) -> Member {
        Member { place, process: None, paused: false, log_filter }
    }

    /// Returns whether the process exists, paused or not.
    pub fn is_running(&mut self) -> bool {
        self.pid().is_some() && !self.has_ended()
    }

    /// Starts the process unless it runs. Its output is appended to its log.
    pub fn start(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log = &self.place.log;
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let output = open().with_context(|| log.display().to_string())?;
        let program = std::env::current_exe().context("where this program is")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(&self.place.config);
        command.env("IRONKEEPER_LOG", self.log_filter.as_deref().unwrap_or("info"));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // Ctrl-C is meant for the cluster, which then stops its members in order.
        #[cfg(unix)]
        command.process_group(0);
        let process = command.kill_on_drop(true).spawn().context("a server cannot be started")?;
        self.process = Some(process);
        self.paused = false;
        Ok(())
    }

    /// Checks whether the process has ended, and forgets it if so.
    fn has_ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return true };
        let ended = !matches!(process.try_wait(), Ok(None));
        if ended {
            self.process = None;
        }
        ended
    }

    /// Returns whether the process runs and is not paused.
    pub fn is_up(&mut self) -> bool {
        !self.has_ended() && !self.paused
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// Returns the state of a member that does not reply.
    pub fn condition(&self) -> &'static str {
        match &self.process {
            None => "stopped",
            Some(_) if self.paused => "paused",
            Some(_) => "looking",
        }
    }

    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The process may have ended already.
            let _ = process.kill().await;
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) {
        self.resume();
        self.signal(Signal::TERM);
    }

    /// Waits until the process has ended, at most `END_WITHIN`, then kills it.
    pub async fn ended(&mut self) {
        if let Some(process) = &mut self.process
            && timeout(END_WITHIN, process.wait()).await.is_err()
        {
            tracing::warn!(server = self.place.id, "server does not stop, killing it");
        }
        self.kill().await;
    }

    pub fn pause(&mut self) {
        self.paused = self.signal(Signal::STOP);
    }

    pub fn resume(&mut self) {
        if self.paused {
            self.signal(Signal::CONT);
            self.paused = false;
        }
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Requests the status of the member; `None` if it does not serve requests.
    pub fn ask(&self) -> impl Future<Output = Option<Overview>> + use<> {
        let host = Host::new("127.0.0.1", self.place.client_port);
        async move { four_letter::overview(&host, ANSWER_WITHIN).await.ok() }
    }
}
