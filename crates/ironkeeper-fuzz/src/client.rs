//! The client against a server that sends any bytes: replies, results of multis, watch events.

use std::time::Duration;

use ironkeeper_client::{
    Client, CreateMode, MemoryListener, MemoryTransport, Version, WatchMode, WatchType,
};
use ironkeeper_proto::connect::{ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{Put, Reader, SessionId, Xid, Zxid};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// In the time of the paused clock; ends waits for a server that does not reply.
const PATIENCE: Duration = Duration::from_secs(100);
const SESSION_TIMEOUT_MS: i32 = 10_000;

/// The input is what the server sends, one chunk for each request that arrives.
pub(crate) fn client_session(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs no resources of the system");
    let chunks = Chunks { rest: bytes };
    let session = async {
        let (transport, listener) = MemoryTransport::new();
        let client = Client::builder("fuzz").transport(transport).seed(7).start();
        let client = client.expect("the settings are valid");
        let server = serve(listener, chunks);
        let both = async { tokio::join!(server, requests(&client)) };
        let _ = tokio::time::timeout(PATIENCE, both).await;
    };
    runtime.block_on(session);
}

/// Queues one request of each kind, then awaits the replies.
async fn requests(client: &Client) {
    let created = client.create("/a", "data", CreateMode::EphemeralSequential);
    let node = client.get_and_watch("/a");
    let in_line = client.get_and_watch_in_line("/a/b");
    let stat = client.exists_and_watch("/a");
    let children = client.children_and_watch("/");
    let names = client.children("/a");
    let count = client.all_children_number("/");
    let ephemerals = client.ephemerals("/");
    let acl = client.get_acl("/a");
    let set = client.set("/a", "more", Version::Any);
    let identities = client.who_am_i();
    let watcher = client.watch("/a", WatchMode::Recursive);
    let multi = client.transaction().create("/b", "", CreateMode::Persistent);
    let multi = multi.set("/b", "x", Version::Any).check("/b", Version::Any);
    let multi = multi.delete("/b", Version::Any).commit();
    let reads = client.multi_read().get("/a").children("/a").send();
    let removed = client.remove_watches("/a", WatchType::Any);
    let synced = client.sync("/");
    let _ = (created.await, node.await, in_line.await, stat.await, children.await, names.await);
    let _ = (count.await, ephemerals.await, acl.await, set.await, identities.await);
    if let Ok(mut watcher) = watcher.await {
        let _ = tokio::time::timeout(Duration::from_secs(1), watcher.next()).await;
    }
    let _ = (multi.await, reads.await, removed.await, synced.await);
    let _ = client.close().await;
}

/// The input, divided by lengths of one byte (or two, above 250).
struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = match self.byte()? {
            long @ 251.. => usize::from(long - 250) << 8 | usize::from(self.byte()?),
            short => usize::from(short),
        };
        let (chunk, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        Some(chunk)
    }
}

async fn serve(mut listener: MemoryListener, mut chunks: Chunks<'_>) -> Option<()> {
    loop {
        let (_, mut stream) = listener.accept().await?;
        let _ = serve_connection(&mut stream, &mut chunks).await;
        if chunks.rest.is_empty() {
            return None;
        }
    }
}

/// Sends a chunk for each request: usually the body of its reply, otherwise a whole frame or bytes
/// without a frame. The connection ends with the input.
async fn serve_connection(stream: &mut DuplexStream, chunks: &mut Chunks<'_>) -> Option<()> {
    read_frame(stream).await?;
    let kind = chunks.byte()?;
    let mut handshake = Vec::new();
    if kind == 0 {
        handshake.put_raw(chunks.next()?);
    } else {
        let session = SessionId(0x1000);
        let response = ConnectResponse {
            timeout_ms: SESSION_TIMEOUT_MS,
            session,
            password: [7; PASSWORD_LEN],
            read_only: Some(kind == 1),
        };
        response.encode(&mut handshake);
    }
    send_frame(stream, &handshake).await?;
    loop {
        let request = read_frame(stream).await?;
        let xid = Reader::new(&request).i32().ok()?;
        let kind = chunks.byte()?;
        let chunk = chunks.next()?;
        let zxid = Zxid(i64::from(kind));
        let header = |xid, err| {
            let mut frame = Vec::new();
            ReplyHeader { xid, zxid, err }.encode(&mut frame);
            frame.put_raw(chunk);
            frame
        };
        match kind % 8 {
            0 => send_frame(stream, chunk).await?,
            1 => stream.write_all(chunk).await.ok()?,
            2 => {
                let err = chunk.first().map_or(-101, |code| -i32::from(*code));
                send_frame(stream, &header(Xid(xid), err)).await?;
            }
            3 | 4 => {
                send_frame(stream, &header(Xid::NOTIFICATION, 0)).await?;
                let body = chunks.next()?;
                let mut reply = Vec::new();
                ReplyHeader { xid: Xid(xid), zxid, err: 0 }.encode(&mut reply);
                reply.put_raw(body);
                send_frame(stream, &reply).await?;
            }
            _ => send_frame(stream, &header(Xid(xid), 0)).await?,
        }
    }
}

async fn read_frame(stream: &mut DuplexStream) -> Option<Vec<u8>> {
    let len = stream.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(len).expect("the client sends whole frames")];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn send_frame(stream: &mut DuplexStream, frame: &[u8]) -> Option<()> {
    let len = i32::try_from(frame.len()).expect("chunks are small");
    stream.write_i32(len).await.ok()?;
    stream.write_all(frame).await.ok()
}
