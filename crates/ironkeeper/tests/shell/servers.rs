//! `ironkeeper status` and the shell's `top`.

use std::io::{Read, Write};
use std::net::TcpListener;

use ironkeeper_testing::TestServer;

use crate::process::{Said, ironkeeper, run};
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

#[test]
fn what_a_server_does_not_tell_is_explained() {
    // No list keeps a server from answering srvr.
    let server = TestServer::builder().set("4lw.commands.whitelist", "ruok").start().unwrap();
    let at = server.connect_string();
    assert_eq!(status(&[&at]).status, 0);
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
        // Closed with unread bytes it would be a reset.
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
