//! A proxy that breaks connections on purpose.
//!
//! One thread with one single-threaded runtime serves all connections, each as one task that owns
//! both sockets. So bytes are counted one after the other, and "after exactly so many" needs no
//! further care; and a socket dies when its task lets go of it, which is what a reset takes.
//!
//! Faults are a value that tasks look at before they forward anything. Ends of connections are a
//! number that grows: a task ends when it has grown since the task began.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};

use crate::port::HeldPort;

/// Forwarded in one go at most.
const CHUNK_BYTES: usize = 16 << 10;
/// How long the ends of a cut connection are given to notice.
const CUT_GRACE: Duration = Duration::from_secs(5);
/// The wait after a failed accept, such as one for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Which way bytes go.
///
/// ```
/// use ironkeeper_testing::{Direction, FaultyProxy};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
///     assert_eq!(proxy.bytes(Direction::ToServer) + proxy.bytes(Direction::ToClient), 0);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies and events.
    ToClient,
}

/// A TCP proxy in front of any server that cuts, delays, stalls, refuses and resets when told to.
/// Dropping it ends its connections.
///
/// Until then it forwards everything as it comes. A fault stays until [`FaultyProxy::heal`], but for
/// those that happen once: [`cut_after`](FaultyProxy::cut_after), [`cut`](FaultyProxy::cut) and
/// [`reset`](FaultyProxy::reset). The server is looked for anew with every connection, so it may be
/// down, and come back, meanwhile.
///
/// No method needs a runtime, and none waits for a client or the server.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// use ironkeeper_testing::{Direction, FaultyProxy, TestServer};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let server = TestServer::start()?;
///     let proxy = FaultyProxy::start(server.connect_string())?;
///
///     // The request arrives whole; of its answer come two bytes.
///     proxy.cut_after(Direction::ToClient, 2);
///     let mut stream = TcpStream::connect(proxy.connect_string())?;
///     stream.write_all(b"ruok")?;
///     let mut answer = String::new();
///     stream.read_to_string(&mut answer)?;
///     assert_eq!(answer, "im");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct FaultyProxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: tokio::runtime::Handle,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct Shared {
    upstream: String,
    port: HeldPort,
    /// `None` while connections are refused.
    listener: Mutex<Option<TcpListener>>,
    /// Rung when `listener` is there again.
    listening: Notify,
    faults: watch::Sender<Faults>,
    end: watch::Sender<Ending>,
    state: Mutex<State>,
    /// Rung when a connection has left `State::open`.
    closed: Condvar,
}

/// What is done to bytes, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    delay: [Duration; 2],
    stalled: [bool; 2],
}

/// How connections end that were there before `round`.
#[derive(Clone, Copy, Debug)]
struct Ending {
    round: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// In order: what was forwarded arrives, then nothing more.
    Cut,
    /// At once: what was forwarded may be lost.
    Reset,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    open: BTreeSet<u64>,
    bytes: [u64; 2],
    /// How many more bytes pass before a connection is cut.
    cut_after: [Option<u64>; 2],
}

impl FaultyProxy {
    /// Starts a proxy on a free port of 127.0.0.1 in front of `server`, a host with a port.
    ///
    /// ```
    /// use ironkeeper_testing::{FaultyProxy, TestServer};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::start()?;
    ///     let proxy = FaultyProxy::start(server.connect_string())?;
    ///     assert_ne!(proxy.connect_string(), server.connect_string());
    ///     Ok(())
    /// }
    /// ```
    pub fn start(server: impl Into<String>) -> io::Result<FaultyProxy> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("faulty-proxy-resolver")
            .build()?;
        let handle = runtime.handle().clone();
        let port = HeldPort::take(0)?;
        let listener = {
            let _context = handle.enter();
            TcpListener::from_std(port.listen()?)?
        };
        let shared = Arc::new(Shared {
            upstream: server.into(),
            port,
            listener: Mutex::new(Some(listener)),
            listening: Notify::new(),
            faults: watch::Sender::new(Faults::default()),
            end: watch::Sender::new(Ending { round: 0, end: End::Cut }),
            state: Mutex::default(),
            closed: Condvar::new(),
        });
        let (stop, mut stopped) = watch::channel(false);
        let accepting = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("faulty-proxy".to_owned()).spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(accepting) => {}
                        // Ends with an error if the proxy is gone, which is the same.
                        _ = stopped.wait_for(|stop| *stop) => {}
                    }
                });
                // A name that is still being looked up is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(FaultyProxy { shared, thread: Some(thread), handle, stop })
    }

    /// What a client is given to connect through the proxy.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.connect_string(), format!("127.0.0.1:{}", proxy.port()));
    ///     Ok(())
    /// }
    /// ```
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// Where the proxy listens.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert!(proxy.address().ip().is_loopback());
    ///     Ok(())
    /// }
    /// ```
    pub fn address(&self) -> SocketAddr {
        self.shared.port.address()
    }

    /// The port the proxy listens on, which stays reserved while it refuses connections.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let (one, other) =
    ///         (FaultyProxy::start("127.0.0.1:1")?, FaultyProxy::start("127.0.0.1:1")?);
    ///     assert_ne!(one.port(), other.port());
    ///     Ok(())
    /// }
    /// ```
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// Cuts a connection after exactly `bytes` more have passed in `direction`, once. They arrive;
    /// the next one does not.
    ///
    /// Bytes are counted over all connections, open ones and those to come, and the one that carries
    /// the last byte is cut, in both directions. After zero bytes it is the one that would have
    /// carried the first. To try every place, arm it with 0, 1, 2 and so on before the same piece of
    /// work.
    ///
    /// ```
    /// use ironkeeper_testing::{Direction, FaultyProxy};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     proxy.cut_after(Direction::ToServer, 44);
    ///     assert!(proxy.is_armed());
    ///     Ok(())
    /// }
    /// ```
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.shared.state().cut_after[direction as usize] = Some(bytes);
    }

    /// Whether a cut asked for with [`FaultyProxy::cut_after`] has not happened yet, in either
    /// direction.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert!(!proxy.is_armed());
    ///     Ok(())
    /// }
    /// ```
    pub fn is_armed(&self) -> bool {
        self.shared.state().cut_after.iter().any(Option::is_some)
    }

    /// Lets everything in `direction` arrive later by at least this much.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_testing::{Direction, FaultyProxy};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     proxy.delay(Direction::ToClient, Duration::from_millis(20));
    ///     Ok(())
    /// }
    /// ```
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.shared.faults.send_modify(|faults| faults.delay[direction as usize] = by);
    }

    /// Stops forwarding in `direction` and closes nothing: neither side learns anything, not even
    /// that the other has gone. Nothing is lost; it arrives after [`FaultyProxy::heal`].
    ///
    /// ```
    /// use ironkeeper_testing::{Direction, FaultyProxy};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     // Requests arrive and take effect; the client hears nothing of it.
    ///     proxy.stall(Direction::ToClient);
    ///     Ok(())
    /// }
    /// ```
    pub fn stall(&self, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.stalled[direction as usize] = true);
    }

    /// Stalls both directions: a black hole. New connections succeed, and hear nothing either.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     proxy.black_hole();
    ///     proxy.heal()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn black_hole(&self) {
        self.shared.faults.send_modify(|faults| faults.stalled = [true; 2]);
    }

    /// Refuses new connections, as a machine does on which no server runs. Open ones stay.
    ///
    /// ```
    /// use std::net::TcpStream;
    ///
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     proxy.refuse();
    ///     assert!(TcpStream::connect(proxy.address()).is_err());
    ///     proxy.heal()?;
    ///     assert!(TcpStream::connect(proxy.address()).is_ok());
    ///     Ok(())
    /// }
    /// ```
    pub fn refuse(&self) {
        drop(self.shared.listener().take());
    }

    /// Ends every connection there is, once: what was forwarded arrives, then both sides see the
    /// end. Returns how many it were.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.cut(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn cut(&self) -> usize {
        self.shared.end_all(End::Cut)
    }

    /// Resets every connection there is, once, as a machine does that has restarted: both sides get
    /// an error, and what is on its way may be lost. Returns how many it were.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.reset(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn reset(&self) -> usize {
        self.shared.end_all(End::Reset)
    }

    /// Ends all faults: no delay, nothing stalled or refused, no cut to come. Fails only if the port
    /// cannot be listened on again.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_testing::{Direction, FaultyProxy};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     proxy.delay(Direction::ToServer, Duration::from_secs(1));
    ///     proxy.heal()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn heal(&self) -> io::Result<()> {
        self.shared.state().cut_after = [None; 2];
        self.shared.faults.send_replace(Faults::default());
        let mut listener = self.shared.listener();
        if listener.is_none() {
            let _context = self.handle.enter();
            *listener = Some(TcpListener::from_std(self.shared.port.listen()?)?);
            self.shared.listening.notify_one();
        }
        Ok(())
    }

    /// How many connections there have been since the start.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.connections(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// How many connections there are now.
    ///
    /// ```
    /// use ironkeeper_testing::FaultyProxy;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.open_connections(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn open_connections(&self) -> usize {
        self.shared.state().open.len()
    }

    /// How many bytes have passed in `direction` since the start. Every byte that has arrived is
    /// among them, and those of at most one chunk per connection that are still being sent.
    ///
    /// ```
    /// use ironkeeper_testing::{Direction, FaultyProxy};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let proxy = FaultyProxy::start("127.0.0.1:2181")?;
    ///     assert_eq!(proxy.bytes(Direction::ToServer), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.state().bytes[direction as usize]
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in there has shown itself; a second one here would hide it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Option<TcpListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when they have ended.
    fn end_all(&self, end: End) -> usize {
        let mut state = self.state();
        let (before, count) = (state.connections, state.open.len());
        self.end.send_modify(|ending| *ending = Ending { round: ending.round + 1, end });
        while state.open.first().is_some_and(|oldest| *oldest < before) {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        count
    }

    /// How many of `len` bytes may pass, and whether the connection is cut behind them. Those that
    /// may are counted here, before they are sent: a count never lacks a byte that has arrived.
    fn admit(&self, direction: Direction, len: usize) -> (usize, bool) {
        let mut state = self.state();
        let (passing, cut) = match &mut state.cut_after[direction as usize] {
            None => (len, false),
            Some(left) => match usize::try_from(*left) {
                Ok(last) if last <= len => (last, true),
                _ => {
                    *left -= len as u64;
                    (len, false)
                }
            },
        };
        if cut {
            state.cut_after[direction as usize] = None;
        }
        state.bytes[direction as usize] += passing as u64;
        (passing, cut)
    }

    /// Returns when bytes that have just come in `direction` may go on.
    async fn hold_back(&self, direction: Direction, faults: &mut watch::Receiver<Faults>) {
        let delay = faults.borrow().delay[direction as usize];
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = faults.wait_for(|faults| !faults.stalled[direction as usize]).await;
    }
}

/// Takes in connections for as long as the runtime lives.
async fn accept(shared: Arc<Shared>) {
    loop {
        let accepted = std::future::poll_fn(|cx| match &*shared.listener() {
            // Counted before the lock is let go: whoever refuses and then cuts leaves none behind.
            Some(listener) => listener.poll_accept(cx).map(|accepted| {
                Some(accepted.map(|(stream, _)| (stream, Connection::open(&shared))))
            }),
            None => Poll::Ready(None),
        });
        // Closing the listener does not wake who waits for it, but opening a new one does.
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = shared.listening.notified() => continue,
        };
        match accepted {
            Some(Ok((stream, connection))) => drop(tokio::spawn(connection.run(stream))),
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            None => shared.listening.notified().await,
        }
    }
}

/// One connection's entry among the open ones.
struct Connection {
    id: u64,
    shared: Arc<Shared>,
    end: watch::Receiver<Ending>,
}

impl Connection {
    fn open(shared: &Arc<Shared>) -> Connection {
        // Under one lock, so that it is either ended by or unknown to whoever ends connections.
        let mut state = shared.state();
        let id = state.connections;
        state.connections += 1;
        state.open.insert(id);
        Connection { id, shared: Arc::clone(shared), end: shared.end.subscribe() }
    }

    async fn run(mut self, mut client: TcpStream) {
        let upstream = tokio::select! {
            upstream = connect(&self.shared.upstream) => upstream,
            end = ended(&mut self.end) => return self.close(end, client, None),
        };
        let Ok(mut server) = upstream else { return self.close(End::Reset, client, None) };
        // Latency is no fault anybody asked for. A socket that cannot be told is closing anyway.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let end = tokio::select! {
            end = forward(&self.shared, &mut client, &mut server) => end,
            end = ended(&mut self.end) => end,
        };
        self.close(end, client, Some(server));
    }

    fn close(&self, end: End, client: TcpStream, server: Option<TcpStream>) {
        for stream in [Some(client), server].into_iter().flatten() {
            match end {
                End::Reset => reset_when_dropped(&stream, true),
                End::Cut => {
                    let _ = socket2::SockRef::from(&stream).shutdown(std::net::Shutdown::Write);
                    tokio::spawn(drain(stream));
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.state().open.remove(&self.id);
        self.shared.closed.notify_all();
    }
}

/// Connects to the first address that answers. Whoever gives up meanwhile resets the connection,
/// because the other side may think already that there is one.
async fn connect(upstream: &str) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in tokio::net::lookup_host(upstream).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        reset_when_dropped(&socket, true);
        match socket.connect(address).await {
            Ok(stream) => {
                reset_when_dropped(&stream, false);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether letting go of the socket resets the connection or ends it in order.
fn reset_when_dropped(socket: &impl AsFd, reset: bool) {
    // A socket that cannot be told is dead already.
    let _ = socket2::SockRef::from(socket).set_linger(reset.then_some(Duration::ZERO));
}

async fn ended(end: &mut watch::Receiver<Ending>) -> End {
    // The sender outlives every connection, so waiting cannot fail.
    let _ = end.changed().await;
    end.borrow().end
}

/// Reads what still comes until the other side has noticed the end: closing a socket with unread
/// bytes would reset it, and the last bytes sent on it could be lost.
async fn drain(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    let draining = async { while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {} };
    let _ = tokio::time::timeout(CUT_GRACE, draining).await;
}

/// Forwards both ways until a cut, an error, or the end of both.
async fn forward(shared: &Shared, client: &mut TcpStream, server: &mut TcpStream) -> End {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let requests = pump(shared, Direction::ToServer, from_client, to_server);
    let replies = pump(shared, Direction::ToClient, from_server, to_client);
    tokio::pin!(requests, replies);
    let (mut asking, mut answering) = (true, true);
    while asking || answering {
        let pumped = tokio::select! {
            pumped = &mut requests, if asking => { asking = false; pumped }
            pumped = &mut replies, if answering => { answering = false; pumped }
        };
        match pumped {
            Ok(Pumped::All) => {}
            Ok(Pumped::UntilCut) => return End::Cut,
            Err(_) => return End::Reset,
        }
    }
    End::Cut
}

enum Pumped {
    /// One side said that nothing more comes, and the other was told so.
    All,
    UntilCut,
}

async fn pump(
    shared: &Shared,
    direction: Direction,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
) -> io::Result<Pumped> {
    let mut faults = shared.faults.subscribe();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let len = from.read(&mut buffer).await?;
        shared.hold_back(direction, &mut faults).await;
        if len == 0 {
            to.shutdown().await?;
            return Ok(Pumped::All);
        }
        let (passing, cut) = shared.admit(direction, len);
        to.write_all(&buffer[..passing]).await?;
        if cut {
            return Ok(Pumped::UntilCut);
        }
    }
}
