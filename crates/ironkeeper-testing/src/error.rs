//! Errors of the test servers.

use std::io;

use ironkeeper_config::ConfigError;
use ironkeeper_server::StartError;
use thiserror::Error;

/// The reason why a test server could not be started, stopped or controlled.
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
    /// There is no free port, or the requested port is in use.
    #[error("no port for the test server: {0}")]
    Port(#[source] io::Error),
    /// The temporary directory could not be created.
    #[error("no temporary directory for the test server: {0}")]
    Dir(#[source] io::Error),
    /// The settings contradict each other or have invalid values.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting is unknown or would have no effect, such as a key with a typo.
    #[error("the test server cannot be set up as asked: {0}")]
    Setting(String),
    /// The server failed to start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server is stopped, and the call needs a running server.
    #[error("the test server is stopped; call restart() first")]
    Stopped,
    /// The server had failed before it was stopped.
    #[error("the test server had failed: {0}")]
    Failed(String),
    /// The server did not reach the expected state within a minute.
    #[error("the test server does not react: {0}")]
    Unresponsive(&'static str),
}
