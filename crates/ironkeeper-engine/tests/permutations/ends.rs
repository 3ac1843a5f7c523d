//! Connections and sessions that end while others continue.

use std::sync::Arc;

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::request_throttle::RequestThrottleConfig;
use ironkeeper_proto::CreateMode;
use shuttle::thread;

use crate::check;
use crate::server::{Heard, Script, Server, check_order, converse_while};

fn throttled() -> EngineConfig {
    let throttle = RequestThrottleConfig {
        requests_max: 1,
        look_interval_ms: 100,
        drop_stale: false,
        stale_when_gone: false,
        stale_when_late: false,
        refuse_after_ms: None,
    };
    EngineConfig { request_throttle: Some(throttle), ..EngineConfig::default() }
}

fn check_disconnect(config: impl Fn() -> EngineConfig + Send + Sync + 'static) {
    check(move || {
        let (server, mut clients) = Server::start(config(), 2);
        let (mut leaving, staying) = (clients.pop().unwrap(), clients.pop().unwrap());
        let leaves = Script::new().watch("/").set("/a", "1").get("/a").then().set("/b", "1");
        let stays = Script::new().set("/a", "2").get("/a").then().set("/b", "2").get("/b");
        let heard = converse_while(&server, vec![(staying, stays)], move |server| {
            leaving.talk_and_leave(server, &leaves);
        });
        check_order(&heard[0], 4);
        assert_eq!(server.db.read().watches.count(), 0, "watches of nobody");
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    check_disconnect(EngineConfig::default);
}

#[test]
fn so_it_does_if_it_waits_for_the_request_throttle() {
    check_disconnect(throttled);
}

#[test]
fn the_end_reaches_a_client_that_takes_nothing() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let (mut stuck, other) = (clients.pop().unwrap(), clients.pop().unwrap());
        let session = stuck.conn.session();
        let silent = Script::new().watch("/").set("/a", "1").get("/a").then().set("/b", "1");
        let talking = Script::new().set("/a", "2").then().set("/b", "2");
        let expiring = Arc::clone(&server);
        let expiring = thread::spawn(move || expiring.expire(session));
        let heard = converse_while(&server, vec![(other, talking)], move |server| {
            stuck.talk_and_take_nothing(server, &silent);
            expiring.join().unwrap();
        });
        check_order(&heard[0], 2);
    });
}

#[test]
fn an_expired_session_goes_whole_and_is_seen_to_go_once() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let (expiring, watching) = (clients.pop().unwrap(), clients.pop().unwrap());
        let session = expiring.conn.session();
        let script = Script::new().create("/e", CreateMode::Ephemeral).get("/e").then().get("/e");
        let script = script.set("/a", "1").get("/a");
        let watch = Script::new().watch("/").exists_and_watch("/e");
        let talks = vec![(expiring, script), (watching, watch)];
        let heard = converse_while(&server, talks, move |server| server.expire(session));

        // The replies are those to the first requests, in order, however many there are.
        let xids: Vec<i32> = heard[0]
            .iter()
            .filter_map(|heard| match heard {
                Heard::Reply { xid, .. } => Some(*xid),
                Heard::Event { .. } => None,
            })
            .collect();
        assert!(xids.iter().copied().eq(1..=xids.len() as i32), "{xids:?}");
        let state = server.db.read();
        assert!(!state.sessions.contains(session), "the session is still there");
        assert!(state.tree.find("/e").is_none(), "its ephemeral is still there");
        let kinds: Vec<i32> = heard[1]
            .iter()
            .filter_map(|heard| match heard {
                Heard::Event { kind, path, .. } if path == "/e" => Some(*kind),
                _ => None,
            })
            .collect();
        // Created and deleted, or only deleted, or nothing.
        assert!([&[1, 2][..], &[2], &[]].contains(&&kinds[..]), "{kinds:?}");
    });
}
