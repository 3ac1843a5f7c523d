//! The resident memory of processes: the present value, and the peak since a moment.

use std::fs;

use anyhow::{Context, Result};

/// Returns the resident memory in megabytes, for readable sums and tables.
pub fn resident_mb(pids: &[u32]) -> Result<u64> {
    sum_mb(pids, "VmRSS:")
}

/// Returns the sum of the peaks of all processes since [`forget_peak`].
pub fn peak_mb(pids: &[u32]) -> Result<u64> {
    sum_mb(pids, "VmHWM:")
}

pub fn forget_peak(pids: &[u32]) -> Result<()> {
    for pid in pids {
        fs::write(format!("/proc/{pid}/clear_refs"), "5")
            .context("the peak of a process's memory cannot be reset, which needs Linux")?;
    }
    Ok(())
}

fn sum_mb(pids: &[u32], field: &str) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .context("memory is read from /proc, which only Linux has")?;
        sum += kibibytes(&status, field).context("the process has ended")?;
    }
    Ok(sum / 1024)
}

fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_from_the_status_of_a_process() {
        let status = "Name:\tserver\nVmHWM:\t  204800 kB\nVmRSS:\t   10240 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(10_240));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(204_800));
        assert_eq!(kibibytes("Name:\tzombie\n", "VmRSS:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_of_a_running_process_is_at_least_what_it_has() {
        let own = [std::process::id()];
        assert!(peak_mb(&own).unwrap() >= resident_mb(&own).unwrap());
    }
}
