//! The memory of the server with many clients and large requests. The limits on bytes are generous:
//! they detect unbounded growth, not growth by a tenth.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{CreateMode, OpCode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Client, Op, Session, TIMEOUT_MS, greeting, put_request};
use crate::server_process::{ServerProcess, Setup};

const MIB: u64 = 1 << 20;

/// Returns the bytes by which the server has grown since it had `before`.
fn growth(server: &ServerProcess, before: u64) -> u64 {
    server.resident_bytes().saturating_sub(before)
}

#[test]
fn ten_thousand_idle_sessions_cost_little_and_are_all_served() {
    const WANTED: usize = 10_000;
    const AT_LEAST: usize = 4000;
    const BYTES_EACH_MAX: u64 = 16 << 10;
    /// Files that the test and the server need for themselves.
    const SPARE_FILES: u64 = 500;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("as many open files as the system allows");
    let files = limit.maximum.unwrap_or(u64::MAX).saturating_sub(SPARE_FILES);
    let sessions = WANTED.min(usize::try_from(files).unwrap_or(usize::MAX));
    assert!(sessions >= AT_LEAST, "the limit on open files is too low: {:?}", limit.maximum);

    let dir = tempfile::tempdir().expect("a temporary directory");
    // The usual soft limit on open files; the server raises it itself.
    let server = Setup::new(dir.path(), "").after("ulimit -S -n 1024").start();
    let mut witness = Client::connect(server.address);
    witness.create("/here", b"");
    let before = server.resident_bytes();
    let mut idle = Vec::with_capacity(sessions);
    let greeting = greeting(Session::none(TIMEOUT_MS));
    // In groups, so that the accept queue does not overflow.
    while idle.len() < sessions {
        let first = idle.len();
        for _ in first..sessions.min(first + 500) {
            let mut stream = Client::dial(server.address).expect("a connection");
            stream.write_all(&greeting).expect("a socket that takes a greeting");
            idle.push(stream);
        }
        for stream in &mut idle[first..] {
            let response = ConnectResponse::decode(&frame(stream)).expect("a handshake");
            assert_eq!(response.timeout_ms, TIMEOUT_MS);
        }
    }
    let each = growth(&server, before) / sessions as u64;
    println!("{sessions} idle sessions, {each} bytes of memory each");
    assert!(each < BYTES_EACH_MAX, "{each} bytes for an idle session");

    let mut ping = Vec::new();
    put_request(&mut ping, -2, OpCode::Ping.code(), &[]);
    for stream in &mut idle {
        stream.write_all(&ping).expect("a socket that takes a ping");
    }
    assert!(witness.has("/here"));
    for stream in &mut idle {
        assert_eq!(frame(stream)[..4], (-2i32).to_be_bytes());
    }
    witness.set("/here", b"still");
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}

fn frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("a frame");
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut frame).expect("a whole frame");
    frame
}

#[test]
fn a_million_watches_cost_little_and_slow_no_write() {
    const CONNECTIONS: usize = 4;
    const CHUNKS: usize = 10;
    const CHUNK: usize = 25_000;
    const WATCHES: usize = CONNECTIONS * CHUNKS * CHUNK;
    const BYTES_EACH_MAX: u64 = 400;
    const WRITES: u32 = 200;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut witness = Client::connect(server.address);
    witness.create("/here", b"");
    witness.create("/w", b"");
    let time_writes = |witness: &mut Client| {
        let began = Instant::now();
        for number in 0..WRITES {
            witness.set("/here", &number.to_be_bytes());
        }
        began.elapsed() / WRITES
    };
    let write_before = time_writes(&mut witness);
    let before = server.resident_bytes();
    let path = |number: usize| format!("/w/{number:09}");
    let mut watchers: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::connect(server.address)).collect();
    for (at, watcher) in watchers.iter_mut().enumerate() {
        for chunk in 0..CHUNKS {
            let first = (at * CHUNKS + chunk) * CHUNK;
            let paths: Vec<String> = (first..first + CHUNK).map(path).collect();
            watcher.call(&Op::watch_for_creation(&paths)).ok();
        }
    }
    let each = growth(&server, before) / WATCHES as u64;
    let write_after = time_writes(&mut witness);
    println!(
        "{WATCHES} watches, {each} bytes of memory each; a write took {} us before and {} us with them",
        write_before.as_micros(),
        write_after.as_micros()
    );
    assert!(each < BYTES_EACH_MAX, "{each} bytes for a watch");
    for (at, watcher) in watchers.iter_mut().enumerate() {
        let path = path(at * CHUNKS * CHUNK + at);
        witness.create(&path, b"");
        assert_eq!(watcher.hear_event().expect("an event"), (EventType::NodeCreated, path));
    }
    // When all of them disconnect at once, other clients are still served.
    drop(watchers);
    witness.set("/here", b"still");
    assert!(witness.has(&path(0)));
}

#[test]
fn clients_that_never_read_their_replies_cost_a_bounded_amount() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 2000;
    const BYTES_MAX: u64 = 100 * MIB;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut witness = Client::connect(server.address);
    witness.create("/large", &vec![7; 1_000_000]);
    witness.create("/many", b"");
    for number in 0..2000 {
        let path = format!("/many/a-child-with-a-name-{number:06}");
        witness.queue(&Op::create(&path, b"", CreateMode::Persistent));
    }
    witness.flush().expect("a socket that takes requests");
    for _ in 0..2000 {
        witness.hear_reply().expect("a reply").ok();
    }
    let before = server.resident_bytes();
    let mut slow: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(server.address)).collect();
    for client in &mut slow {
        for _ in 0..REQUESTS / 2 {
            client.queue(&Op::get_data("/large", false));
            client.queue(&Op::get_children("/many", false));
        }
        client.flush().expect("a socket that takes requests");
    }
    // The first bytes of a reply have arrived, so the server is processing the requests of this
    // client.
    for client in &mut slow {
        client.hear_reply().expect("a reply").ok();
    }
    for _ in 0..50 {
        assert_eq!(witness.get("/large").0.len(), 1_000_000);
        witness.set("/many", b"");
    }
    let grown = server.resident_bytes_peak().saturating_sub(before);
    println!("{CLIENTS} clients that do not read cost {} KiB", grown >> 10);
    assert!(grown < BYTES_MAX, "{} MiB", grown / MIB);
}

#[test]
fn requests_that_blow_up_into_large_replies_cost_a_bounded_amount() {
    const BYTES_MAX: u64 = 400 * MIB;
    const LARGE: usize = 1_000_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut witness = Client::connect(server.address);
    witness.create("/large", &vec![7; LARGE]);
    witness.create("/here", b"");
    let before = server.resident_bytes();
    let mut check = |what: &str, ask: &dyn Fn(&mut Client)| {
        let mut greedy = Client::connect(server.address);
        ask(&mut greedy);
        greedy.flush().expect("a socket that takes requests");
        for _ in 0..10 {
            assert_eq!(witness.get("/large").0.len(), LARGE);
            witness.set("/here", b"still");
        }
        greedy.close_writing().expect("a connection");
        greedy.drain_to_end().expect("the end of the connection");
        let grown = server.resident_bytes_peak().saturating_sub(before);
        println!("{what}: {} KiB", grown >> 10);
        assert!(grown < BYTES_MAX, "{} MiB", grown / MIB);
    };
    let part = Op::get_data("/large", false);
    check("a request of a megabyte for forty gigabytes", &|greedy| {
        greedy.queue(&Op::multi_read(&vec![part.clone(); 40_000]));
    });
    // Reads between two writes of one session must be answered before the second write. The server
    // reads all of these requests at once.
    check("two gigabytes between two writes", &|greedy| {
        greedy.queue(&Op::set_data("/here", b"before"));
        for _ in 0..50 {
            greedy.queue(&Op::multi_read(&vec![part.clone(); 40]));
        }
        greedy.queue(&Op::set_data("/here", b"after"));
    });
    let (status, log) = server.terminate();
    assert!(status.success() && !log.contains("panicked"), "{status}: {log}");
}

#[test]
fn requests_that_never_end_cost_no_more_than_was_sent() {
    const CLIENTS: usize = 50;
    const SENT: usize = 500_000;
    const BYTES_MAX: u64 = 2 * (CLIENTS * SENT) as u64 + 16 * MIB;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut witness = Client::connect(server.address);
    witness.create("/here", b"");
    let before = server.resident_bytes();
    let mut request = Vec::new();
    put_request(&mut request, 1, OpCode::SetData.code(), &vec![0; 1_000_000]);
    let mut stalled = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(server.address);
        client.send_raw(&request[..SENT]).expect("a socket that takes half a request");
        stalled.push(client);
    }
    witness.set("/here", b"still");
    let grown = server.resident_bytes_peak().saturating_sub(before);
    println!("{CLIENTS} requests that never end cost {} KiB", grown >> 10);
    assert!(grown < BYTES_MAX, "{} MiB", grown / MIB);
    assert!(witness.has("/here"));
}

#[test]
fn connections_up_to_the_limit_of_open_files_stop_nobody() {
    const FILES: &str = "ulimit -n 150";
    const CONNECTIONS: usize = 300;
    const WRITES: usize = 200;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "snapCount=20").after(FILES);
    let server = setup.start();
    let mut witness = Client::connect(server.address);
    witness.create("/here", b"");
    let greeting = greeting(Session::none(TIMEOUT_MS));
    let mut crowd = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = Client::dial(server.address).expect("a place in the queue");
        // The server may have closed the connection already.
        let _ = stream.write_all(&greeting);
        crowd.push(stream);
    }
    // The server needs new log files and snapshots meanwhile, and each is a file to open.
    for number in 0..WRITES {
        witness.set("/here", format!("{number}").as_bytes());
    }
    drop(crowd);
    let mut late = Client::connect(server.address);
    assert_eq!(late.get("/here").0, format!("{}", WRITES - 1).as_bytes());
    let (status, log) = server.terminate();
    assert!(status.success(), "{status}: {log}");
    assert!(log.lines().count() < CONNECTIONS + 50, "a flood in the log: {log}");
}
