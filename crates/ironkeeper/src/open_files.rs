//! The limit on open files. Every connection is one, and the usual soft limit is far below what the
//! system would give.

/// Raises the soft limit to the hard one. Where that fails, opening connections will say so.
#[cfg(unix)]
pub fn allow_all() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(not(unix))]
pub fn allow_all() {}
