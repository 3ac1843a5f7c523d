//! Builds in the background what later steps of `cargo xtask test` need, while tests wait for servers and disks.
//!
//! With the lowest priority, so that tests do not notice. A step that comes too early waits for cargo's lock on that
//! build, and one whose build failed here builds for itself and says why.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{ironkeeper, permutations, repo, sim};

/// How often a build is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Builds under way. Dropping this ends them.
#[derive(Debug)]
pub struct BuildAhead {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BuildAhead {
    /// One after the other, in the order of the steps.
    pub fn start() -> BuildAhead {
        BuildAhead::start_with(vec![
            permutations::build_command(),
            sim::build_command(),
            ironkeeper::build_checked_command(),
        ])
    }

    fn start_with(builds: Vec<Command>) -> BuildAhead {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = is_over.clone();
            move || {
                for build in builds {
                    run(&build, &is_over);
                }
            }
        });
        BuildAhead { is_over, thread: Some(thread) }
    }
}

impl Drop for BuildAhead {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It only looks after processes; a panic there is nobody's concern here.
            let _ = thread.join();
        }
    }
}

/// Runs a build to its end, or until it is over.
fn run(build: &Command, is_over: &AtomicBool) {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(build.get_program()).args(build.get_args());
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(repo::root()).stdin(Stdio::null()).stdout(Stdio::null());
    let Ok(mut child) = command.stderr(Stdio::null()).spawn() else { return };
    while let Ok(None) = child.try_wait() {
        if is_over.load(Ordering::Acquire) {
            end(&mut child);
            return;
        }
        thread::sleep(LOOK);
    }
}

fn end(child: &mut Child) {
    // Both fail only when the process is gone already, which is what is wanted.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn builds_go_on_one_after_the_other_and_end_with_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("built");
        let mut first = Command::new("touch");
        first.arg(&file);
        let mut endless = Command::new("sleep");
        endless.arg("3600");
        let ahead = BuildAhead::start_with(vec![first, endless]);
        while !file.exists() {
            thread::sleep(LOOK);
        }
        let began = Instant::now();
        drop(ahead);
        assert!(began.elapsed() < Duration::from_secs(600));
    }
}
