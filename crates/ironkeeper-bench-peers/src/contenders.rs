//! Contenders for a lock, in one process or in many, which are stopped and continued by signals.
//!
//! Handovers are counted on the server: a handover is two transactions with either library, the
//! creation of one node and the deletion of another.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ironkeeper_peers::server::Server;
use ironkeeper_steps::process;

use crate::measured::{Load, cpu_seconds};

/// The time between SIGCONT and the first measurement, in which the contenders resume.
const START: Duration = Duration::from_millis(50);

pub struct Contenders(Vec<Child>);

impl Contenders {
    /// Starts the contenders; they run until they are halted.
    pub fn start(commands: Vec<Command>) -> Result<Contenders> {
        let mut contenders = Contenders(Vec::new());
        for mut command in commands {
            let child = command.stdout(Stdio::null()).spawn().context("cannot be started")?;
            contenders.0.push(child);
        }
        Ok(contenders)
    }

    pub fn halt(&mut self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Continues the contenders for this time, counts their handovers and halts them.
    pub fn take_turn(&mut self, server: &Server, length: Duration) -> Result<Load> {
        self.signal("-CONT")?;
        thread::sleep(START);
        let (began, before, cpu_before) = (Instant::now(), handovers(server)?, self.cpu()?);
        thread::sleep(length);
        let load = Load {
            name: "hand-overs".to_owned(),
            operations: handovers(server)? - before,
            seconds: began.elapsed().as_secs_f64(),
            cpu_seconds: self.cpu()? - cpu_before,
        };
        self.halt()?;
        Ok(load)
    }

    fn signal(&mut self, signal: &str) -> Result<()> {
        let pids = self.0.iter().map(|child| child.id().to_string());
        process::run(Command::new("kill").arg(signal).args(pids)).map(drop)
    }

    fn cpu(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for child in &mut self.0 {
            ensure!(child.try_wait()?.is_none(), "a contender ended early");
            sum += cpu_seconds(child.id())?;
        }
        Ok(sum)
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Returns the number of handovers since the server started, plus a constant.
fn handovers(server: &Server) -> Result<f64> {
    let zxid = server.last_zxid().context("the server serves nobody")?;
    let digits = zxid.trim_start_matches("0x");
    let zxid = i64::from_str_radix(digits, 16).with_context(|| format!("{zxid} is no zxid"))?;
    Ok(zxid as f64 / 2.0)
}
