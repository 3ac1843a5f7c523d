//! Requests sent outside of the driver: the body of a test on a multi-threaded runtime has its own
//! thread, as `main` has. A thread that submits requests there also writes them to the connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ironkeeper_client::{Client, ErrorCode, ErrorKind, Happened, Host, Opening, Transport};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{answer, frame, greeting, send, soon};

/// A transport whose connections buffer few bytes and whose writes fail on demand.
#[derive(Debug)]
struct Narrow {
    connections: mpsc::UnboundedSender<DuplexStream>,
    bytes: usize,
    is_broken: Arc<AtomicBool>,
}

struct Breakable {
    stream: DuplexStream,
    is_broken: Arc<AtomicBool>,
}

impl Transport for Narrow {
    fn open(&self, _server: &Host) -> Opening {
        let (stream, theirs) = tokio::io::duplex(self.bytes);
        let sent = self.connections.send(theirs);
        let is_broken = self.is_broken.clone();
        Box::pin(async move {
            sent.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(Breakable { stream, is_broken }) as _)
        })
    }
}

impl AsyncRead for Breakable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_broken.swap(false, Ordering::AcqRel) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Server {
    client: Client,
    connections: mpsc::UnboundedReceiver<DuplexStream>,
    is_broken: Arc<AtomicBool>,
}

impl Server {
    /// Creates a client whose connections buffer `bytes` bytes.
    fn new(bytes: usize) -> Server {
        let (sender, connections) = mpsc::unbounded_channel();
        let is_broken = Arc::new(AtomicBool::new(false));
        let transport = Narrow { connections: sender, bytes, is_broken: is_broken.clone() };
        let client = Client::builder("a").transport(transport).start().unwrap();
        Server { client, connections, is_broken }
    }

    /// Accepts the next connection and completes its handshake.
    async fn greeted(&mut self) -> DuplexStream {
        let mut stream = soon(self.connections.recv()).await.unwrap();
        soon(frame(&mut stream)).await.unwrap();
        // Time is real here; a busy machine must not expire the session.
        let mut greeting = greeting(9, false);
        greeting[4..8].copy_from_slice(&60_000i32.to_be_bytes());
        send(&mut stream, &greeting).await;
        soon(self.client.connected()).await.unwrap();
        stream
    }
}

/// Returns the next request that is not a ping, and its path.
async fn asked(stream: &mut DuplexStream) -> (Vec<u8>, String) {
    loop {
        let request = soon(frame(stream)).await.unwrap();
        if request[..4] != (-2i32).to_be_bytes() {
            let path = String::from_utf8(request[12..request.len() - 1].to_vec()).unwrap();
            return (request, path);
        }
        send(stream, &answer(&request, 0, &[])).await;
    }
}

async fn answer_no_node(stream: &mut DuplexStream, request: &[u8]) {
    send(stream, &answer(request, ErrorCode::NoNode.code(), &[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_leaves_before_anybody_waits_for_it() {
    let mut server = Server::new(1024);
    let mut stream = server.greeted().await;
    for round in 0..100 {
        let reply = server.client.exists(&format!("/{round}"));
        let (request, path) = asked(&mut stream).await;
        assert_eq!(path, format!("/{round}"));
        answer_no_node(&mut stream, &request).await;
        assert!(soon(reply).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_nobody_waits_for_leave_with_the_next_answer() {
    let mut server = Server::new(1024);
    let mut stream = server.greeted().await;
    for _ in 0..100 {
        let replies = ["/a", "/b", "/c"].map(|path| server.client.exists(path));
        for expected in ["/a", "/b", "/c"] {
            let (request, path) = asked(&mut stream).await;
            assert_eq!(path, expected);
            answer_no_node(&mut stream, &request).await;
        }
        for reply in replies {
            assert!(soon(reply).await.unwrap().is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_leaves_when_somebody_waits_although_the_server_owes_an_answer() {
    let mut server = Server::new(1024);
    let mut stream = server.greeted().await;
    for _ in 0..100 {
        let first = server.client.exists("/a");
        let mut second = server.client.exists("/b");
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut second).poll(cx).is_pending())).await;
        assert!(polled);
        let requests = [asked(&mut stream).await, asked(&mut stream).await];
        assert_eq!(requests[1].1, "/b");
        for (request, _) in requests {
            answer_no_node(&mut stream, &request).await;
        }
        assert!(soon(second).await.unwrap().is_none());
        assert!(soon(first).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_leaves_although_the_server_owes_an_answer() {
    let mut server = Server::new(1024);
    let mut stream = server.greeted().await;
    for _ in 0..100 {
        let first = server.client.exists("/a");
        drop(server.client.exists("/b"));
        let requests = [asked(&mut stream).await, asked(&mut stream).await];
        assert_eq!(requests[1].1, "/b");
        for (request, _) in requests {
            answer_no_node(&mut stream, &request).await;
        }
        assert!(soon(first).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_costs_the_connection() {
    let mut server = Server::new(1024);
    let mut stream = server.greeted().await;
    server.is_broken.store(true, Ordering::Release);
    let error = soon(server.client.set("/a", "", -1)).await.unwrap_err();
    // No byte of the request was sent.
    assert_eq!((error.kind(), error.happened()), (ErrorKind::ConnectionLoss, Happened::No));
    assert!(soon(frame(&mut stream)).await.is_none());
    let mut stream = server.greeted().await;
    let reply = server.client.exists("/c");
    let (request, _) = asked(&mut stream).await;
    answer_no_node(&mut stream, &request).await;
    assert!(soon(reply).await.unwrap().is_none());
}

/// Separate threads and tasks of the pool, all with many requests in flight, on a connection that
/// accepts a part of a request at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_threads_leave_whole_and_in_order() {
    const CALLERS: usize = 6;
    const ROUNDS: usize = 40;
    const IN_FLIGHT: usize = 25;
    let mut server = Server::new(50);
    let mut stream = server.greeted().await;
    let serving = tokio::spawn(async move {
        let mut next: HashMap<String, usize> = HashMap::new();
        let mut xid = None;
        for _ in 0..CALLERS * ROUNDS * IN_FLIGHT {
            let (request, path) = asked(&mut stream).await;
            let this = i32::from_be_bytes(request[..4].try_into().unwrap());
            assert!(xid.is_none_or(|last: i32| last + 1 == this), "{xid:?} {this}");
            xid = Some(this);
            let (caller, number) = path.rsplit_once('/').unwrap();
            let next = next.entry(caller.to_owned()).or_default();
            assert_eq!(number.parse::<usize>().unwrap(), *next);
            *next += 1;
            answer_no_node(&mut stream, &request).await;
        }
    });
    let call = |caller: usize| {
        let client = server.client.clone();
        async move {
            for round in 0..ROUNDS {
                let numbers = round * IN_FLIGHT..(round + 1) * IN_FLIGHT;
                let replies: Vec<_> =
                    numbers.map(|number| client.exists(&format!("/{caller}/{number}"))).collect();
                for reply in replies {
                    assert!(soon(reply).await.unwrap().is_none());
                }
            }
        }
    };
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (calling, runtime) = (call(caller), Handle::current());
        callers.push(match caller % 2 {
            0 => tokio::spawn(calling),
            _ => tokio::task::spawn_blocking(move || runtime.block_on(calling)),
        });
    }
    for caller in callers {
        soon(caller).await.unwrap();
    }
    soon(serving).await.unwrap();
}
