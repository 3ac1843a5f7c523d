//! A server in the process of the test.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_config::Config;
use ironkeeper_proto::{ServerId, SessionId};
use ironkeeper_server::Server;
use tempfile::TempDir;

use crate::builder::Builder;
use crate::error::Error;
use crate::port::HeldPort;
use crate::role::Role;

/// A timeout longer than any operation needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks in [`until`].
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// A complete ZooKeeper server in this process, with its own port on 127.0.0.1 and its own
/// directory. Dropping it stops the server and removes the directory.
///
/// The settings are made for tests: session timeouts from 100 milliseconds to an hour, TTL nodes
/// allowed, all four-letter words enabled, no fsync, empty containers and expired TTL nodes removed
/// within milliseconds. [`TestServer::builder`] changes any of them.
///
/// Any number of servers can run in parallel. All methods take `&self`, so tasks can share one
/// server. No method needs a runtime, and none waits for a client: the server has its own threads,
/// so the single thread of an async test can call all methods.
///
/// ```
/// use ironkeeper_testing::TestServer;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let server = TestServer::start()?;
///     println!("connect your client to {}", server.connect_string());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "TestingServer")]
#[doc(alias = "EmbeddedZookeeper")]
pub struct TestServer {
    config: Config,
    /// `None` while stopped. Declared, and so dropped, before the port and the directory it uses.
    running: Mutex<Option<Server>>,
    port: HeldPort,
    dir: DataDir,
}

#[derive(Debug)]
pub(crate) enum DataDir {
    Temporary(TempDir),
    Given(PathBuf),
}

impl DataDir {
    pub(crate) fn path(&self) -> &Path {
        match self {
            DataDir::Temporary(dir) => dir.path(),
            DataDir::Given(path) => path,
        }
    }
}

impl TestServer {
    /// Starts a server with the default settings for tests. Clients can connect when this returns.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.port()));
    ///     Ok(())
    /// }
    /// ```
    pub fn start() -> Result<TestServer, Error> {
        TestServer::builder().start()
    }

    /// Returns a builder that sets port, directory and settings.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::builder().set("enforceQuota", "true").start()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn launch(
        config: Config,
        port: HeldPort,
        dir: DataDir,
    ) -> Result<TestServer, Error> {
        let running = Mutex::new(Some(Server::start(config.clone())?));
        Ok(TestServer { config, running, port, dir })
    }

    /// Returns the connect string, `127.0.0.1:` and the port. It stays the same across restarts.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     let with_chroot = format!("{}/app", server.connect_string());
    ///     Ok(())
    /// }
    /// ```
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// Returns the address on which the server listens.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert!(server.address().ip().is_loopback());
    ///     Ok(())
    /// }
    /// ```
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the port on which the server listens; it stays reserved while the server is stopped.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let (one, other) = (TestServer::start()?, TestServer::start()?);
    ///     assert_ne!(one.port(), other.port());
    ///     Ok(())
    /// }
    /// ```
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// Returns the data directory; logs and snapshots are in its subdirectory `version-2`.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert!(server.data_dir().join("version-2").is_dir());
    ///     Ok(())
    /// }
    /// ```
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Stops the server: closes connections and refuses new ones. Data and port are kept for
    /// [`TestServer::restart`]. Does nothing if the server is stopped already.
    ///
    /// ```
    /// use std::net::TcpStream;
    ///
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     server.stop()?;
    ///     assert!(TcpStream::connect(server.address()).is_err());
    ///     Ok(())
    /// }
    /// ```
    pub fn stop(&self) -> Result<(), Error> {
        match self.running().take() {
            Some(server) => server.stop().map_err(Error::Failed),
            None => Ok(()),
        }
    }

    /// Starts the server again with the same port and data; stops it first if it is running. A
    /// session survives if its client reconnects within the session timeout, which starts again.
    ///
    /// All client connections break. `ironkeeper-client` fails the affected request with
    /// `ErrorKind::ConnectionLoss` and does not retry by itself: a test that sends a request after
    /// a restart should use `client.retry(&policy, || ..)`, as the README shows.
    ///
    /// ```
    /// use std::net::TcpStream;
    ///
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     server.stop()?;
    ///     server.restart()?;
    ///     assert!(TcpStream::connect(server.address()).is_ok());
    ///     Ok(())
    /// }
    /// ```
    pub fn restart(&self) -> Result<(), Error> {
        let mut running = self.running();
        if let Some(server) = running.take() {
            server.stop().map_err(Error::Failed)?;
        }
        *running = Some(Server::start(self.config.clone())?);
        Ok(())
    }

    /// Returns why the server has stopped by itself, if it has: usually a panic on one of its
    /// threads, which is a bug of Ironkeeper, with thread, location and message. All connections
    /// are closed then. A test need not call this: [`TestServer::stop`] and [`TestServer::restart`]
    /// return the failure as [`Error::Failed`], and dropping the server panics with it.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// let server = TestServer::start()?;
    /// assert_eq!(server.failure(), None);
    /// # Ok::<(), ironkeeper_testing::Error>(())
    /// ```
    pub fn failure(&self) -> Option<String> {
        self.running().as_ref().and_then(Server::failure)
    }

    /// Returns true if the server is running. A server that has stopped by itself counts as running
    /// until [`TestServer::stop`] has returned its [`failure`](TestServer::failure).
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert!(server.is_running());
    ///     server.stop()?;
    ///     assert!(!server.is_running());
    ///     Ok(())
    /// }
    /// ```
    pub fn is_running(&self) -> bool {
        self.running().is_some()
    }

    /// Expires a session at once, as if the session timeout had passed. When this returns, its
    /// ephemeral nodes are deleted and its connection is closed; a client that reconnects receives
    /// "session expired". Returns false if there is no such session.
    ///
    /// ```
    /// use ironkeeper_testing::{SessionId, TestServer};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert!(!server.kill_session(SessionId(0x1234))?);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "KillSession")]
    #[doc(alias = "expire_session")]
    pub fn kill_session(&self, session: SessionId) -> Result<bool, Error> {
        if !self.expire(session)? {
            return Ok(false);
        }
        until("a session does not end", || !self.knows_session(session))?;
        Ok(true)
    }

    /// Returns all sessions, connected or not, ordered by id.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert!(server.sessions()?.is_empty());
    ///     Ok(())
    /// }
    /// ```
    pub fn sessions(&self) -> Result<Vec<SessionId>, Error> {
        let running = self.running();
        let server = running.as_ref().ok_or(Error::Stopped)?;
        let sessions = server.shared().core.db.read().sessions.sorted();
        Ok(sessions.into_iter().map(|(session, _)| session).collect())
    }

    /// Closes all connections that are open now and returns their number. Sessions are not closed,
    /// and their clients may reconnect at once.
    ///
    /// ```
    /// use std::io::Read;
    /// use std::net::TcpStream;
    ///
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     let mut stream = TcpStream::connect(server.address())?;
    ///     while server.connections()? == 0 {}
    ///     assert_eq!(server.drop_connections()?, 1);
    ///     assert_eq!(stream.read(&mut [0])?, 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn drop_connections(&self) -> Result<usize, Error> {
        let running = self.running();
        let server = running.as_ref().ok_or(Error::Stopped)?;
        let shared = server.shared();
        let before: Vec<u64> = shared.connections.all().iter().map(|conn| conn.id).collect();
        server.drop_connections();
        until("a connection does not end", || {
            !shared.connections.all().iter().any(|conn| before.contains(&conn.id))
        })?;
        Ok(before.len())
    }

    /// Returns the number of open connections.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert_eq!(server.connections()?, 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn connections(&self) -> Result<usize, Error> {
        let running = self.running();
        Ok(running.as_ref().ok_or(Error::Stopped)?.shared().connections.len())
    }

    /// Returns the role of the server in its ensemble, see [`TestCluster`](crate::TestCluster); a
    /// standalone server is [`Role::Leader`].
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestServer};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     assert_eq!(server.role(), Role::Leader);
    ///     server.stop()?;
    ///     assert_eq!(server.role(), Role::Stopped);
    ///     Ok(())
    /// }
    /// ```
    pub fn role(&self) -> Role {
        let running = self.running();
        let Some(server) = running.as_ref().filter(|server| server.failure().is_none()) else {
            return Role::Stopped;
        };
        match &server.shared().core.member {
            None => Role::Leader,
            Some(member) => member.status().into(),
        }
    }

    /// Blocks the connections between this member of an ensemble and `others`, and allows all other
    /// connections.
    pub(crate) fn cut_off(&self, others: &BTreeSet<i64>) {
        if let Some(server) = self.running().as_ref()
            && let Some(member) = &server.shared().core.member
        {
            member.links.cut_off(others.iter().map(|id| ServerId(*id)));
        }
    }

    /// Returns true if the session, or a connection of it, still exists on this server.
    pub(crate) fn knows_session(&self, session: SessionId) -> bool {
        let running = self.running();
        running.as_ref().is_some_and(|server| {
            let shared = server.shared();
            shared.connections.all().iter().any(|conn| conn.session() == session)
                || shared.core.db.read().sessions.contains(session)
        })
    }

    /// Submits the expiry of a session; returns false if this server does not know the session.
    pub(crate) fn expire(&self, session: SessionId) -> Result<bool, Error> {
        let running = self.running();
        Ok(running.as_ref().ok_or(Error::Stopped)?.expire_session(session))
    }

    fn running(&self) -> MutexGuard<'_, Option<Server>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TestServer {
    /// # Panics
    /// If the server had failed and the test has not read the reason, so that the failure is
    /// reported.
    fn drop(&mut self) {
        if let Err(failure) = self.stop()
            && !std::thread::panicking()
        {
            panic!("{failure}");
        }
    }
}

/// Polls until `holds` returns true; fails after [`PATIENCE`].
pub(crate) fn until(complaint: &'static str, mut holds: impl FnMut() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(Error::Unresponsive(complaint));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(())
}
