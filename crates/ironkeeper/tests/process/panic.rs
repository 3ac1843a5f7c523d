//! A panic at any location ends the process at once, is reported with location and reason, and
//! loses no acknowledged write.

use std::io::Write;
use std::net::SocketAddr;

use crate::client::{self, Client, Op};
use crate::server_process::Setup;

/// Acknowledged writes before the panic.
const WRITES: usize = 20;

/// Plants a panic, triggers it with `provoke`, and checks how the process ends and that its data is
/// complete.
#[track_caller]
fn check_ends(place: &'static str, provoke: impl FnOnce(&mut Client, SocketAddr)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "4lw.commands.whitelist=*");
    let server = setup.clone().planting_panic(place).start();
    let address = server.address;
    let mut client = Client::connect(address);
    for number in 0..WRITES {
        client.create(&format!("/written-{number}"), b"").ok();
    }
    // The panic may precede the reply to this request.
    client.queue(&Op::create("/panic-1", b"", ironkeeper_proto::CreateMode::Persistent));
    client.flush().expect("a live connection");
    provoke(&mut client, address);

    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(70), "{place}: {log}");
    let report = log.lines().find(|line| line.contains("panicked at")).unwrap_or_default();
    assert!(report.contains("crates/ironkeeper-"), "{place}: no place in {log}");
    assert!(report.ends_with(&format!(": planted in {place}")), "{place}: no reason in {log}");

    let server = setup.start();
    let mut client = Client::connect(server.address);
    for number in 0..WRITES {
        assert!(client.has(&format!("/written-{number}")), "{place}: write {number} is lost");
    }
}

/// Sends requests until the connection is closed.
fn send_until_the_end(client: &mut Client, op: &Op) {
    loop {
        client.queue(op);
        if client.flush().and_then(|()| client.hear_reply()).is_err() {
            return;
        }
    }
}

#[test]
fn a_panic_while_a_write_is_judged_ends_the_process() {
    check_ends("judge", |client, _| send_until_the_end(client, &Op::set_data("/written-0", b"x")));
}

#[test]
fn a_panic_while_a_transaction_is_applied_ends_the_process() {
    check_ends("apply", |client, _| send_until_the_end(client, &Op::set_data("/written-0", b"x")));
}

#[test]
fn a_panic_in_a_read_ends_the_process() {
    check_ends("read", |client, _| send_until_the_end(client, &Op::get_data("/written-0", false)));
}

#[test]
fn a_panic_on_the_timer_thread_ends_the_process() {
    check_ends("timer", |client, _| drop(client.drain_to_end()));
}

#[test]
fn a_panic_on_the_log_thread_ends_the_process() {
    check_ends("log", |client, _| send_until_the_end(client, &Op::set_data("/written-0", b"x")));
}

#[test]
fn a_panic_on_the_thread_that_answers_a_word_ends_the_process() {
    check_ends("word", |client, address| {
        client.hear_reply().expect("/panic-1 is there").ok();
        let mut stream = Client::dial(address).expect("a connection");
        stream.write_all(b"mntr").expect("a live connection");
        drop(client::drain_to_end(&mut stream));
    });
}
