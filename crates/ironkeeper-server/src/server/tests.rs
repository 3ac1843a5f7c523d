//! Settings whose effect is visible only on real sockets, threads and files.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_config::{ConnectionThrottle, RequestThrottle};
use ironkeeper_proto::connect::ConnectRequest;
use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{CreateMode, OpCode, SessionId, Zxid, acl};

use super::*;
use crate::accept::keep_alive;

/// Long enough for any machine; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    server: Server,
    dir: tempfile::TempDir,
}

impl World {
    fn start(change: impl FnOnce(&mut Config)) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::standalone_default(dir.path().to_owned());
        config.client_address.port = 0;
        change(&mut config);
        World { server: Server::start(config).expect("the server starts"), dir }
    }

    /// Returns a client with a session, or `None` if the server closed the connection.
    fn connect(&self) -> Option<Client> {
        let stream = TcpStream::connect(self.server.address()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        let mut client = Client { stream };
        let mut body = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: 30_000,
            session: SessionId::NONE,
            password: &[0; 16],
            read_only: Some(false),
        }
        .encode(&mut body);
        client.send(&framed(&body));
        client.frame().map(|_| client)
    }

    fn engine_db(&self) -> &ironkeeper_engine::Database {
        &self.server.shared().core.db
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    /// Returns the next frame, or `None` if the server closed the connection.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).ok()?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// Returns the error of the next reply.
    fn error(&mut self) -> i32 {
        let frame = self.frame().expect("a reply");
        ReplyHeader::decode(&mut Reader::new(&frame)).expect("a header").err
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_len(body.len());
    frame.extend_from_slice(body);
    frame
}

fn create(path: &str, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_i32(1);
    body.put_i32(OpCode::Create.code());
    body.put_str(path);
    body.put_buf(Some(data));
    acl::encode_list(&acl::open(), &mut body);
    body.put_i32(CreateMode::PersistentSequential.flags());
    framed(&body)
}

/// Waits until a condition holds that another thread causes.
#[track_caller]
fn await_that(happened: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "it did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_log_file_is_ended_when_it_is_large_enough() {
    let world = World::start(|config| config.txn_log_size_limit_kb = Some(2));
    let mut client = world.connect().expect("a session");
    for _ in 0..4 {
        client.send(&create("/n-", &[7; 3000]));
        assert_eq!(client.error(), 0);
    }
    let names = std::fs::read_dir(world.dir.path().join("version-2")).expect("the files");
    let logs = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("log."))
        .count();
    assert!(logs >= 4, "{logs} files");
}

#[test]
fn sessions_beyond_the_throttle_are_hung_up_on() {
    let world = World::start(|config| {
        config.connection_throttle =
            ConnectionThrottle { tokens: Some(2), fill_time_ms: u32::MAX, ..Default::default() };
    });
    let _kept = (world.connect().expect("a token"), world.connect().expect("a token"));
    assert!(world.connect().is_none());
}

#[test]
fn all_writes_get_through_a_throttle_of_one() {
    let world = World::start(|config| config.request_throttle.max_requests = Some(1));
    let mut clients: Vec<Client> =
        (0..8).map(|_| world.connect().expect("sessions wait their turn as well")).collect();
    let many = create("/n-", b"").repeat(40);
    for client in &mut clients {
        client.send(&many);
    }
    for client in &mut clients {
        for _ in 0..40 {
            assert_eq!(client.error(), 0);
        }
    }
    let throttle = world.engine_db().request_throttle.as_ref().expect("it is on");
    await_that(|| (throttle.taken(), throttle.waiting()) == (0, 0));
}

#[test]
fn a_client_that_leaves_while_it_waits_is_not_served() {
    for drop_stale in [true, false] {
        let world = World::start(|config| {
            config.request_throttle =
                RequestThrottle { max_requests: Some(1), drop_stale, ..Default::default() };
        });
        let (mut first, mut leaving) = (world.connect().unwrap(), world.connect().unwrap());
        let db = world.engine_db();
        let throttle = db.request_throttle.as_ref().expect("it is on");
        // While a reader holds the gate, the first write cannot be applied.
        let reading = db.read();
        first.send(&create("/n-", b""));
        await_that(|| throttle.taken() == 1);
        leaving.send(&create("/n-", b""));
        await_that(|| throttle.waiting() == 1);
        leaving.stream.shutdown(Shutdown::Both).expect("an open socket");
        drop(leaving);
        drop(reading);
        assert_eq!(first.error(), 0);
        await_that(|| (throttle.taken(), throttle.waiting()) == (0, 0));
        let dropped = db.stats.throttle.stale_requests_dropped.load(Relaxed);
        let children = db.read().tree.find("/").expect("the root").child_count();
        assert_eq!((dropped, children), if drop_stale { (1, 2) } else { (0, 3) });
    }
}

#[test]
fn tcp_keep_alive_is_set_on_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
    let is_kept_alive = || socket2::SockRef::from(&stream).keepalive().expect("a socket option");
    let mut config = Config::standalone_default("data".into());
    keep_alive(&stream, &config);
    assert!(!is_kept_alive());
    config.client_tcp_keep_alive = true;
    keep_alive(&stream, &config);
    assert!(is_kept_alive());
}
