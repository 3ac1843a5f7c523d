//! Requests of the maximal size survive a crash, in the log and in a snapshot.

use ironkeeper_proto::CreateMode;
use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;

use crate::client::{Client, Op};
use crate::server_process::Setup;

/// The xid and the operation code in front of every request.
const HEADER_BYTES: usize = 8;
/// A configuration that takes snapshots often.
const EAGER: &str = "snapCount=2";

/// Starts the server twice more: first from the log alone, then from a snapshot that contains
/// everything.
fn check_restarts(dir: &std::path::Path, check: impl Fn(&mut Client)) {
    let server = Setup::new(dir, EAGER).start();
    let mut client = Client::connect(server.address);
    check(&mut client);
    for number in 0..20u32 {
        client.create(&format!("/snapshot-trigger-{number}"), b"");
    }
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    let server = Setup::new(dir, "").start();
    check(&mut Client::connect(server.address));
    let log = server.kill();
    // The warning that old files are kept is the only expected warning.
    let is_trouble = |line: &str| {
        (line.contains("WARN") || line.contains("ERROR")) && !line.contains("autopurge")
    };
    assert!(!log.lines().any(is_trouble), "{log}");
}

#[test]
fn the_largest_requests_survive_a_crash() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut client = Client::connect(server.address);
    let around = Op::create("/large", b"", CreateMode::Persistent).body.len() + HEADER_BYTES;
    let largest = MAX_BUFFER_DEFAULT - around;
    client.create("/large", &vec![7; largest]);
    // Many small operations: their transaction in the log is longer than the request.
    let part = |number: usize| format!("/multi-{number}");
    let size = Op::multi(&[Op::create(&part(10_000), b"", CreateMode::Persistent)]).body.len();
    let parts = (MAX_BUFFER_DEFAULT - HEADER_BYTES) / size;
    let creates: Vec<Op> = (10_000..10_000 + parts)
        .map(|number| Op::create(&part(number), b"", CreateMode::Persistent))
        .collect();
    client.call(&Op::multi(&creates)).ok();
    let name = format!("/{}", "n".repeat(MAX_BUFFER_DEFAULT - around - 10));
    client.create(&name, b"");
    // One byte more exceeds the limit, and the server closes the connection.
    client.queue(&Op::set_data("/large", &vec![8; MAX_BUFFER_DEFAULT]));
    let _ = client.flush();
    client.drain_to_end().expect("the end of the connection");
    server.kill();
    check_restarts(dir.path(), |client| {
        assert_eq!(client.get("/large").0, vec![7; largest]);
        assert!(client.has(&name));
        assert!(client.has(&part(10_000)) && client.has(&part(10_000 + parts - 1)));
    });
}

#[test]
fn a_session_with_very_many_ephemerals_ends_for_good() {
    const EPHEMERALS: usize = 20_000;
    const IN_FLIGHT: usize = 500;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut witness = Client::connect(server.address);
    witness.create("/e", b"");
    // The transaction that closes this session is longer than the largest request.
    let padding = "x".repeat(3 * MAX_BUFFER_DEFAULT / EPHEMERALS);
    let mut owner = Client::connect(server.address);
    for group in 0..EPHEMERALS / IN_FLIGHT {
        for number in 0..IN_FLIGHT {
            let path = format!("/e/{padding}-{group}-{number}");
            owner.queue(&Op::create(&path, b"", CreateMode::Ephemeral));
        }
        owner.flush().expect("a socket that takes requests");
        for _ in 0..IN_FLIGHT {
            owner.hear_reply().expect("a reply").ok();
        }
    }
    assert_eq!(witness.get("/e").1.num_children as usize, EPHEMERALS);
    owner.call(&Op::close_session()).ok();
    assert_eq!(witness.get("/e").1.num_children, 0);
    witness.create("/after", b"");
    server.kill();
    check_restarts(dir.path(), |client| {
        assert_eq!(client.get("/e").1.num_children, 0);
        assert!(client.has("/after"));
    });
}
