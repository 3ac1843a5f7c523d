//! The server in the test's own process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_proto::{ServerId, SessionId};
use ironkeeper_server::Server;
use ironkeeper_server::config::Config;
use tempfile::TempDir;

use crate::builder::Builder;
use crate::error::Error;
use crate::port::HeldPort;
use crate::role::Role;

/// Longer than anything takes here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the server.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// A whole ZooKeeper server in this process, on a port of 127.0.0.1 and in a directory of its own.
/// Dropping it stops it and removes the directory.
///
/// It is set up for tests: session timeouts from 100 milliseconds to an hour, TTL nodes allowed, every
/// four-letter word answered, no waiting for the disk, empty containers and expired TTL nodes removed
/// within a moment. [`TestServer::builder`] sets everything otherwise.
///
/// Any number may run side by side, as tests do. All methods take `&self`, so one server can be
/// shared. None needs a runtime, and none waits for a client: the server has threads of its own, so
/// even the single thread of an async test may call them.
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
    /// `None` while it is stopped. Goes before the port and the directory it uses.
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
    /// Starts a server with what suits most tests. Clients can connect when this returns.
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

    /// Chooses port, directory and settings first.
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

    /// What a client is given to connect: `127.0.0.1:` and the port. It stays the same over restarts.
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

    /// Where the server listens.
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

    /// The port the server listens on, which stays reserved while it is stopped.
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

    /// Where the data is: logs and snapshots are in `version-2` below it.
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

    /// Stops the server: connections are closed, new ones refused. Data and port are kept for
    /// [`TestServer::restart`]. Does nothing if it is stopped already.
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

    /// Starts the server again, on the same port and data, stopping it first if it runs. Sessions
    /// live on if their clients come back in time; the time begins anew.
    ///
    /// The connections of all clients break. `ironkeeper-client` fails the request that notices it
    /// with `ErrorKind::ConnectionLoss` and retries nothing on its own: a test that makes a request
    /// after a restart should make it by `client.retry(&policy, || ..)`, as the README shows.
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

    /// Why the server has stopped by itself, if it has: most of all a panic on one of its threads,
    /// which is a bug of Ironkeeper, with thread, place and reason. Its connections are closed
    /// then. A test need not ask: [`TestServer::stop`] and [`TestServer::restart`] return it as
    /// [`Error::Failed`], and dropping the server panics with it.
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

    /// Whether the server runs. One that has stopped by itself counts as running until its
    /// [`failure`](TestServer::failure) was fetched with [`TestServer::stop`].
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

    /// Ends a session at once, exactly as if its client had been silent for too long: its ephemeral
    /// nodes and its connection are gone when this returns, and the client, when it comes back, is
    /// told that the session is expired. False if there is no such session.
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

    /// The sessions there are, connected or not, in the order of their ids.
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

    /// Closes every connection there is now. Sessions live on, and their clients may come back at
    /// once. Returns how many connections it were.
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

    /// How many connections there are.
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

    /// What the server is doing in its ensemble, see [`TestCluster`](crate::TestCluster); on its own it
    /// is its own leader.
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

    /// Cuts the network between this member of an ensemble and others, or heals it.
    pub(crate) fn cut_off(&self, others: &BTreeSet<i64>) {
        if let Some(server) = self.running().as_ref()
            && let Some(member) = &server.shared().core.member
        {
            member.links.cut_off(others.iter().map(|id| ServerId(*id)));
        }
    }

    /// Whether the session or a connection of it is still there.
    pub(crate) fn knows_session(&self, session: SessionId) -> bool {
        let running = self.running();
        running.as_ref().is_some_and(|server| {
            let shared = server.shared();
            shared.connections.all().iter().any(|conn| conn.session() == session)
                || shared.core.db.read().sessions.contains(session)
        })
    }

    /// Decides the end of a session; false if it is unknown here.
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
    /// If the server had failed and the test has not fetched the reason: it must not pass
    /// unnoticed.
    fn drop(&mut self) {
        if let Err(failure) = self.stop()
            && !std::thread::panicking()
        {
            panic!("{failure}");
        }
    }
}

/// Waits for something that only a look at the server can tell.
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
