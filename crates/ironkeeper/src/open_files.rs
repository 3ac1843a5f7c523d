//! The limit on open files. Every connection is an open file, and the usual soft limit is far below
//! the hard limit.

/// Raises the soft limit to the hard limit. If that fails, later attempts to open connections
/// report the limit.
#[cfg(unix)]
pub fn allow_all() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(not(unix))]
pub fn allow_all() {}
