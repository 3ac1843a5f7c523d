//! The settings of a client.

use std::sync::Arc;
use std::time::Duration;

use ironkeeper_proto::SessionId;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::chroot::Chroot;
use crate::client::Client;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::hosts::ConnectString;
use crate::random::Random;
use crate::session::machine::{Machine, Settings};
use crate::shared::Shared;
use crate::transport::{TcpTransport, Transport};

/// The largest request, the default limit of Apache's servers.
const REQUEST_BYTES_MAX: usize = 0xf_ffff;
/// Servers do not limit their replies; the names of a million children have to fit.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
const WATCH_EVENTS_MAX: usize = 16 * 1024;

/// The settings of a client. Created by [`Client::builder`].
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::builder("127.0.0.1:2181")
///         .session_timeout(Duration::from_secs(10))
///         .connect_timeout(Duration::from_secs(30))
///         .read_only(true)
///         .connect()
///         .await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "CuratorFrameworkFactory")]
pub struct ClientBuilder {
    connect_string: String,
    connect_timeout: Duration,
    settings: Settings,
    credentials: Vec<(String, Vec<u8>)>,
    transport: Arc<dyn Transport>,
    watch_events_max: usize,
    seed: Option<u64>,
    session: Option<(SessionId, [u8; 16])>,
}

impl ClientBuilder {
    pub(crate) fn new(connect_string: &str) -> ClientBuilder {
        ClientBuilder {
            connect_string: connect_string.to_owned(),
            connect_timeout: Duration::from_secs(15),
            settings: Settings {
                session_timeout: Duration::from_secs(30),
                attempt_timeout: None,
                read_only: false,
                reply_bytes_max: REPLY_BYTES_MAX,
                request_bytes_max: REQUEST_BYTES_MAX,
                waiting_bytes_max: WAITING_BYTES_MAX,
            },
            credentials: Vec::new(),
            transport: Arc::new(TcpTransport),
            watch_events_max: WATCH_EVENTS_MAX,
            seed: None,
            session: None,
        }
    }

    /// Sets how long the session survives a broken connection; 30 s by default. After that time the
    /// server deletes the ephemeral nodes of the session, so that other clients can acquire its
    /// locks.
    ///
    /// The timeout is a request: the server grants at least its `minSessionTimeout` and at most its
    /// `maxSessionTimeout`, by default 2 and 20 times its `tickTime`. A server whose `tickTime` is
    /// 3000 ms grants 6 s to a client that requests 4 s. [`Client::session_timeout`] returns the
    /// granted timeout, and the client logs a warning if it differs from the requested one.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let asked = Duration::from_millis(1);
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").session_timeout(asked).connect().await?;
    ///     assert!(client.session_timeout() > asked); // no server grants so little
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "sessionTimeoutMs")]
    pub fn session_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.settings.session_timeout = timeout;
        self
    }

    /// Sets how long [`ClientBuilder::connect`] waits for the first connection; 15 s by default.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181")
    ///         .connect_timeout(Duration::from_secs(30))
    ///         .connect()
    ///         .await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "connectionTimeoutMs")]
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time for a single server to accept the session before the client tries the next
    /// one. The default is the session timeout divided by the number of servers.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181")
    ///         .attempt_timeout(Duration::from_secs(1))
    ///         .connect()
    ///         .await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn attempt_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.settings.attempt_timeout = Some(timeout);
        self
    }

    /// Permits a server without a quorum if no other is available. Such a server only serves reads.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181").read_only(true).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "canBeReadOnly")]
    pub fn read_only(mut self, allowed: bool) -> ClientBuilder {
        self.settings.read_only = allowed;
        self
    }

    /// Adds credentials for all connections. May be called several times.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").auth("digest", "user:password").connect().await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "authorization")]
    #[doc(alias = "addAuthInfo")]
    pub fn auth(mut self, scheme: &str, auth: impl AsRef<[u8]>) -> ClientBuilder {
        self.credentials.push((scheme.to_owned(), auth.as_ref().to_vec()));
        self
    }

    /// Sets the transport; plain TCP by default.
    ///
    /// ```
    /// use ironkeeper_client::{Client, TcpTransport};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").transport(TcpTransport).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn transport(mut self, transport: impl Transport) -> ClientBuilder {
        self.transport = Arc::new(transport);
        self
    }

    /// Sets the size of the largest request, 1048575 bytes by default: the limit of the servers,
    /// which close the connection without a reply if a request exceeds it.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, ErrorKind};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").max_request_bytes(1000).connect().await?;
    ///     let error = client.create("/n", [0; 2000], CreateMode::Persistent).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::RequestTooLarge);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "jute.maxbuffer")]
    pub fn max_request_bytes(mut self, bytes: usize) -> ClientBuilder {
        // Lengths on the wire have 31 bits.
        self.settings.request_bytes_max = bytes.min(1 << 30);
        self
    }

    /// Sets the size of the largest reply, 64 MiB by default. A larger reply fails its request with
    /// [`ErrorKind::ReplyTooLarge`] and does not affect other requests.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, ErrorKind};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").max_reply_bytes(10_000).connect().await?;
    ///     client.create("/n", [0; 20_000], CreateMode::Persistent).await?;
    ///     assert_eq!(client.get("/n").await.unwrap_err().kind(), ErrorKind::ReplyTooLarge);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "jute.maxbuffer")]
    pub fn max_reply_bytes(mut self, bytes: usize) -> ClientBuilder {
        self.settings.reply_bytes_max = bytes.clamp(1024, 1 << 30);
        self
    }

    /// Sets the bound of unsent requests, 64 MiB by default. Requests beyond it fail at once with
    /// [`ErrorKind::Overloaded`].
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client =
    ///         Client::builder("127.0.0.1:2181").max_waiting_bytes(1 << 20).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn max_waiting_bytes(mut self, bytes: usize) -> ClientBuilder {
        self.settings.waiting_bytes_max = bytes.max(1);
        self
    }

    /// Sets how many events a [`Watcher`](crate::Watcher) buffers for a slow reader; 16384 by
    /// default. When the buffer is full, further events become a gap.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181").max_watch_events(100).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn max_watch_events(mut self, events: usize) -> ClientBuilder {
        self.watch_events_max = events.max(1);
        self
    }

    /// Sets the seed of the client's randomness: the order in which servers are tried, the length
    /// of pauses, and, once there is a session, the marks in the names of protected creates
    /// ([`Client::random_uuid`]). On a runtime with a paused clock, and with servers that reply the
    /// same way, the client then behaves identically, byte by byte. For tests and simulations.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181").seed(7).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn seed(mut self, seed: u64) -> ClientBuilder {
        self.seed = Some(seed);
        self
    }

    /// Resumes the session of another client object, given its id and password.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let before = Client::connect("127.0.0.1:2181").await?;
    ///     let (id, password) = (before.session_id(), before.session_password());
    ///     let after = Client::builder("127.0.0.1:2181").resume(id, password).connect().await?;
    ///     assert_eq!(after.session_id(), id);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "sessionId")]
    #[doc(alias = "client_id")]
    pub fn resume(mut self, session: SessionId, password: [u8; 16]) -> ClientBuilder {
        self.session = Some((session, password));
        self
    }

    /// Starts the session as a background task of the current tokio runtime and returns at once.
    /// Requests wait for the connection.
    ///
    /// ```
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = ironkeeper_client::Client::builder("127.0.0.1:2181").start()?;
    ///     assert!(client.exists("/").await?.is_some());
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(self) -> Result<Client> {
        let parsed: ConnectString = self.connect_string.parse()?;
        let random = self.seed.map_or_else(Random::from_os, Random::from_seed);
        let chance = self.seed.map(|seed| Random::from_seed(!seed));
        let request_bytes_max = self.settings.request_bytes_max;
        let servers = parsed.servers().to_vec();
        let mut machine = Machine::new(self.settings, servers, random, Instant::now().into_std());
        if let Some((session, password)) = self.session {
            machine.resume(session, password);
        }
        for (scheme, auth) in &self.credentials {
            machine
                .authenticate(scheme, auth, None)
                .map_err(|_| Error::new(ErrorKind::RequestTooLarge).with_detail("credentials"))?;
        }
        let runtime = Handle::current();
        let shared = Shared::new(machine, chance, runtime.clone());
        runtime.spawn(Driver::new(shared.clone(), self.transport));
        let chroot = Chroot::new(parsed.chroot());
        Ok(Client::new(shared, chroot, request_bytes_max, self.watch_events_max))
    }

    /// Starts the session and waits for the first connection.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181").connect().await?;
    ///     assert!(client.state().is_connected());
    ///     Ok(())
    /// }
    /// ```
    pub async fn connect(self) -> Result<Client> {
        let limit = self.connect_timeout;
        let client = self.start()?;
        match tokio::time::timeout(limit, client.connected()).await {
            Ok(connected) => connected.map(|()| client),
            Err(_) => {
                let reason = client.trouble();
                let error = Error::new(ErrorKind::ConnectTimeout);
                Err(match reason {
                    Some(reason) => error.with_detail(reason),
                    None => error,
                })
            }
        }
    }
}
