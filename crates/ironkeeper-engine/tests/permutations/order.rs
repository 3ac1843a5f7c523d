//! The guarantees for clients during concurrent writes: "The gate rule" in ARCHITECTURE.md.

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::outbox::SHARE_BYTES_MIN;
use ironkeeper_engine::request_throttle::RequestThrottleConfig;
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::{OpCode, Stat};

use crate::check;
use crate::server::{Heard, Script, Server, check_order, converse, converse_while};

/// Returns the data of the replies to `getData`.
fn values(heard: &[Heard]) -> Vec<String> {
    let data = heard.iter().filter_map(Heard::data);
    data.map(|(data, _)| String::from_utf8(data).unwrap()).collect()
}

/// Returns data that is shared with the tree instead of being copied.
fn large(letter: char) -> String {
    letter.to_string().repeat(SHARE_BYTES_MIN)
}

fn check_own_order(script: impl Fn() -> Script + Send + Sync + 'static) {
    check(move || {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let other = Script::new().set("/b", "x").get("/a").then().get("/a").set("/b", "y");
        let (second, first) = (clients.pop().unwrap(), clients.pop().unwrap());
        let heard = converse(&server, vec![(first, script()), (second, other)]);
        check_order(&heard[0], 5);
        assert_eq!(values(&heard[0]), ["0", "1", "2"]);
        check_order(&heard[1], 4);
        assert!(values(&heard[1]).is_sorted(), "time goes back: {:?}", values(&heard[1]));
    });
}

#[test]
fn a_read_sees_the_own_writes_before_it_and_not_those_behind_it() {
    check_own_order(|| Script::new().get("/a").set("/a", "1").get("/a").set("/a", "2").get("/a"));
}

#[test]
fn so_it_does_if_requests_come_one_by_one() {
    check_own_order(|| {
        Script::new().get("/a").set("/a", "1").then().get("/a").set("/a", "2").then().get("/a")
    });
}

#[test]
fn a_sync_and_the_reads_behind_it_keep_their_place() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let (second, first) = (clients.pop().unwrap(), clients.pop().unwrap());
        let writes = Script::new().set("/a", "1").sync().get("/a").set("/a", "2");
        let reads = Script::new().sync().get("/a").sync().then().get("/a");
        let heard = converse(&server, vec![(first, writes), (second, reads)]);
        check_order(&heard[0], 4);
        assert_eq!(values(&heard[0]), ["1"]);
        check_order(&heard[1], 4);
        assert!(values(&heard[1]).is_sorted());
    });
}

/// Returns both values of a `multiRead`.
fn both(heard: &Heard) -> Option<[Vec<u8>; 2]> {
    let Heard::Reply { body, .. } = heard else { return None };
    let mut reader = Reader::new(body);
    let mut values = Vec::new();
    loop {
        let header = MultiHeader::decode(&mut reader).ok()?;
        if header.done {
            return values.try_into().ok();
        }
        if OpCode::from_code(header.kind) != Some(OpCode::GetData) {
            return None;
        }
        values.push(reader.buf().ok()??.to_vec());
        Stat::decode(&mut reader).ok()?;
    }
}

#[test]
fn nobody_sees_half_of_a_multi() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 3);
        let writes = Script::new().set_both(b"1").set_both(b"2").then().set_both(b"3");
        let reads = Script::new().get_both().then().get_both().then().get_both();
        let talks = vec![
            (clients.pop().unwrap(), writes),
            (clients.pop().unwrap(), reads.clone()),
            (clients.pop().unwrap(), reads),
        ];
        for heard in &converse(&server, talks)[1..] {
            check_order(heard, 3);
            let seen: Vec<[Vec<u8>; 2]> = heard.iter().filter_map(both).collect();
            assert_eq!(seen.len(), 3);
            assert!(seen.iter().all(|[a, b]| a == b), "{seen:?}");
            assert!(seen.is_sorted(), "{seen:?}");
        }
    });
}

#[test]
fn a_watch_is_set_with_its_read_and_fires_before_newer_data() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let writes = Script::new().set("/a", "1").then().set("/a", "2");
        let reads = Script::new().get_and_watch("/a").then().get("/a").then().get("/a");
        let talks = vec![(clients.pop().unwrap(), writes), (clients.pop().unwrap(), reads)];
        let heard = &converse(&server, talks)[1];
        check_order(heard, 3);
        let registered = heard[0].data().expect("no event before the reply that registers it").1;
        let events: Vec<usize> =
            (0..heard.len()).filter(|index| heard[*index].is_event()).collect();
        // One-shot: it fires for the first change after the read, once.
        let changes_left = 2 - registered.version;
        assert_eq!(events.len(), usize::from(changes_left > 0), "{heard:?}");
        let newer = heard.iter().position(|heard| {
            heard.data().is_some_and(|(_, stat)| stat.version > registered.version)
        });
        if let Some(newer) = newer {
            assert!(events[0] < newer, "newer data before the event: {heard:?}");
        }
    });
}

fn check_persistent_watch(value: fn(usize) -> String) {
    check(move || {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let writes =
            Script::new().set("/a", value(1)).set("/a", value(2)).then().set("/a", value(3));
        let reads = Script::new().watch("/").get("/a").then().get("/a").get("/a").then().get("/a");
        let talks = vec![(clients.pop().unwrap(), writes), (clients.pop().unwrap(), reads)];
        let heard = &converse(&server, talks)[1];
        check_order(heard, 5);
        let zxids: Vec<i64> = heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::Event { zxid, .. } => Some(*zxid),
                Heard::Reply { .. } => None,
            })
            .collect();
        assert!(zxids.is_sorted_by(|one, next| one < next), "an event twice: {heard:?}");
        let mut told = None;
        for heard in heard {
            match heard {
                Heard::Event { zxid, .. } => told = Some(*zxid),
                Heard::Reply { .. } => {
                    let Some((data, stat)) = heard.data() else { continue };
                    assert_eq!(data.len(), value(stat.version as usize).len().max(1));
                    // The event of a change after the registration precedes the changed data.
                    if let Some(first) = zxids.first()
                        && stat.mzxid.0 >= *first
                    {
                        assert_eq!(told, Some(stat.mzxid.0), "data without its event");
                    }
                }
            }
        }
        // No event after the first is missing.
        assert!(zxids.is_empty() || zxids[zxids.len() - 1] - zxids[0] == zxids.len() as i64 - 1);
    });
}

#[test]
fn every_change_is_told_once_in_order_and_before_it_is_shown() {
    check_persistent_watch(|version| version.to_string());
}

#[test]
fn so_it_is_if_data_is_sent_from_where_it_lies() {
    check_persistent_watch(|version| match version {
        0 => "0".to_owned(),
        version => large(char::from(b'a' + version as u8)),
    });
}

/// Two clients with more requests than may be in progress: every pause ends, also of connections
/// that the timer wakes early to check whether their request is stale.
fn check_all_served(config: impl Fn() -> EngineConfig + Send + Sync + 'static) {
    check(move || {
        let (server, mut clients) = Server::start(config(), 2);
        let script = || {
            Script::new().set("/a", "1").get("/b").set("/b", "1").then().get("/a").set("/a", "2")
        };
        let talks = vec![(clients.pop().unwrap(), script()), (clients.pop().unwrap(), script())];
        let heard = converse_while(&server, talks, |server| (0..3).for_each(|_| server.tick()));
        for heard in heard {
            check_order(&heard, 5);
        }
    });
}

#[test]
fn who_pauses_for_too_many_requests_in_work_is_woken() {
    check_all_served(|| EngineConfig { outstanding_max: 0, ..EngineConfig::default() });
}

#[test]
fn who_waits_for_the_request_throttle_gets_its_turn() {
    check_all_served(|| EngineConfig {
        request_throttle: Some(RequestThrottleConfig {
            requests_max: 1,
            look_interval_ms: 0,
            drop_stale: true,
            stale_when_gone: true,
            stale_when_late: false,
            refuse_after_ms: None,
        }),
        ..EngineConfig::default()
    });
}
