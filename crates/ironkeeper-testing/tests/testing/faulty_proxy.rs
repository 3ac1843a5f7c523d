//! Each fault, observed at both ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ironkeeper_proto::CreateMode;
use ironkeeper_testing::{Direction, FaultyProxy, HeldPort, TestServer};

use crate::session::{PATIENCE, Session, dial};

/// A listener without a protocol, and a proxy in front of it.
struct Pair {
    listener: TcpListener,
    proxy: FaultyProxy,
}

impl Pair {
    fn start() -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let proxy = FaultyProxy::start(address.to_string()).expect("a proxy");
        Pair { listener, proxy }
    }

    /// Returns the client's and the server's end of a connection.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let client = dial(self.proxy.address());
        let (server, _) = self.listener.accept().expect("the proxy's connection");
        server.set_read_timeout(Some(PATIENCE)).expect("a live socket");
        (client, server)
    }
}

fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("a live connection");
}

#[track_caller]
fn expect(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).expect("the text");
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

/// Reads until the end of stream.
#[track_caller]
fn rest(stream: &mut TcpStream) -> String {
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("an orderly end");
    heard
}

#[track_caller]
fn expect_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Returns true if no byte arrives within 30 ms. A byte that arrives later is not detected.
fn is_silent(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(30))).expect("a live socket");
    let peeked = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).expect("a live socket");
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    send(&mut client, "request");
    expect(&mut server, "request");
    send(&mut server, "reply");
    expect(&mut client, "reply");
    client.shutdown(Shutdown::Write).expect("a live socket");
    assert_eq!(rest(&mut server), "", "the end of one direction is passed on");
    send(&mut server, " and more");
    drop(server);
    assert_eq!(rest(&mut client), " and more");
    assert_eq!((pair.proxy.bytes(Direction::ToServer), pair.proxy.connections()), (7, 1));
    assert_eq!(pair.proxy.bytes(Direction::ToClient), 14);
}

#[test]
fn every_byte_that_has_arrived_is_counted() {
    /// Many times the size of the socket buffers, so the proxy sends chunks in pieces.
    const BYTES: usize = 32 << 20;
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    let sending = std::thread::spawn(move || server.write_all(&vec![7; BYTES]));
    let (mut arrived, mut buffer) = (0, [0; 1000]);
    while arrived < BYTES {
        let len = client.read(&mut buffer).expect("a live connection");
        assert_ne!(len, 0, "the connection ended after {arrived} bytes");
        arrived += len;
        let counted = pair.proxy.bytes(Direction::ToClient);
        assert!(counted >= arrived as u64, "{counted} counted, {arrived} arrived");
    }
    sending.join().expect("no panic").expect("a live connection");
    assert_eq!(pair.proxy.bytes(Direction::ToClient), BYTES as u64);
}

#[test]
fn a_cut_lets_exactly_so_many_bytes_pass() {
    let pair = Pair::start();
    let text = "0123456789";
    for bytes in 0..=text.len() {
        pair.proxy.cut_after(Direction::ToServer, bytes as u64);
        let (mut client, mut server) = pair.connect();
        send(&mut server, "unread by the client");
        send(&mut client, text);
        assert_eq!(rest(&mut server), text[..bytes]);
        // The bytes sent before the cut may be lost, but a prefix arrives, then the end of stream.
        assert!("unread by the client".starts_with(&rest(&mut client)));
        assert!(!pair.proxy.is_armed());
    }
    for bytes in 0..=text.len() {
        pair.proxy.cut_after(Direction::ToClient, bytes as u64);
        let (mut client, mut server) = pair.connect();
        send(&mut server, text);
        assert_eq!(rest(&mut client), text[..bytes]);
        assert_eq!(rest(&mut server), "");
    }
}

#[test]
fn a_cut_counts_over_connections_and_happens_once() {
    let pair = Pair::start();
    pair.proxy.cut_after(Direction::ToServer, 5);
    let (mut first_client, mut first_server) = pair.connect();
    send(&mut first_client, "abc");
    expect(&mut first_server, "abc");
    let (mut client, mut server) = pair.connect();
    send(&mut client, "defg");
    assert_eq!(rest(&mut server), "de");
    send(&mut first_client, "still here");
    expect(&mut first_server, "still here");
    let (mut client, mut server) = pair.connect();
    send(&mut client, "no cut any more");
    expect(&mut server, "no cut any more");
}

#[test]
fn a_stalled_direction_carries_nothing_until_healed_and_then_everything() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    pair.proxy.stall(Direction::ToClient);
    send(&mut client, "request");
    expect(&mut server, "request");
    send(&mut server, "reply");
    assert!(is_silent(&client));
    pair.proxy.heal().expect("a listener");
    expect(&mut client, "reply");
}

#[test]
fn in_a_black_hole_nobody_learns_that_the_other_has_gone() {
    let pair = Pair::start();
    let (client, server) = pair.connect();
    pair.proxy.black_hole();
    drop(client);
    assert!(is_silent(&server));
    let (mut new_client, mut new_server) = pair.connect();
    send(&mut new_client, "hello");
    assert!(is_silent(&new_server));
    pair.proxy.heal().expect("a listener");
    expect(&mut new_server, "hello");
    let mut server = server;
    assert_eq!(rest(&mut server), "");
}

#[test]
fn delayed_bytes_come_late() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    let delay = Duration::from_millis(50);
    pair.proxy.delay(Direction::ToServer, delay);
    let began = Instant::now();
    send(&mut client, "late");
    expect(&mut server, "late");
    assert!(began.elapsed() >= delay);
}

#[test]
fn refused_connections_fail_at_once_and_open_ones_stay() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    for _ in 0..3 {
        pair.proxy.refuse();
        pair.proxy.refuse();
        let error = TcpStream::connect(pair.proxy.address()).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        send(&mut client, "still here");
        expect(&mut server, "still here");
        pair.proxy.heal().expect("a listener");
        let (mut client, mut server) = pair.connect();
        send(&mut client, "welcome");
        expect(&mut server, "welcome");
    }
}

#[test]
fn a_reset_is_an_error_on_both_ends_and_a_cut_is_not() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    assert_eq!((pair.proxy.reset(), pair.proxy.open_connections()), (1, 0));
    expect_reset(&mut client);
    expect_reset(&mut server);

    let (mut client, mut server) = pair.connect();
    send(&mut client, "to be read in spite of the cut");
    send(&mut server, "this as well");
    while pair.proxy.bytes(Direction::ToServer) == 0 || pair.proxy.bytes(Direction::ToClient) == 0 {
        std::thread::yield_now();
    }
    assert_eq!((pair.proxy.cut(), pair.proxy.open_connections()), (1, 0));
    assert_eq!(rest(&mut server), "to be read in spite of the cut");
    assert_eq!(rest(&mut client), "this as well");
    assert_eq!(pair.proxy.connections(), 2);
}

#[test]
fn a_server_that_is_not_there_resets_the_client() {
    let nobody = HeldPort::take(0).expect("a port");
    let proxy = FaultyProxy::start(nobody.address().to_string()).expect("a proxy");
    expect_reset(&mut dial(proxy.address()));
}

#[test]
fn connections_end_with_the_proxy() {
    let pair = Pair::start();
    let (mut client, mut server) = pair.connect();
    drop(pair.proxy);
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(server.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_session_moves_to_a_new_connection_after_a_cut() {
    let server = TestServer::start().expect("a server");
    let proxy = FaultyProxy::start(server.connect_string()).expect("a proxy");
    let mut session = Session::open(proxy.address(), 600_000);
    session.create("/ephemeral", CreateMode::Ephemeral);
    proxy.cut();
    session.hear_end();
    let mut again = Session::attach(proxy.address(), session.id, 600_000).expect("the session");
    assert!(again.has("/ephemeral"));
}
