//! Start, stop and restart of a server, and its control over sessions and connections.

use std::io::{Read, Write};
use std::net::TcpStream;

use ironkeeper_proto::{CreateMode, SessionId};
use ironkeeper_testing::{Error, TestServer};

use crate::session::{Session, dial};

const LONG_MS: i32 = 600_000;

fn word(server: &TestServer, word: &str) -> String {
    let mut stream = dial(server.address());
    stream.write_all(word.as_bytes()).expect("a live connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn short_and_long_sessions_are_granted_as_asked_for() {
    let server = TestServer::start().expect("a server");
    for timeout_ms in [100, 3_600_000] {
        assert_eq!(Session::open(server.address(), timeout_ms).timeout_ms, timeout_ms);
    }
}

#[test]
fn every_four_letter_word_is_answered() {
    let server = TestServer::start().expect("a server");
    for name in ["ruok", "wchc", "dump", "mntr"] {
        assert!(!word(&server, name).contains("whitelist"), "{name}");
    }
}

#[test]
fn a_killed_session_takes_its_ephemerals_and_its_connection_and_no_others() {
    let server = TestServer::start().expect("a server");
    let mut victim = Session::open(server.address(), LONG_MS);
    let mut other = Session::open(server.address(), LONG_MS);
    victim.create("/of-the-victim", CreateMode::Ephemeral);
    other.create("/of-the-other", CreateMode::Ephemeral);

    assert!(server.kill_session(victim.id).expect("a running server"));

    assert_eq!(server.sessions().expect("a running server"), [other.id]);
    assert_eq!(server.connections().expect("a running server"), 1);
    victim.hear_end();
    assert!(Session::attach(server.address(), victim.id, LONG_MS).is_none());
    assert!(!other.has("/of-the-victim") && other.has("/of-the-other"));
    assert!(!server.kill_session(victim.id).expect("a running server"), "it is dead already");
}

#[test]
fn a_session_without_a_connection_can_be_killed() {
    let server = TestServer::start().expect("a server");
    let id = Session::open(server.address(), LONG_MS).id;
    assert!(server.kill_session(id).expect("a running server"));
    assert!(Session::attach(server.address(), id, LONG_MS).is_none());
}

#[test]
fn a_silent_session_expires_by_itself() {
    let server = TestServer::start().expect("a server");
    let mut session = Session::open(server.address(), 100);
    session.hear_end();
    assert!(Session::attach(server.address(), session.id, 100).is_none());
}

#[test]
fn sessions_outlive_dropped_connections() {
    let server = TestServer::start().expect("a server");
    let mut session = Session::open(server.address(), LONG_MS);
    session.create("/ephemeral", CreateMode::Ephemeral);
    assert_eq!(server.drop_connections().expect("a running server"), 1);
    session.hear_end();
    let mut again = Session::attach(server.address(), session.id, LONG_MS).expect("the session");
    assert!(again.has("/ephemeral"));
}

#[test]
fn data_sessions_and_port_outlive_a_restart() {
    let server = TestServer::start().expect("a server");
    let mut session = Session::open(server.address(), LONG_MS);
    session.create("/kept", CreateMode::Persistent);
    session.create("/ephemeral", CreateMode::Ephemeral);
    let address = server.address();

    server.stop().expect("an orderly end");
    server.stop().expect("nothing to do");
    session.hear_end();
    assert!(TcpStream::connect(address).is_err());
    assert!(matches!(server.sessions(), Err(Error::Stopped)));
    assert!(matches!(server.kill_session(SessionId(1)), Err(Error::Stopped)));

    server.restart().expect("a server again");
    server.restart().expect("a server once more");
    assert_eq!(server.address(), address);
    let mut again = Session::attach(address, session.id, LONG_MS).expect("the session");
    assert!(again.has("/kept") && again.has("/ephemeral"));
}

/// The system assigns ports in sequence, so a port that is not reserved would be assigned to one of
/// these servers.
#[test]
fn a_stopped_server_keeps_its_port() {
    let server = TestServer::start().expect("a server");
    server.stop().expect("an orderly end");
    let others: Vec<TestServer> =
        (0..20).map(|_| TestServer::start().expect("another server")).collect();
    assert!(others.iter().all(|other| other.port() != server.port()));
    server.restart().expect("its own port");
}

#[test]
fn a_taken_port_is_an_error() {
    let server = TestServer::start().expect("a server");
    let second = TestServer::builder().port(server.port()).start();
    assert!(second.is_err(), "{second:?}");
}

#[test]
fn the_temporary_directory_goes_with_the_server_and_a_given_one_stays() {
    let server = TestServer::start().expect("a server");
    let temporary = server.data_dir().to_owned();
    assert!(temporary.is_dir());
    drop(server);
    assert!(!temporary.exists());

    let given = tempfile::tempdir().expect("a directory");
    let server = TestServer::builder().data_dir(given.path()).start().expect("a server");
    Session::open(server.address(), LONG_MS).create("/kept", CreateMode::Persistent);
    drop(server);
    let server = TestServer::builder().data_dir(given.path()).start().expect("a server");
    assert!(Session::open(server.address(), LONG_MS).has("/kept"));
}

#[test]
fn settings_reach_the_server() {
    let server = TestServer::builder().set("minSessionTimeout", 7777).start().expect("a server");
    assert_eq!(Session::open(server.address(), 1).timeout_ms, 7777);
    assert!(word(&server, "conf").contains("minSessionTimeout=7777"));
}

#[tokio::test]
async fn everything_can_be_called_on_the_only_thread_of_an_async_test() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let server = TestServer::start().expect("a server");
    let mut stream =
        tokio::net::TcpStream::connect(server.connect_string()).await.expect("a connection");
    server.restart().expect("a server again");
    // The read fails with a reset if the connection was not yet accepted.
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    let mut stream =
        tokio::net::TcpStream::connect(server.connect_string()).await.expect("a connection");
    stream.write_all(b"ruok").await.expect("a live connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert_eq!(answer, "imok");
}
