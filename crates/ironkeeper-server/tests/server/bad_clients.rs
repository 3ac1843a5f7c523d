//! Clients that send malformed bytes, do not read, do not send, or open many connections. Each
//! loses at most its own connection; all others are served meanwhile.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{Acl, CreateMode, OpCode, Perms, Put, acl};
use ironkeeper_server::Server;

use crate::client::{
    Client, Op, Random, Session, TIMEOUT_MS, drain_to_end, framed, greeting, put_request,
};
use crate::in_process::{config, eventually, start};

/// Just below the largest frame that a client may send.
const LARGE_BYTES: usize = 1_000_000;

/// A client that reads its own writes until it is stopped, and checks every reply.
struct Witness<'scope> {
    stop: &'scope AtomicBool,
    thread: thread::ScopedJoinHandle<'scope, u64>,
}

impl<'scope> Witness<'scope> {
    fn start(
        scope: &'scope thread::Scope<'scope, '_>,
        stop: &'scope AtomicBool,
        address: SocketAddr,
    ) -> Witness<'scope> {
        let thread = scope.spawn(move || {
            let mut client = Client::connect(address);
            client.create("/witness", b"");
            let mut rounds = 0u64;
            while !stop.load(Ordering::Acquire) {
                rounds += 1;
                let written = client.set("/witness", &rounds.to_be_bytes());
                assert_eq!(client.get("/witness"), (rounds.to_be_bytes().to_vec(), written));
                client.call(&Op::ping()).ok();
            }
            rounds
        });
        Witness { stop, thread }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Release);
        let rounds = self.thread.join().expect("a witness that was served");
        assert!(rounds > 0, "the witness was never served");
    }
}

#[track_caller]
fn await_connections(server: &Server, count: usize) {
    eventually(&format!("{count} connections"), || server.shared().connections.len() == count);
}

/// Returns malformed bytes. The server closes the connection or, if they could be the beginning of
/// a valid request, waits for more until the client closes it.
fn rubbish(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let lengths = [i32::MAX, i32::MIN, -1, 0, 1, 7, 0x10_0000, 0x7fff_0000];
    match random.below(6) {
        0 => bytes.put_i32(lengths[random.below(lengths.len())]),
        1 => {
            bytes.put_i32(lengths[random.below(lengths.len())]);
            bytes.extend(random.bytes(100));
        }
        2 => {
            let len = random.below(2000);
            bytes.extend(random.bytes(len));
        }
        3 => {
            let len = random.below(300);
            bytes.extend(framed(&random.bytes(len)));
        }
        4 => {
            // A known operation with a random body.
            for _ in 0..8 {
                let op = loop {
                    let code = random.below(120) as i32 - 12;
                    if OpCode::from_code(code).is_some_and(|op| op != OpCode::CloseSession) {
                        break code;
                    }
                };
                let len = random.below(200);
                let body = random.bytes(len);
                put_request(&mut bytes, random.next() as i32, op, &body);
            }
        }
        _ => {
            // A valid request, truncated or with one byte changed.
            let op = Op::multi(&[
                Op::create("/rubbish", b"data", CreateMode::Ephemeral),
                Op::set_data("/rubbish", b"more data"),
            ]);
            put_request(&mut bytes, 1, op.code.code(), &op.body);
            let at = random.below(bytes.len());
            match random.below(2) {
                0 => bytes.truncate(at),
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
    }
    bytes
}

#[test]
fn rubbish_costs_only_its_sender() {
    const SENDERS: usize = 4;
    const CONNECTIONS_EACH: usize = 150;
    let (server, _dir) = start(config());
    let address = server.address();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let witness = Witness::start(scope, &stop, address);
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    let mut random = Random::new(sender as u64);
                    for _ in 0..CONNECTIONS_EACH {
                        let mut stream = Client::dial(address).expect("a connection");
                        if random.below(2) == 0 {
                            let greeting = greeting(Session::none(TIMEOUT_MS));
                            stream.write_all(&greeting).expect("a socket that takes a greeting");
                        }
                        // The server may close the connection while the client still sends.
                        let _ = stream.write_all(&rubbish(&mut random));
                        let _ = stream.shutdown(std::net::Shutdown::Write);
                        drain_to_end(&mut stream).expect("the end of the connection");
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.join().expect("a sender whose connections all ended");
        }
        witness.finish();
    });
    await_connections(&server, 0);
    server.stop().expect("a server without failures");
}

/// Returns a request with a well-formed body and unusual content.
fn odd_request(random: &mut Random) -> (i32, Vec<u8>) {
    let deep = "/d".repeat(5000);
    let long = format!("/{}", "l".repeat(50_000));
    let paths: [&[u8]; 20] = [
        b"",
        b"/",
        b"//",
        b"/odd",
        b"/odd/",
        b"/odd/child",
        b"/odd//child",
        b"odd",
        b"/.",
        b"/..",
        b"/odd/../odd",
        b"/odd\0",
        b"/odd\x7f\x01",
        b"/\xff\xfe",
        "/\u{1f600}\u{ffff}".as_bytes(),
        b"/zookeeper",
        b"/zookeeper/quota/odd/zookeeper_limits",
        b"/zookeeper/config",
        deep.as_bytes(),
        long.as_bytes(),
    ];
    let numbers = [-1, 0, 1, 2, 3, 4, 5, 6, 7, 31, 100, i32::MAX, i32::MIN];
    let mut body = Vec::new();
    let op = match random.below(22) {
        0..=3 => OpCode::Create,
        4 => OpCode::Create2,
        5 => OpCode::CreateContainer,
        6 => OpCode::CreateTtl,
        7 => OpCode::Delete,
        8 => OpCode::SetData,
        9 => OpCode::SetAcl,
        10 => OpCode::GetData,
        11 => OpCode::Exists,
        12 => OpCode::GetChildren2,
        13 => OpCode::Multi,
        14 => OpCode::MultiRead,
        15 => OpCode::SetWatches2,
        16 => OpCode::AddWatch,
        17 => OpCode::RemoveWatches,
        18 => OpCode::GetEphemerals,
        19 => OpCode::GetAllChildrenNumber,
        20 => OpCode::GetAcl,
        _ => OpCode::Sync,
    };
    let path = |random: &mut Random| paths[random.below(paths.len())];
    let number = |random: &mut Random| numbers[random.below(numbers.len())];
    let some_path = path(random);
    let put_acl = |random: &mut Random, body: &mut Vec<u8>| {
        let lists = [acl::open(), Vec::new(), vec![Acl::new(Perms(-1), "digest", "no colon")]];
        match random.below(lists.len() + 1) {
            at if at < lists.len() => acl::encode_list(&lists[at], body),
            _ => body.put_i32(number(random)),
        }
    };
    let put_create = |random: &mut Random, body: &mut Vec<u8>, op: OpCode| {
        body.put_buf(Some(path(random)));
        body.put_buf([None, Some(&b"data"[..])][random.below(2)]);
        put_acl(random, body);
        body.put_i32(number(random));
        if op == OpCode::CreateTtl {
            body.put_i64(i64::from(number(random)));
        }
    };
    match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            put_create(random, &mut body, op);
        }
        OpCode::SetAcl => {
            body.put_buf(Some(some_path));
            put_acl(random, &mut body);
            body.put_i32(-1);
        }
        OpCode::SetData => {
            body.put_buf(Some(some_path));
            body.put_buf([None, Some(&b"data"[..])][random.below(2)]);
            body.put_i32(number(random));
        }
        OpCode::Multi | OpCode::MultiRead => {
            for _ in 0..random.below(5) {
                let kinds = [OpCode::Create, OpCode::Delete, OpCode::Check, OpCode::GetData];
                let kind = kinds[random.below(kinds.len())];
                MultiHeader { kind: kind.code(), done: false, err: -1 }.encode(&mut body);
                match kind {
                    OpCode::Create => put_create(random, &mut body, kind),
                    OpCode::GetData => {
                        body.put_buf(Some(path(random)));
                        body.put_bool(true);
                    }
                    _ => {
                        body.put_buf(Some(path(random)));
                        body.put_i32(number(random));
                    }
                }
            }
            MultiHeader::END.encode(&mut body);
        }
        OpCode::SetWatches2 => {
            body.put_i64(i64::from(number(random)));
            for _ in 0..5 {
                body.put_len(2);
                body.put_buf(Some(path(random)));
                body.put_buf(Some(path(random)));
            }
        }
        // A path, followed by a number or a flag.
        _ => {
            body.put_buf(Some(some_path));
            body.put_i32(number(random));
        }
    }
    (op.code(), body)
}

#[test]
fn odd_requests_are_answered_and_harm_nobody() {
    const SENDERS: u64 = 3;
    const CONNECTIONS_EACH: usize = 30;
    const REQUESTS_EACH: usize = 60;
    let mut config = config();
    config.extended_types_enabled = true;
    config.enforce_quota = true;
    config.snap_count = 200;
    let (server, dir) = start(config.clone());
    let address = server.address();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let witness = Witness::start(scope, &stop, address);
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    let mut random = Random::new(1000 + sender);
                    for _ in 0..CONNECTIONS_EACH {
                        let mut client = Client::connect(address);
                        let mut requests = Vec::new();
                        for xid in 1..=REQUESTS_EACH as i32 {
                            let (op, body) = odd_request(&mut random);
                            put_request(&mut requests, xid, op, &body);
                        }
                        client.send_raw(&requests).expect("a socket that takes requests");
                        // A well-formed request gets a reply, possibly an error.
                        for xid in 1..=REQUESTS_EACH as i32 {
                            assert_eq!(client.hear_reply().expect("a reply").xid, xid);
                        }
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.join().expect("a sender with all its answers");
        }
        witness.finish();
    });
    await_connections(&server, 0);
    server.stop().expect("a server without failures");
    // The resulting data can be read again.
    dir.path().clone_into(&mut config.data_dir);
    dir.path().clone_into(&mut config.data_log_dir);
    let server = Server::start(config).expect("a server");
    let mismatches = &server.shared().core.db.stats.digest_mismatches;
    assert_eq!(mismatches.load(Ordering::Relaxed), 0);
    assert!(Client::connect(server.address()).has("/witness"));
}

#[test]
fn impossible_lengths_end_the_connection_at_once() {
    let (server, _dir) = start(config());
    for length in [i32::MAX, i32::MIN, -1, 0x10_0000] {
        let mut stream = Client::dial(server.address()).expect("a connection");
        stream.write_all(&length.to_be_bytes()).expect("a socket that takes four bytes");
        assert_eq!(drain_to_end(&mut stream).expect("the end"), 0, "before a session, {length}");

        let mut client = Client::connect(server.address());
        client.send_raw(&length.to_be_bytes()).expect("a socket that takes four bytes");
        assert_eq!(client.drain_to_end().expect("the end"), 0, "in a session, {length}");
    }
    await_connections(&server, 0);
}

#[test]
fn a_frame_that_never_ends_holds_up_nobody() {
    let (server, _dir) = start(config());
    let mut stalled: Vec<Client> = (0..8).map(|_| Client::connect(server.address())).collect();
    let mut request = Vec::new();
    put_request(&mut request, 1, OpCode::SetData.code(), &vec![0; LARGE_BYTES]);
    for client in &mut stalled {
        client.send_raw(&request[..LARGE_BYTES / 2]).expect("a socket that takes half a request");
    }
    let mut witness = Client::connect(server.address());
    witness.create("/here", b"");
    assert!(witness.has("/here"));
    drop(stalled);
    await_connections(&server, 1);
}

#[test]
fn many_large_replies_in_flight_all_arrive() {
    const READS: usize = 100;
    let (server, _dir) = start(config());
    let mut client = Client::connect(server.address());
    client.create("/large", &vec![7; LARGE_BYTES]);
    for _ in 0..READS {
        client.queue(&Op::get_data("/large", false));
    }
    client.flush().expect("a socket that takes requests");
    for _ in 0..READS {
        let (data, _) = client.hear_reply().expect("a reply").ok().data();
        assert_eq!(data.len(), LARGE_BYTES);
    }
    // The same after a write, where reads have to wait.
    client.queue(&Op::set_data("/large", &vec![8; LARGE_BYTES]));
    for _ in 0..READS {
        client.queue(&Op::get_data("/large", false));
    }
    client.queue(&Op::set_data("/large", b"short again"));
    client.flush().expect("a socket that takes requests");
    client.hear_reply().expect("the write's reply").ok();
    for _ in 0..READS {
        let (data, _) = client.hear_reply().expect("a reply").ok().data();
        assert!(data.len() == LARGE_BYTES && data[0] == 8);
    }
    client.hear_reply().expect("the write's reply").ok();
}

#[test]
fn a_client_that_reads_nothing_is_cut_off_when_its_session_ends() {
    let mut config = config();
    config.set_tick_time_ms(100);
    config.max_session_timeout_ms = TIMEOUT_MS as u32;
    let (server, _dir) = start(config);
    let mut witness = Client::connect(server.address());
    witness.create("/large", &vec![7; LARGE_BYTES]);
    let mut slow: Vec<Client> = (0..4)
        .map(|_| Client::open(server.address(), Session::none(8000)).expect("a session"))
        .collect();
    for client in &mut slow {
        for _ in 0..200 {
            client.queue(&Op::get_data("/large", false));
        }
        client.flush().expect("a socket that takes requests");
    }
    await_connections(&server, 1);
    assert_eq!(witness.get("/large").0.len(), LARGE_BYTES);
}

#[test]
fn a_client_that_never_reads_its_events_is_cut_off() {
    /// Each round makes two writes and four events as long as the name: together much more than the
    /// server and the kernel buffer for a client that does not read.
    const ROUNDS: usize = 80;
    const NAME_BYTES: usize = 250_000;
    let (server, _dir) = start(config());
    let parent = format!("/{}", "n".repeat(NAME_BYTES));
    let child = format!("{parent}/c");
    let mut writer = Client::connect(server.address());
    writer.create(&parent, b"");
    let watches = [Op::watch(&parent), Op::watch_below(&child)];
    let mut deaf = Client::connect(server.address());
    let mut listener = Client::connect(server.address());
    for watch in &watches {
        deaf.call(watch).ok();
        listener.call(watch).ok();
    }
    await_connections(&server, 3);
    let create = Op::create(&child, b"", CreateMode::Persistent);
    let delete = Op::delete(&child);
    for _ in 0..ROUNDS {
        writer.queue(&create);
        writer.queue(&delete);
        writer.flush().expect("a socket that takes requests");
        let expected = [
            (EventType::NodeCreated, &child),
            (EventType::NodeChildrenChanged, &parent),
            (EventType::NodeDeleted, &child),
            (EventType::NodeChildrenChanged, &parent),
        ];
        for (kind, path) in expected {
            let heard = listener.hear_event().expect("an event");
            assert!(heard == (kind, path.clone()), "{:?} instead of {kind:?}", heard.0);
        }
        writer.hear_reply().expect("a reply").ok();
        writer.hear_reply().expect("a reply").ok();
    }
    await_connections(&server, 2);
    deaf.drain_to_end().expect("the end of the connection");
    assert!(listener.has("/"));
}

#[test]
fn unread_answers_are_bounded_over_all_connections() {
    const DEAF: usize = 8;
    let (server, _dir) = start(config());
    let mut reader = Client::connect(server.address());
    reader.create("/large", &vec![7; LARGE_BYTES]);
    let sixty = Op::multi_read(&vec![Op::get_data("/large", false); 60]);
    let twenty = Op::multi_read(&vec![Op::get_data("/large", false); 20]);
    let deaf: Vec<Client> = (0..DEAF)
        .map(|_| {
            let mut client = Client::connect(server.address());
            client.queue(&sixty);
            client.flush().expect("a socket that takes a request");
            client
        })
        .collect();
    let unsent = &server.shared().core.db.unsent;
    let connections = || server.shared().connections.len();
    eventually("fewer connections", || connections() < 1 + DEAF && !unsent.is_over());
    // All of them together exceed the bound, a few do not.
    assert!(connections() > 1);
    for _ in 0..3 {
        assert_eq!(reader.call(&twenty).ok().parts().len(), 20);
    }
    drop(deaf);
    await_connections(&server, 1);
    eventually("nothing is unsent", || unsent.bytes() == 0);
    assert_eq!(reader.call(&sixty).ok().parts().len(), 60);
}

#[test]
fn a_large_frame_without_a_session_is_not_waited_for() {
    let (server, _dir) = start(config());
    for announced in [4097, LARGE_BYTES] {
        let mut stream = Client::dial(server.address()).expect("a connection");
        let begun = [&(announced as i32).to_be_bytes()[..], &[0; 100]].concat();
        stream.write_all(&begun).expect("a socket that takes a few bytes");
        assert_eq!(drain_to_end(&mut stream).expect("the end"), 0, "{announced}");
    }
    await_connections(&server, 0);
}

#[test]
fn connections_that_ask_for_no_session_are_closed_after_a_while() {
    let mut config = config();
    config.sessionless_timeout_ms = 6000;
    let (server, _dir) = start(config);
    let mut witness = Client::connect(server.address());
    let greeting = greeting(Session::none(TIMEOUT_MS));
    let mut silent: Vec<_> = (0..20)
        .map(|number| {
            let mut stream = Client::dial(server.address()).expect("a connection");
            // Some clients send nothing, some send a part of the connect request.
            stream.write_all(&greeting[..number]).expect("a socket that takes bytes");
            stream
        })
        .collect();
    witness.create("/here", b"");
    for stream in &mut silent {
        assert_eq!(drain_to_end(stream).expect("the end of the connection"), 0);
    }
    await_connections(&server, 1);
    // A client with a session may be idle for longer.
    assert!(witness.has("/here"));
}

#[test]
fn one_address_gets_only_its_share_of_connections() {
    let mut config = config();
    config.max_client_cnxns = 3;
    let (server, _dir) = start(config);
    check_limit(&server, 3);
}

#[test]
fn all_addresses_together_get_only_so_many_connections() {
    let mut config = config();
    config.max_cnxns = 3;
    let (server, _dir) = start(config);
    check_limit(&server, 3);
}

#[track_caller]
fn check_limit(server: &Server, max: usize) {
    let mut clients: Vec<Client> = (0..max).map(|_| Client::connect(server.address())).collect();
    assert!(Client::open(server.address(), Session::none(TIMEOUT_MS)).is_err(), "one too many");
    // Other clients are not affected, and a returned permit is granted again.
    clients[0].create("/here", b"");
    drop(clients.pop());
    await_connections(server, max - 1);
    let mut late = Client::connect(server.address());
    assert!(late.has("/here") && clients[0].has("/here"));
}
