//! SIGTERM: the server stops soon, with all acknowledged writes on disk.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use ironkeeper_testing::HeldPort;
use rustix::process::{Signal, kill_process};

use crate::client::{Client, Op};
use crate::server_process::Setup;

#[test]
fn a_server_told_to_stop_under_load_ends_well_and_keeps_what_it_acknowledged() {
    const WRITERS: usize = 3;
    const ACKS_BEFORE: u64 = 200;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "");
    // Keeps the port reserved after the server has closed it.
    let port = HeldPort::take(0).expect("a free port");
    let ready = setup.spawn(port.address().port()).ready();
    let server = ready.unwrap_or_else(|(_, log)| panic!("{log}"));
    let address = server.address;
    let (busy, is_busy) = mpsc::channel();
    let mut acknowledged = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let busy = busy.clone();
                let path = format!("/{number}");
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    client.create(&path, b"");
                    let mut acknowledged = 0u64;
                    while let Ok(reply) =
                        client.try_call(&Op::set_data(&path, &(acknowledged + 1).to_be_bytes()))
                    {
                        reply.ok();
                        acknowledged += 1;
                        if acknowledged == ACKS_BEFORE {
                            busy.send(()).expect("somebody who waits");
                        }
                    }
                    (path, acknowledged)
                })
            })
            .collect();
        for _ in 0..WRITERS {
            is_busy.recv().expect("a busy writer");
        }
        let (status, log) = server.terminate();
        assert!(status.success(), "{status}: {log}");
        for writer in writers {
            acknowledged.push(writer.join().expect("a writer whose connection ended"));
        }
    });
    drop(TcpListener::bind(address).expect("a free port"));
    let server = setup.start();
    let mut client = Client::connect(server.address);
    for (path, acknowledged) in acknowledged {
        let (data, _) = client.get(&path);
        let value = u64::from_be_bytes(data.try_into().expect("a number"));
        assert!((acknowledged..=acknowledged + 1).contains(&value), "{value} at {path}");
    }
}

#[test]
fn clients_that_read_nothing_or_say_nothing_do_not_hold_up_the_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let _silent = Client::dial(server.address).expect("a connection");
    let mut idle = Client::connect(server.address);
    idle.create("/large", &vec![7; 1_000_000]);
    let mut slow = Client::connect(server.address);
    for _ in 0..100 {
        slow.queue(&Op::get_data("/large", false));
    }
    slow.flush().expect("a socket that takes requests");
    // One reply has arrived, so the server is processing the rest.
    slow.hear_reply().expect("a reply").ok();
    let (status, log) = server.terminate();
    assert!(status.success(), "{status}: {log}");
    idle.drain_to_end().expect("the end of the connection");
}

#[test]
fn the_end_of_its_terminal_stops_a_server_in_order_unless_it_was_started_to_survive_that() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // A process inherits ignored signals, for example if the tests run under `nohup`.
    let with_default = "env --default-signal=HUP true 2> /dev/null && \
         exec env --default-signal=HUP \"$0\" \"$@\"";
    let setup = Setup::new(dir.path(), "").after(with_default);
    let (status, log) = setup.start().end_by(Signal::HUP);
    assert!(status.success(), "{status}: {log}");
    assert!(log.lines().last().is_some_and(|line| line.contains("stopped reason=SIGHUP")), "{log}");

    let server = Setup::new(dir.path(), "").after("trap '' HUP").start();
    kill_process(server.pid(), Signal::HUP).expect("a process");
    Client::connect(server.address).create("/still-here", b"");
    let (status, log) = server.terminate();
    assert!(status.success() && log.contains("stopped reason=SIGTERM"), "{log}");
}

#[test]
fn a_session_survives_a_clean_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "");
    let server = setup.start();
    let mut client = Client::connect(server.address);
    let create = Op::create("/mine", b"", ironkeeper_proto::CreateMode::Ephemeral);
    client.call(&create).ok();
    let (status, _) = server.terminate();
    assert!(status.success());
    let server = setup.start();
    let mut client = Client::open(server.address, client.session).expect("the same session");
    let (_, stat) = client.get("/mine");
    assert_eq!(stat.ephemeral_owner, client.session.id.0);
}
