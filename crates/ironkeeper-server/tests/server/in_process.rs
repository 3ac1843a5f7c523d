//! A server in this process, with its own port and directory.

use std::time::{Duration, Instant};

use ironkeeper_config::Config;
use ironkeeper_server::Server;
use tempfile::TempDir;

use crate::client::{PATIENCE, TIMEOUT_MS};

/// Returns a configuration with any free port and long sessions; [`start`] sets the directory.
pub fn config() -> Config {
    let mut config = Config::standalone_default("unset".into());
    config.client_address.port = 0;
    config.max_session_timeout_ms = TIMEOUT_MS as u32;
    config
}

/// Starts a server. The directory is deleted when the second value is dropped.
pub fn start(mut config: Config) -> (Server, TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    dir.path().clone_into(&mut config.data_dir);
    dir.path().clone_into(&mut config.data_log_dir);
    let server = Server::start(config).expect("a server");
    (server, dir)
}

/// Waits until a condition holds, by polling.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
