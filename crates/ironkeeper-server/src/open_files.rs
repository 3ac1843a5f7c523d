//! The limit on open files, of which every connection is one.
//!
//! A server that gives all of them to clients cannot begin a new log file, and has to stop. So some
//! are kept back.

/// For the log, snapshots, directories, listeners and the threads' pollers; half of a tiny limit.
const FILES_KEPT: u64 = 128;

/// How many connections the limit leaves room for; zero if there is no limit.
#[cfg(unix)]
pub fn connections_max() -> u32 {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::Nofile).current {
        None => 0,
        Some(files) => u32::try_from(files - FILES_KEPT.min(files / 2)).unwrap_or(0),
    }
}

#[cfg(not(unix))]
pub fn connections_max() -> u32 {
    0
}
