//! The default log for operators, and the limits that keep clients from filling it.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use ironkeeper_proto::CreateMode;

use crate::client::{Client, Op, Session, drain_to_end};
use crate::server_process::Setup;

#[test]
fn start_sessions_snapshots_purge_and_stop_are_in_the_log_by_default() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let set = ["--set", "snapCount=20", "--set", "minSessionTimeout=1"];
    let setup = Setup::unconfigured(dir.path(), &set);
    let server = setup.start();
    server.await_log("INFO ironkeeper_server::server: started version=");
    let mut closing = Client::connect(server.address);
    for path in ["/a", "/b"] {
        closing.call(&Op::create(path, b"", CreateMode::Ephemeral)).ok();
    }
    closing.call(&Op::close_session()).ok();
    server.await_log(&format!(
        "session closed session=0x{:x} client=127.0.0.1:",
        closing.session.id.0
    ));
    server.await_log("ephemerals=2");
    let mut lost = Client::open(server.address, Session::none(100)).expect("a session");
    lost.call(&Op::create("/c", b"", CreateMode::Ephemeral)).ok();
    let id = lost.session.id.0;
    drop(lost);
    server.await_log(&format!("session expired session=0x{id:x} client=127.0.0.1:"));
    server.await_log("timeout_ms=100 ephemerals=1");
    // Enough for more snapshots than the three that are kept.
    let mut client = Client::connect(server.address);
    client.create("/v", b"");
    for number in 0..200u32 {
        client.set("/v", &number.to_be_bytes());
    }
    server.await_log("snapshot taken zxid=0x");
    server.await_log("old files removed files=");
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("stopped reason=SIGTERM"), "{log}");
    assert!(!log.contains("autopurge"), "a server without zoo.cfg purges: {log}");
    let files = std::fs::read_dir(dir.path().join("data/version-2")).expect("the directory");
    let names = files.map(|file| file.expect("an entry").file_name().into_string().expect("text"));
    let snapshots = names.filter(|name| name.starts_with("snapshot.")).count();
    assert!((1..=4).contains(&snapshots), "{snapshots} snapshots are left");
}

#[test]
fn a_server_that_never_purges_warns_of_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let whitelist = "4lw.commands.whitelist=mntr";
    let server = Setup::new(dir.path(), whitelist).start();
    server.await_log("old snapshots and logs are never removed key=autopurge.purgeInterval");
    assert!(server.ask("mntr").contains("zk_autopurge\t0\n"));
    server.kill();
    let setup = Setup::new(dir.path(), &format!("autopurge.purgeInterval=1\n{whitelist}"));
    let server = setup.start();
    assert!(server.ask("mntr").contains("zk_autopurge\t1\n"));
    let log = server.kill();
    assert!(!log.contains("never removed"), "{log}");
}

#[test]
fn other_protocols_are_recognised_and_cannot_fill_the_log() {
    const CONNECTIONS: usize = 200;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    for _ in 0..CONNECTIONS {
        send_and_drain(server.address, b"GET / HTTP/1.1\r\n\r\n");
    }
    send_and_drain(server.address, &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]);
    server.await_log("WARN ironkeeper_server::connection_log: client connection closed client=");
    server.await_log(" protocol=HTTP ");
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    let lines = log.lines().filter(|line| line.contains("closed")).count();
    assert!(lines < CONNECTIONS / 4, "{lines} lines:\n{log}");
}

#[test]
fn a_request_that_is_too_long_is_logged_with_its_session() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::new(dir.path(), "").start();
    let mut client = Client::connect(server.address);
    client.send_raw(&i32::MAX.to_be_bytes()).expect("a connection");
    client.drain_to_end().expect("the end of the connection");
    server.await_log(&format!(
        "WARN ironkeeper_server::connection_log: client connection closed session=0x{:x} client=",
        client.session.id.0
    ));
    server.await_log(" reason=\"frame length 2147483647 is outside of ");
}

#[test]
fn the_log_can_be_json() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::unconfigured(dir.path(), &["--log-format", "json"]);
    let (status, log) = setup.start().terminate();
    assert!(status.success(), "{log}");
    let lines = log.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> =
        lines.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}: {log}"));
    assert_eq!((&lines[0]["message"], &lines[0]["level"]), (&"started".into(), &"INFO".into()));
    assert_eq!(lines[0]["target"], "ironkeeper_server::server");
    let last = lines.last().expect("a line");
    assert_eq!(
        (&last["message"], &last["fields"]["reason"]),
        (&"stopped".into(), &"SIGTERM".into())
    );
    assert!(lines[0]["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{log}");
    assert!(lines[0]["fields"]["took_ms"].is_u64(), "{log}");
}

#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    const TO_THE_JOURNAL: &str =
        "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) && export JOURNAL_STREAM";
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = |arguments: &[&str]| Setup::unconfigured(dir.path(), arguments);
    let (status, log) = setup(&[]).after(TO_THE_JOURNAL).start().terminate();
    assert!(status.success(), "{log}");
    let started = "<6>INFO ironkeeper_server::server: started version=";
    assert!(log.starts_with(started), "{log}");
    assert!(log.lines().all(|line| line.starts_with("<6>INFO ")), "{log}");
    // The same for JSON, which keeps the timestamp of the server.
    let json = setup(&["--log-format", "json"]).after(TO_THE_JOURNAL);
    let (_, log) = json.start().terminate();
    for line in log.lines() {
        let line = line.strip_prefix("<6>").expect("a priority");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(line["timestamp"].is_string(), "{line}");
    }
    // An error that ends the process.
    let unknown = setup(&["--set", "tickTime=-1"]).after(TO_THE_JOURNAL);
    let (_, log) = unknown.start_in_vain(0);
    assert!(log.lines().all(|line| line.starts_with("<3>")), "{log}");
    // The variable is inherited, but standard error is a different pipe.
    let elsewhere = setup(&[]).after("export JOURNAL_STREAM=1:1");
    let (_, log) = elsewhere.start().terminate();
    assert!(log.lines().all(|line| line.starts_with("20")), "{log}");
}

#[test]
fn a_typing_error_in_the_filter_is_refused_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::unconfigured(dir.path(), &["--log", "inof"]);
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert_eq!(log.matches("is neither a level").count(), 1, "{log}");
    let (_, log) = Setup::unconfigured(dir.path(), &["--log", "a=inof"]).start_in_vain(0);
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn a_server_without_zoo_cfg_answers_the_words_that_change_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Setup::unconfigured(dir.path(), &[]).start();
    assert_eq!(server.ask("ruok"), "imok");
    assert!(server.ask("mntr").contains("zk_autopurge\t1\n"));
    assert!(server.ask("cons").contains("127.0.0.1"));
    assert!(server.ask("srst").contains("not in the whitelist"));
    server.kill();
    let set = ["--set", "4lw.commands.whitelist=srst"];
    let server = Setup::unconfigured(dir.path(), &set).start();
    assert!(server.ask("srst").contains("reset"));
    assert!(server.ask("ruok").contains("not in the whitelist"));
}

#[test]
fn a_member_without_a_leader_tells_whom_it_cannot_reach_and_why() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir_all(dir.path().join("data")).expect("a directory");
    std::fs::write(dir.path().join("data/myid"), "1\n").expect("a number");
    let port = || ironkeeper_testing::HeldPort::take(0).expect("a free port");
    let ports = [port(), port(), port(), port()];
    let [own_quorum, own_election, quorum, election] =
        ports.each_ref().map(|port| port.address().port());
    let servers = format!(
        "initLimit=10\nsyncLimit=5\nserver.1=127.0.0.1:{own_quorum}:{own_election}\n\
         server.2=127.0.0.1:{quorum}:{election}\nserver.3=no.such.host.invalid:1:2\n"
    );
    let server = Setup::new(dir.path(), &servers).start();
    server.await_log("WARN ironkeeper_server::role: no leader server=1 took_ms=");
    server.await_log(" voters=3 connected=1 unreachable=");
    server.await_log(&format!("server 2 (127.0.0.1:{election}): Connection refused"));
    server.await_log("server 3 (no.such.host.invalid:2): ");
}

#[test]
fn members_with_different_lists_of_servers_warn_of_each_other() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let port = || ironkeeper_testing::HeldPort::take(0).expect("a free port");
    let ports = [(); 6].map(|()| port());
    let ports = ports.each_ref().map(|port| port.address().port());
    let line = |id: usize| {
        let (quorum, election) = (ports[2 * id - 2], ports[2 * id - 1]);
        format!("server.{id}=127.0.0.1:{quorum}:{election}\n")
    };
    let start = |id: usize, lines: String| {
        let dir = dir.path().join(id.to_string());
        std::fs::create_dir_all(dir.join("data")).expect("a directory");
        std::fs::write(dir.join("data/myid"), id.to_string()).expect("a number");
        Setup::new(&dir, &format!("initLimit=10\nsyncLimit=5\n{lines}")).start()
    };
    let first = start(1, line(1) + &line(2) + &line(3));
    let second = start(2, line(1) + &line(2));
    first.await_log(
        "WARN ironkeeper_server::membership_check: membership differs from the peer's peer=2 \
         differences=\"server.3 is only listed here\"",
    );
    second
        .await_log("differs from the peer's peer=1 differences=\"server.3 is only listed there\"");
}

fn send_and_drain(address: SocketAddr, bytes: &[u8]) {
    let mut stream = Client::dial(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream.write_all(bytes).expect("bytes to send");
    // Closing a socket with unread bytes would send a reset.
    let _ = drain_to_end(&mut stream);
}
