//! CPU time and memory of a process, read from Linux `/proc`.

use std::fs;
use std::time::Duration;

/// Kernel ticks per second in `/proc/<pid>/stat`: 100 on every architecture of Linux today.
const TICKS_PER_SECOND: f64 = 100.0;

/// The resources that a process has used so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    pub cpu: Duration,
    pub resident_bytes: u64,
}

/// Returns the usage of a process; `None` when it has ended or the system has no `/proc`.
pub(crate) fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage { cpu: cpu(&stat)?, resident_bytes: resident(&status)? })
}

/// Returns the sum of the usage of several processes; `None` if `pids` is empty or a process has
/// ended.
pub(crate) fn total_usage(pids: &[u32]) -> Option<Usage> {
    let mut usages = pids.iter().map(|pid| usage(*pid));
    let first = usages.next()??;
    usages.try_fold(first, |sum, next| {
        let next = next?;
        Some(Usage {
            cpu: sum.cpu + next.cpu,
            resident_bytes: sum.resident_bytes + next.resident_bytes,
        })
    })
}

/// Returns the usage of this process.
pub(crate) fn own_usage() -> Option<Usage> {
    usage(std::process::id())
}

/// Reads user and system time: fields 14 and 15. The name in field 2 may contain any character, so
/// fields are counted from its closing parenthesis.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let total = ticks.next()?.ok()? + ticks.next()?.ok()?;
    Some(Duration::from_secs_f64(total as f64 / TICKS_PER_SECOND))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 5 0 0 0 150 50 0 0 20 0 1 0 99 1 2 3";
        assert_eq!(cpu(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu("42 (cut"), None);
    }

    #[test]
    fn usages_add_up_unless_one_is_missing() {
        let me = std::process::id();
        let (one, two) = (total_usage(&[me]).unwrap(), total_usage(&[me, me]).unwrap());
        assert!(two.resident_bytes > one.resident_bytes);
        assert_eq!(total_usage(&[me, u32::MAX]), None);
        assert_eq!(total_usage(&[]), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1024 kB\nRssAnon: 1 kB\n"), Some(1 << 20));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
