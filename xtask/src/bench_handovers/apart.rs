//! Each contender a process of its own, as contenders for a distributed lock are.
//!
//! The server counts: a hand-over is two transactions with either library, one node made and one deleted. A virtual
//! machine that has its turn every thirty-second time takes about four minutes until everything in it is compiled, and
//! gets faster by half in the last of them: both libraries get more time than that.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::measured::{Load, cpu_seconds, median};
use crate::server::Server;

/// Not counted.
const WARM_UP: Duration = Duration::from_secs(360);
/// The server's count is read this often after that.
const WINDOW: Duration = Duration::from_secs(10);
/// The figure is the median of so many windows.
const WINDOWS: usize = 10;

/// Lets so many of them contend, all given the same command.
pub fn measure(
    server: &Server,
    contenders: u32,
    mut command: impl FnMut() -> Result<Command>,
) -> Result<Load> {
    let mut crowd = Crowd(Vec::new());
    for _ in 0..contenders {
        // One contender in this process, for longer than anybody looks.
        let mut command = command()?;
        command.arg(server.address()).args(["1", "1", "1000000"]);
        let child = command.stdout(Stdio::null()).spawn().context("cannot be started")?;
        crowd.0.push(child);
    }
    thread::sleep(WARM_UP);
    let mut windows: Vec<Load> = Vec::new();
    for _ in 0..WINDOWS {
        let (began, before, cpu_before) = (Instant::now(), handovers(server)?, crowd.cpu()?);
        thread::sleep(WINDOW);
        let window = Load {
            name: "hand-overs".to_owned(),
            operations: handovers(server)? - before,
            seconds: began.elapsed().as_secs_f64(),
            cpu_seconds: crowd.cpu()? - cpu_before,
        };
        eprintln!("  {:.0}/s", window.per_second());
        windows.push(window);
    }
    let middle = |of: fn(&Load) -> f64| median(windows.iter().map(of));
    Ok(Load {
        name: "hand-overs".to_owned(),
        operations: middle(|load| load.operations),
        seconds: middle(|load| load.seconds),
        cpu_seconds: middle(|load| load.cpu_seconds),
    })
}

/// How often the lock has changed hands since the server began, and a constant.
fn handovers(server: &Server) -> Result<f64> {
    let zxid = server.last_zxid().context("the server serves nobody")?;
    let digits = zxid.trim_start_matches("0x");
    let zxid = i64::from_str_radix(digits, 16).with_context(|| format!("{zxid} is no zxid"))?;
    Ok(zxid as f64 / 2.0)
}

/// Processes that end with this.
struct Crowd(Vec<Child>);

impl Crowd {
    fn cpu(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for child in &mut self.0 {
            ensure!(child.try_wait()?.is_none(), "a contender ended early");
            sum += cpu_seconds(child.id())?;
        }
        Ok(sum)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}
