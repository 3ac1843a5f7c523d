//! The limit on open files; every connection is one.
//!
//! A server that uses all of them for clients cannot create a new log file and has to stop. So some
//! are reserved.

/// Reserved for the log, snapshots, directories, listeners and the threads' pollers; at most half
/// of the limit.
const FILES_KEPT: u64 = 128;

/// Returns the number of connections that the limit allows; zero if there is no limit.
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
