//! Information of the operating system about this process and its machine.
//!
//! Read from `/proc`, without unsafe code. On other systems than Linux most of it is unknown.

use std::fs;

/// Returns the number of open files, including sockets.
pub(super) fn open_files() -> Option<i64> {
    let entries = fs::read_dir("/proc/self/fd").or_else(|_| fs::read_dir("/dev/fd")).ok()?;
    // The directory being read is open itself and is not counted.
    Some(entries.count() as i64 - 1)
}

/// Returns the maximum number of open files.
pub(super) fn open_files_max() -> Option<i64> {
    parse_open_files_max(&fs::read_to_string("/proc/self/limits").ok()?)
}

/// Returns the soft limit; `i64::MAX` if there is none.
fn parse_open_files_max(limits: &str) -> Option<i64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(i64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns the bytes of memory that this process occupies.
pub(super) fn resident_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the bytes of memory of the machine.
pub(super) fn machine_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

pub(super) fn host_name() -> Option<String> {
    first_line("/proc/sys/kernel/hostname").or_else(|| std::env::var("HOSTNAME").ok())
}

pub(super) fn kernel_release() -> Option<String> {
    first_line("/proc/sys/kernel/osrelease")
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns name and home of the user of this process, from `/etc/passwd` or else from the
/// environment.
pub(super) fn user() -> (Option<String>, Option<String>) {
    let listed = effective_uid().and_then(|uid| {
        let users = fs::read_to_string("/etc/passwd").ok()?;
        parse_user(&users, uid)
    });
    match listed {
        Some((name, home)) => (Some(name), Some(home)),
        None => (std::env::var("USER").ok(), std::env::var("HOME").ok()),
    }
}

fn effective_uid() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

fn parse_user(users: &str, uid: u32) -> Option<(String, String)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id, home) = (fields.next()?, fields.nth(1)?, fields.nth(2)?);
        (id.parse() == Ok(uid)).then(|| (name.to_owned(), home.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_sizes_are_found_in_the_kernel_s_texts() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             1                    2                    processes\n\
                      Max open files            20000                1048576              files\n";
        assert_eq!(parse_open_files_max(limits), Some(20_000));
        assert_eq!(parse_open_files_max("Max open files   unlimited unlimited"), Some(i64::MAX));
        assert_eq!(parse_open_files_max(""), None);
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234 * 1024));
        assert_eq!(kilobytes("VmRSS:\t many kB\n", "VmRSS:"), None);
    }

    #[test]
    fn users_are_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nzk:x:115:120::/var/lib/zk:/bin/false\nbroken\n";
        assert_eq!(parse_user(users, 115), Some(("zk".to_owned(), "/var/lib/zk".to_owned())));
        assert_eq!(parse_user(users, 7), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_all_of_it() {
        let (open, most) = (open_files().unwrap(), open_files_max().unwrap());
        assert!(0 < open && open <= most, "{open} of {most}");
        assert!(resident_bytes().unwrap() <= machine_bytes().unwrap());
        assert!(host_name().is_some() && kernel_release().is_some());
    }
}
