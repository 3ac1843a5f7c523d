//! One member of a cluster: a process.

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
use crate::four_letter::{self, Overview};

/// How long a member may take to say how it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long a member may take to end in good order.
const END_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Member {
    pub place: Place,
    /// Ends with the cluster, whatever ends that.
    process: Option<Child>,
    paused: bool,
    /// What it logs, if that was chosen.
    log_filter: Option<String>,
}

impl Member {
    pub fn new(place: Place, log_filter: Option<String>) -> Member {
        Member { place, process: None, paused: false, log_filter }
    }

    /// Whether there is a process, paused or not.
    pub fn is_running(&mut self) -> bool {
        self.pid().is_some() && !self.has_ended()
    }

    /// Starts the process unless it runs. What it has to say goes to its log.
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
        // A Ctrl-C is for the cluster, which then stops its members in order.
        #[cfg(unix)]
        command.process_group(0);
        let process = command.kill_on_drop(true).spawn().context("a server cannot be started")?;
        self.process = Some(process);
        self.paused = false;
        Ok(())
    }

    /// Notices that the process has ended.
    fn has_ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return true };
        let ended = !matches!(process.try_wait(), Ok(None));
        if ended {
            self.process = None;
        }
        ended
    }

    /// Whether it runs, and is not paused.
    pub fn is_up(&mut self) -> bool {
        !self.has_ended() && !self.paused
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// How a member is that does not say so itself.
    pub fn condition(&self) -> &'static str {
        match &self.process {
            None => "stopped",
            Some(_) if self.paused => "paused",
            Some(_) => "looking",
        }
    }

    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill().await;
        }
    }

    /// Asks it to end in good order.
    pub fn terminate(&mut self) {
        self.resume();
        self.signal(Signal::TERM);
    }

    /// Waits for the end, but not for ever.
    pub async fn ended(&mut self) {
        if let Some(process) = &mut self.process
            && timeout(END_WITHIN, process.wait()).await.is_err()
        {
            tracing::warn!("server {} does not end; it is killed", self.place.id);
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

    /// How it is; `None` if it does not serve.
    pub fn ask(&self) -> impl Future<Output = Option<Overview>> + use<> {
        let host = Host::new("127.0.0.1", self.place.client_port);
        async move { four_letter::overview(&host, ANSWER_WITHIN).await.ok() }
    }
}
