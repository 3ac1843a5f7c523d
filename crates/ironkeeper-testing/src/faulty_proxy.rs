//! A proxy that breaks connections on purpose.
//!
//! One thread with a single-threaded runtime serves all connections; each connection is one task
//! that owns both sockets. So bytes are counted sequentially, which makes "after exactly N bytes"
//! exact, and dropping the task closes its sockets, which a reset needs.
//!
//! Faults are a value that the tasks read before they forward a chunk. `cut` and `reset` increment
//! a round number; a task ends when the number is larger than at the start of the task.

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

/// The maximum number of bytes forwarded at once.
const CHUNK_BYTES: usize = 16 << 10;
/// How long the peers of a cut connection have to close their side.
const CUT_GRACE: Duration = Duration::from_secs(5);
/// The wait after a failed accept, for example because of too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The direction in which bytes are forwarded.
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

/// A TCP proxy in front of any server that cuts, delays, stalls, refuses and resets connections on
/// demand. Dropping it closes its connections.
///
/// Without faults it forwards all bytes at once. A fault stays in effect until
/// [`FaultyProxy::heal`], except for the faults that happen once:
/// [`cut_after`](FaultyProxy::cut_after), [`cut`](FaultyProxy::cut) and
/// [`reset`](FaultyProxy::reset). The proxy resolves and dials the server for every connection, so
/// the server may be stopped and restarted in between.
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
    /// Notified when `listener` is `Some` again.
    listening: Notify,
    faults: watch::Sender<Faults>,
    end: watch::Sender<Ending>,
    state: Mutex<State>,
    /// Notified when a connection is removed from `State::open`.
    closed: Condvar,
}

/// The delay and the stall of each direction.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    delay: [Duration; 2],
    stalled: [bool; 2],
}

/// How connections end that were opened before `round`.
#[derive(Clone, Copy, Debug)]
struct Ending {
    round: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Graceful: forwarded bytes arrive, then end of stream.
    Cut,
    /// With a TCP reset: forwarded bytes may be lost.
    Reset,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    open: BTreeSet<u64>,
    bytes: [u64; 2],
    /// How many more bytes are forwarded before a connection is cut.
    cut_after: [Option<u64>; 2],
}

impl FaultyProxy {
    /// Starts a proxy on a free port of 127.0.0.1 in front of `server`, a `host:port`.
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
                        // `wait_for` returns an error if the proxy was dropped, which also means
                        // stop.
                        _ = stopped.wait_for(|stop| *stop) => {}
                    }
                });
                // Does not wait for a name lookup that is in progress.
                runtime.shutdown_background();
            })?;
        Ok(FaultyProxy { shared, thread: Some(thread), handle, stop })
    }

    /// Returns the connect string for a client that connects through the proxy.
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

    /// Returns the address on which the proxy listens.
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

    /// Returns the port on which the proxy listens; it stays reserved while connections are
    /// refused.
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

    /// Cuts a connection, once, after exactly `bytes` more bytes in `direction`. These bytes
    /// arrive; the next byte does not.
    ///
    /// Bytes are counted over all connections, present and future. The connection that carries the
    /// last byte is cut in both directions; with zero bytes, the connection that would carry the
    /// first byte. To test every cut position, call this with 0, 1, 2 and so on before the same
    /// operation.
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

    /// Returns true if a cut requested with [`FaultyProxy::cut_after`] is pending in either
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

    /// Delays all bytes in `direction` by at least `by`.
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

    /// Stops forwarding in `direction` without closing a connection: neither side receives
    /// anything, not even the end of stream of the other side. No byte is lost; all arrive after
    /// [`FaultyProxy::heal`].
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

    /// Stalls both directions: a black hole. New connections succeed but receive nothing.
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

    /// Refuses new connections, as a machine does on which no server runs. Open connections stay.
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

    /// Closes all open connections, once: forwarded bytes arrive, then both sides read the end of
    /// stream. Returns the number of connections.
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

    /// Resets all open connections, once, as a restarted machine does: both sides get an error, and
    /// bytes in flight may be lost. Returns the number of connections.
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

    /// Removes all faults: delays, stalls, refusal and pending cuts. Fails only if the proxy cannot
    /// listen on its port again.
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

    /// Returns the number of connections since the start.
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

    /// Returns the number of open connections.
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

    /// Returns the number of bytes forwarded in `direction` since the start. The number includes
    /// all bytes that have arrived, and at most one chunk per connection that is still being sent.
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
            // The panic hook has reported a panic of the thread; a second panic here would hide it.
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

    /// Ends all open connections and returns their number after they have ended.
    fn end_all(&self, end: End) -> usize {
        let mut state = self.state();
        let (before, count) = (state.connections, state.open.len());
        self.end.send_modify(|ending| *ending = Ending { round: ending.round + 1, end });
        while state.open.first().is_some_and(|oldest| *oldest < before) {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        count
    }

    /// Returns how many of `len` bytes are forwarded, and whether the connection is cut after them.
    /// Counts these bytes before they are sent, so the count includes every byte that has arrived.
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

    /// Waits for the delay in `direction`, then until the direction is not stalled.
    async fn hold_back(&self, direction: Direction, faults: &mut watch::Receiver<Faults>) {
        let delay = faults.borrow().delay[direction as usize];
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // `self` owns the sender, so waiting cannot fail.
        let _ = faults.wait_for(|faults| !faults.stalled[direction as usize]).await;
    }
}

/// Accepts connections until the runtime is dropped.
async fn accept(shared: Arc<Shared>) {
    loop {
        let accepted = std::future::poll_fn(|cx| match &*shared.listener() {
            // Counted before the lock is released: after `refuse` and `cut` no connection is left.
            Some(listener) => listener.poll_accept(cx).map(|accepted| {
                Some(accepted.map(|(stream, _)| (stream, Connection::open(&shared))))
            }),
            None => Poll::Ready(None),
        });
        // Closing the listener does not wake this task, but opening a new one does.
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

/// The entry of a connection in `State::open`; the drop removes it.
struct Connection {
    id: u64,
    shared: Arc<Shared>,
    end: watch::Receiver<Ending>,
}

impl Connection {
    fn open(shared: &Arc<Shared>) -> Connection {
        // Under one lock, so that `end_all` either ends the connection or does not wait for it.
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
        // Nagle's algorithm would add latency. `set_nodelay` fails only if the socket is closing.
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

/// Connects to the first address that accepts. If the caller drops this future, the connection is
/// reset, because the server may have accepted it already.
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

/// Sets whether dropping the socket resets the connection or closes it gracefully.
fn reset_when_dropped(socket: &impl AsFd, reset: bool) {
    // Fails only if the socket is closed already.
    let _ = socket2::SockRef::from(socket).set_linger(reset.then_some(Duration::ZERO));
}

async fn ended(end: &mut watch::Receiver<Ending>) -> End {
    // The sender outlives every connection, so waiting cannot fail.
    let _ = end.changed().await;
    end.borrow().end
}

/// Reads until the peer has closed its side: closing a socket with unread bytes would send a reset,
/// and the last bytes sent could be lost.
async fn drain(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    let draining = async { while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {} };
    let _ = tokio::time::timeout(CUT_GRACE, draining).await;
}

/// Forwards in both directions until a cut, an error, or the end of both streams.
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
    /// The source has sent its end of stream, and the proxy has forwarded it.
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
