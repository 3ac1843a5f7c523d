//! Sessions in real time: expiry, and the notification of all watchers.

use ironkeeper_config::Config;
use ironkeeper_proto::CreateMode;
use ironkeeper_proto::watch_event::EventType;

use crate::client::{Client, Op, Session, TIMEOUT_MS};
use crate::in_process::{config, start};

const TICK_MS: u32 = 100;
/// Long enough that a session does not expire between two requests on a busy machine.
const SHORT_MS: i32 = 6000;

/// Returns a configuration that allows short and long sessions.
fn quick_config() -> Config {
    let mut config = config();
    config.set_tick_time_ms(TICK_MS);
    config.max_session_timeout_ms = TIMEOUT_MS as u32;
    config
}

#[test]
fn a_silent_session_ends_and_takes_its_ephemerals_along() {
    let (server, _dir) = start(quick_config());
    let mut watcher = Client::connect(server.address());
    watcher.create("/members", b"");
    let mut silent = Client::open(server.address(), Session::none(SHORT_MS)).expect("a session");
    assert_eq!(silent.session.timeout_ms, SHORT_MS);
    silent.call(&Op::create("/members/one", b"", CreateMode::Ephemeral)).ok();
    let (_, stat) = watcher.call(&Op::get_data("/members/one", true)).ok().data();
    assert_eq!(stat.ephemeral_owner, silent.session.id.0);
    watcher.call(&Op::get_children("/members", true)).ok();

    let deleted = (EventType::NodeDeleted, "/members/one".to_owned());
    assert_eq!(watcher.hear_event().expect("an event"), deleted);
    let children = (EventType::NodeChildrenChanged, "/members".to_owned());
    assert_eq!(watcher.hear_event().expect("an event"), children);
    assert!(!watcher.has("/members/one"));

    assert_eq!(silent.drain_to_end().expect("the end of the connection"), 0);
    let again = Client::open(server.address(), silent.session);
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn signs_of_life_keep_a_session() {
    let (server, _dir) = start(quick_config());
    let mut client = Client::open(server.address(), Session::none(SHORT_MS)).expect("a session");
    client.call(&Op::create("/alive", b"", CreateMode::Ephemeral)).ok();
    // A session that was opened later and sends no pings expires first.
    let mut silent = Client::open(server.address(), Session::none(SHORT_MS)).expect("a session");
    silent.call(&Op::create("/silent", b"", CreateMode::Ephemeral)).ok();
    let mut watcher = Client::connect(server.address());
    while watcher.has("/silent") {
        client.call(&Op::ping()).ok();
    }
    assert!(client.has("/alive"));
}

#[test]
fn a_session_outlives_its_connection_for_its_timeout() {
    let (server, _dir) = start(quick_config());
    let mut watcher = Client::connect(server.address());
    let mut owner = Client::open(server.address(), Session::none(SHORT_MS)).expect("a session");
    owner.call(&Op::create("/owned", b"", CreateMode::Ephemeral)).ok();
    let session = owner.session;
    drop(owner);
    let mut owner = Client::open(server.address(), session).expect("the same session");
    assert_eq!(owner.session, session);
    assert!(owner.has("/owned"));
    watcher.call(&Op::exists("/owned", true)).ok();
    drop(owner);
    let deleted = (EventType::NodeDeleted, "/owned".to_owned());
    assert_eq!(watcher.hear_event().expect("an event"), deleted);
}

#[test]
fn a_session_that_moves_ends_its_old_connection() {
    let (server, _dir) = start(config());
    let mut old = Client::connect(server.address());
    old.call(&Op::create("/owned", b"", CreateMode::Ephemeral)).ok();
    let mut new = Client::open(server.address(), old.session).expect("the same session");
    assert_eq!(old.drain_to_end().expect("the end of the connection"), 0);
    assert!(new.has("/owned"));
    let mut stranger = old.session;
    stranger.password[0] ^= 1;
    assert!(Client::open(server.address(), stranger).is_err(), "a wrong password");
    assert!(new.has("/owned"));
}

#[test]
fn a_closed_session_is_gone_at_once() {
    let (server, _dir) = start(config());
    let mut watcher = Client::connect(server.address());
    let mut owner = Client::connect(server.address());
    owner.call(&Op::create("/owned", b"", CreateMode::Ephemeral)).ok();
    watcher.call(&Op::exists("/owned", true)).ok();
    owner.call(&Op::close_session()).ok();
    assert_eq!(owner.drain_to_end().expect("the end of the connection"), 0);
    let deleted = (EventType::NodeDeleted, "/owned".to_owned());
    assert_eq!(watcher.hear_event().expect("an event"), deleted);
    assert!(Client::open(server.address(), owner.session).is_err());
}
