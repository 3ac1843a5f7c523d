//! A panic stops an in-process server, and the test receives the reason.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ironkeeper_proto::CreateMode;
use ironkeeper_server::panics::Place;
use ironkeeper_testing::{Error, Role, TestCluster, TestServer};

use crate::session::Session;

const LONG_MS: i32 = 600_000;

/// Returns a server that panics when it next executes `place`, a session whose write was
/// acknowledged, and an idle session.
fn server_with_panic(place: Place) -> (TestServer, Session, Session) {
    let server = TestServer::builder().planted_panic(place).start().expect("a server");
    let idle = Session::open(server.address(), LONG_MS);
    let mut session = Session::open(server.address(), LONG_MS);
    session.create("/acknowledged", CreateMode::Persistent);
    arm(&mut session, 1, place);
    (server, session, idle)
}

/// Makes the server panic when it next executes `place`.
fn arm(session: &mut Session, server: i64, place: Place) {
    let node = format!("/panic-{server}");
    match place {
        // These threads execute the place by themselves, possibly before the reply is sent.
        Place::Timer | Place::PeerLink => session.begin_create(&node, CreateMode::Persistent),
        _ => session.create(&node, CreateMode::Persistent),
    }
}

#[track_caller]
fn check_report(report: &str, place: Place) {
    assert!(report.contains("panicked at crates/ironkeeper-"), "no place: {report}");
    assert!(report.ends_with(&format!("planted in {}", place.name())), "no reason: {report}");
}

#[test]
fn every_thread_and_task_that_panics_stops_the_server_and_the_owner_hears_why() {
    for place in [Place::Judge, Place::Apply, Place::Read, Place::Timer, Place::Log] {
        let (server, mut session, mut idle) = server_with_panic(place);
        match place {
            Place::Read => session.begin_read(),
            Place::Timer => {}
            _ => session.begin_create("/later", CreateMode::Persistent),
        }
        session.hear_end_behind_replies();
        idle.hear_end();
        check_report(&server.failure().expect("a reason"), place);
        assert_eq!(server.role(), Role::Stopped);

        let Err(Error::Failed(report)) = server.stop() else { panic!("{place:?}: no report") };
        check_report(&report, place);
        assert_eq!(server.failure(), None, "a failure is reported once");
        assert!(TcpStream::connect(server.address()).is_err(), "{place:?}: it still listens");
    }
}

#[test]
fn what_was_acknowledged_before_the_panic_is_there_after_a_restart() {
    let (server, mut session, _idle) = server_with_panic(Place::Judge);
    session.begin_create("/later", CreateMode::Persistent);
    session.hear_end_behind_replies();
    assert!(matches!(server.restart(), Err(Error::Failed(_))), "the failure is reported first");
    server.restart().expect("it starts again");
    let mut session = Session::open(server.address(), LONG_MS);
    assert!(session.has("/acknowledged") && !session.has("/later"));
}

#[test]
fn a_test_that_does_not_ask_cannot_pass_over_a_panic() {
    let (server, mut session, _idle) = server_with_panic(Place::Timer);
    session.hear_end_behind_replies();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(server))).expect_err("a panic");
    check_report(dropped.downcast_ref::<String>().expect("a text"), Place::Timer);
}

#[test]
fn a_leader_that_panics_is_replaced() {
    for place in [Place::Judge, Place::PeerLink] {
        let cluster = TestCluster::builder().planted_panic(place).start().expect("a cluster");
        let leader = cluster.leader().expect("there is one");
        let mut session = Session::open(cluster.server(leader).address(), LONG_MS);
        session.create("/acknowledged", CreateMode::Persistent);
        arm(&mut session, leader, place);
        if place == Place::Judge {
            session.begin_create("/later", CreateMode::Persistent);
        }
        session.hear_end_behind_replies();
        cluster.wait_until_serving().expect("the others go on");
        let next = cluster.leader().expect("a new leader");
        assert_ne!(next, leader);
        assert!(Session::open(cluster.server(next).address(), LONG_MS).has("/acknowledged"));
        let Err(Error::Failed(report)) = cluster.stop(leader) else { panic!("no report") };
        check_report(&report, place);
    }
}
