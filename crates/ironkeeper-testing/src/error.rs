//! What can go wrong.

use std::io;

use ironkeeper_server::StartError;
use ironkeeper_server::config::ConfigError;
use thiserror::Error;

/// Why a test server could not be started, stopped or told something.
///
/// ```
/// use ironkeeper_testing::{Error, TestServer};
///
/// let typo = TestServer::builder().set("tikTime", "50").start();
/// assert!(matches!(typo, Err(Error::Setting(_))));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no free port, or the one asked for is taken.
    #[error("no port for the test server: {0}")]
    Port(#[source] io::Error),
    /// The temporary directory could not be made.
    #[error("no temporary directory for the test server: {0}")]
    Dir(#[source] io::Error),
    /// The settings contradict each other or have values that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting would not do what the test expects of it, such as one with a typo in its name.
    #[error("the test server cannot be set up as asked: {0}")]
    Setting(String),
    /// The server did not come up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server is stopped, and what was asked needs a running one.
    #[error("the test server is stopped; call restart() first")]
    Stopped,
    /// The server had failed before it was stopped.
    #[error("the test server had failed: {0}")]
    Failed(String),
    /// The server did not do what it was asked in any reasonable time.
    #[error("the test server does not react: {0}")]
    Unresponsive(&'static str),
}
