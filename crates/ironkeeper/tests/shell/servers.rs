//! `ironkeeper status` and the shell's `top`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use ironkeeper_testing::TestServer;

use crate::process::{Said, fails, ironkeeper, ok, piped, run};
use crate::pseudo_terminal::PseudoTerminal;
use crate::scene::Scene;

fn status(words: &[&str]) -> Said {
    ironkeeper().arg("status").args(words).output().unwrap().into()
}

#[test]
fn status_shows_a_row_for_each_server_and_exits_by_their_health() {
    let scene = Scene::new();
    let said = status(&[&scene.at]);
    assert_eq!(said.status, 0, "{said:?}");
    let row: Vec<&str> = said.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1]), (scene.at.as_str(), "standalone"));
    assert!(row[3].starts_with("0x"), "{said:?}");

    let said = status(&["--json", &format!("{},127.0.0.1:1", scene.at)]);
    assert_eq!(said.status, 1);
    let rows = said.json();
    assert_eq!((&rows[0]["ok"], &rows[0]["mode"]), (&true.into(), &"standalone".into()));
    assert!(rows[0]["connections"].as_u64().unwrap() >= 1);
    assert_eq!(rows[1]["ok"], false);
    assert!(rows[1]["error"].as_str().unwrap().contains("unreachable"), "{said:?}");
}

/// A fake server that replies to four-letter words with the given state.
struct Actor {
    address: String,
}

impl Actor {
    fn new(mode: &str, zxid: &str, metrics: &str) -> Actor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let srvr = format!("Zookeeper version: 3.9.5\nZxid: {zxid}\nMode: {mode}\nNode count: 5\n");
        let mntr = metrics.to_owned();
        // The thread ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut word) = (stream.unwrap(), [0; 4]);
                if stream.read_exact(&mut word).is_ok() {
                    let answer = if &word == b"srvr" { &srvr } else { &mntr };
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        Actor { address }
    }
}

#[test]
fn status_notices_a_full_disk_and_a_server_without_a_quorum() {
    let full = Actor::new("standalone", "0x5", "zk_disk_full\t1\nzk_autopurge\t0\n");
    let said = status(&[&full.address]);
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.stdout.contains("its disk is full"), "{said:?}");
    assert!(said.stdout.contains("note: autopurge.purgeInterval is not set"), "{said:?}");
    let row = &status(&["--json", &full.address]).json()[0];
    assert_eq!((&row["ok"], row["problems"].as_array().unwrap().len()), (&false.into(), 1));
    let alone = Actor::new("read-only", "0x5", "");
    let said = status(&[&alone.address]);
    assert!(said.status == 1 && said.stdout.contains("it has no quorum"), "{said:?}");
    // A missing purge is a remark and does not change the exit code.
    let unpurged = Actor::new("standalone", "0x5", "zk_disk_full\t0\nzk_autopurge\t0\n");
    assert_eq!(status(&[&unpurged.address]).status, 0);
}

#[test]
fn status_notices_two_leaders_and_a_member_that_is_far_behind() {
    let leader = Actor::new("leader", "0x200010000", "");
    let follower = Actor::new("follower", "0x20000fff0", "");
    assert_eq!(status(&[&leader.address, &follower.address]).status, 0);
    let slow = Actor::new("follower", "0x200000100", "");
    let said = status(&[&leader.address, &follower.address, &slow.address]);
    assert_eq!(said.status, 1, "{said:?}");
    let told = format!("{}: it is behind the others by 65280 transactions", slow.address);
    assert!(said.stdout.contains(&told), "{said:?}");
    let old = Actor::new("leader", "0x100000100", "");
    let said = status(&[&leader.address, &old.address]);
    assert!(said.status == 1 && said.stdout.contains("in epochs 2 and 1"), "{said:?}");
    let other = Actor::new("leader", "0x200010000", "");
    let said = status(&["--json", &leader.address, &other.address]);
    assert!(said.status == 1 && said.stderr.contains("two ensembles"), "{said:?}");
}

#[test]
fn top_is_a_command_of_its_own_and_opens_no_session() {
    let scene = Scene::new();
    let words = ["top", "-n", "1", "--json", &scene.at];
    let said: Said = ironkeeper().args(words).output().unwrap().into();
    let row = &said.json()[0];
    assert_eq!((said.status, &row["sessions"]), (0, &1.into()), "{said:?}");
    let said: Said = ironkeeper().args(["top", "-n", "1", "-d", "x"]).output().unwrap().into();
    assert_eq!(said.status, 2);
}

#[test]
fn a_digest_opens_a_node_that_was_closed_with_it() {
    let scene = Scene::new();
    let mut asked = ironkeeper();
    let mut child = asked
        .args(["digest", "-q", "anna"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    let digest = said.stdout.trim().to_owned();
    let shown: Said = ironkeeper().args(["digest", "anna:secret"]).output().unwrap().into();
    assert!(shown.stdout.contains(&format!("digest:{digest}:cdrwa\n")), "{shown:?}");
    let super_digest = format!("DigestAuthenticationProvider.superDigest={digest}");
    assert!(shown.stdout.contains(&super_digest), "{shown:?}");
    scene.create("/closed", b"in here");
    ok(&scene.at, &["setAcl", "/closed", &format!("digest:{digest}:cdrwa")]);
    assert!(fails(&scene.at, &["get", "/closed"]).contains("Insufficient permission"));
    let said = piped(&scene.at, &["addauth digest anna:secret", "get /closed"]);
    assert_eq!((said.status, said.stdout.as_str()), (0, "in here\n"));
    for wrong in [&["digest", ":secret"][..], &["digest", "--algorithm", "MD5", "a:b"]] {
        assert_ne!(Said::from(ironkeeper().args(wrong).output().unwrap()).status, 0, "{wrong:?}");
    }
}

#[test]
fn what_a_server_does_not_tell_is_explained() {
    // The whitelist does not apply to srvr.
    let server = TestServer::builder().set("4lw.commands.whitelist", "ruok").start().unwrap();
    let at = server.connect_string();
    let said = status(&[&at]);
    assert_eq!(said.status, 0);
    assert!(said.stdout.contains("mntr is not allowed by 4lw.commands.whitelist"), "{said:?}");
    let row = &run(&at, &["--json", "top", "-n", "1"]).json()[0];
    assert_eq!((&row["ok"], &row["watches"]), (&true.into(), &serde_json::Value::Null));
    assert!(row["hints"][0].as_str().unwrap().contains("mntr is not allowed"), "{row}");
}

#[test]
fn what_is_no_zookeeper_is_told_apart_from_a_server_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        // Closing a socket with unread bytes would send a reset.
        stream.read_exact(&mut [0; 4]).unwrap();
    });
    let said = status(&[&at]);
    other.join().unwrap();
    assert_eq!(said.status, 1);
    assert!(said.stdout.contains("is this a ZooKeeper client port?"), "{said:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = status(&["--timeout", "50", &silent.local_addr().unwrap().to_string()]);
    assert!(said.stdout.contains("no answer within 50 ms"), "{said:?}");
}

#[test]
fn top_prints_lines_where_there_is_no_screen() {
    let scene = Scene::new();
    let said = run(&scene.at, &["top", "-n", "2", "-d", "0.1", "--json"]);
    let rows = said.json();
    assert_eq!((said.status, rows.len()), (0, 2), "{said:?}");
    assert!(rows[0]["received_per_s"].is_null() && rows[1]["received_per_s"].is_number());
    assert!(rows[1]["sessions"].as_u64().unwrap() >= 1);
    let session = format!("0x{:x}", scene.client.session_id().0);
    let busiest = rows[1]["busiest"].as_array().unwrap();
    assert!(busiest.iter().any(|busy| busy["session"] == session.as_str()), "{said:?}");
    let said = run(&scene.at, &["top", "-n", "1", "127.0.0.1:1"]);
    assert!(said.stdout.starts_with("127.0.0.1:1 unreachable"), "{said:?}");
}

#[test]
fn top_takes_the_screen_and_gives_it_back() {
    let scene = Scene::new();
    let home = tempfile::tempdir().unwrap();
    let mut terminal = PseudoTerminal::start(&scene.at, &[], &home.path().join("history"));
    terminal.wait_for("(CONNECTED) 0] ");
    terminal.run("top -d 60");
    terminal.wait_for("q quits");
    terminal.wait_for("SERVER");
    terminal.wait_for("standalone");
    terminal.wait_for("CLIENT");
    terminal.press("q");
    terminal.wait_for("(CONNECTED) 1] ");
    terminal.run("create /after top");
    terminal.wait_for("Created /after");
}
