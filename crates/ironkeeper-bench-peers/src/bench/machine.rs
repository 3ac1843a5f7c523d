//! A description of the machine on which the figures were measured; figures are not comparable
//! without it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::Plan;

/// Returns facts about the machine, the data directory and the run.
pub fn note(plan: &Plan) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut facts = Vec::new();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let model =
        field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".to_owned());
    facts.push(format!("{cores} cores ({model})"));
    if let Some(kib) = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|total| total.strip_suffix(" kB")?.trim().parse::<f64>().ok())
    {
        facts.push(format!("{:.0} GB of memory", kib * 1024.0 / 1e9));
    }
    facts.push(format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()));
    if let Some(kind) = filesystem(&read("/proc/self/mounts"), plan.dir.path()) {
        facts.push(format!("data on {kind}, fsync on"));
    }
    if let Some(java) = java_version() {
        facts.push(java);
    }
    facts.push(format!(
        "load generator on the same machine; medians of {} rounds, of figures and of the rounds' own ratios",
        plan.rounds
    ));
    match plan.ensemble {
        Some(members) => facts.push(format!("{members} members on the same machine")),
        None => facts.push(format!("big tree of {} nodes of 100 bytes", plan.nodes)),
    }
    if let Some(load) = plan.load_before {
        facts.push(format!("load average before {load}"));
    }
    facts
}

/// Returns the load average of the last minute.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Returns the first value of a field in the `name : value` files of `/proc`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the type of the file system of a path: that of the mount point with the longest common
/// prefix.
fn filesystem(mounts: &str, path: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (_, point, kind) = (words.next()?, words.next()?, words.next()?);
            path.starts_with(point).then_some((point.len(), kind))
        })
        .max_by_key(|(len, _)| *len)
        .map(|(_, kind)| kind.to_owned())
}

fn java_version() -> Option<String> {
    let output = Command::new("java").arg("-version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = text.lines().next()?.split('"').nth(1)?;
    Some(format!("Java {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_decides() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/data xfs rw 0 0\n";
        let on = |path: &str| filesystem(mounts, Path::new(path));
        assert_eq!(on("/home/x").as_deref(), Some("ext4"));
        assert_eq!(on("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(on("/tmp/data/x").as_deref(), Some("xfs"));
        assert_eq!(on("/tmp/database").as_deref(), Some("tmpfs"));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel\t\t: 7\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 3 GHz"));
        assert_eq!(field(text, "model").as_deref(), Some("7"));
        assert_eq!(field(text, "name"), None);
    }
}
