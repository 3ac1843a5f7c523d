//! Each contender a process of its own, as contenders for a distributed lock are.
//!
//! The server counts: a hand-over is two transactions with either library, one node made and one deleted. A
//! virtual machine that has its turn every thirty-second time takes minutes to get warm, so nothing is taken
//! for a figure before it has stopped growing.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::measured::{Load, cpu_seconds, median};
use crate::server::Server;

/// The server's count is read this often.
const WINDOW: Duration = Duration::from_secs(10);
/// The figure is the median of so many windows, and settled if that of those before was not much lower.
const SETTLED_WINDOWS: usize = 10;
/// What counts as growth.
const GROWTH_MIN: f64 = 1.03;
/// However slowly it grows, it ends after so many windows.
const WINDOWS_MAX: usize = 60;

/// Lets so many of them contend, all given the same command, until their rate has settled.
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
    let mut windows: Vec<Load> = Vec::new();
    loop {
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
        if has_settled(&windows.iter().map(Load::per_second).collect::<Vec<_>>()) {
            break;
        }
    }
    let last = &windows[windows.len() - SETTLED_WINDOWS.min(windows.len())..];
    let middle = |of: fn(&Load) -> f64| median(last.iter().map(of));
    Ok(Load {
        name: "hand-overs".to_owned(),
        operations: middle(|load| load.operations),
        seconds: middle(|load| load.seconds),
        cpu_seconds: middle(|load| load.cpu_seconds),
    })
}

fn has_settled(rates: &[f64]) -> bool {
    let middle = |rates: &[f64]| median(rates.iter().copied());
    let mut periods = rates.rchunks_exact(SETTLED_WINDOWS);
    let (Some(last), Some(before)) = (periods.next(), periods.next()) else { return false };
    rates.len() >= WINDOWS_MAX || middle(last) <= middle(before) * GROWTH_MIN
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_grows_has_not_settled() {
        assert!(!has_settled(&[]));
        assert!(!has_settled(&[1.0; 2 * SETTLED_WINDOWS - 1]), "too little to compare");
        assert!(has_settled(&[1.0; 2 * SETTLED_WINDOWS]));
        let mut rates = vec![1.0; SETTLED_WINDOWS];
        rates.extend([1.1; SETTLED_WINDOWS]);
        assert!(!has_settled(&rates));
        rates.extend([1.1; SETTLED_WINDOWS / 2]);
        rates.push(1.5);
        assert!(has_settled(&rates), "one good window is no growth");
    }

    #[test]
    fn a_rate_that_never_settles_is_given_up_on() {
        let growing: Vec<f64> = (0..WINDOWS_MAX).map(|n| 1.1f64.powi(n as i32)).collect();
        assert!(!has_settled(&growing[1..]));
        assert!(has_settled(&growing));
    }
}
