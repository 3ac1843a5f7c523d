//! `cp`, `mv` and `diff`, within a server and between servers.

use ironkeeper_client::{CreateMode, CreateOptions};
use ironkeeper_testing::{Direction, FaultyProxy};

use crate::process::{fails, ok, piped, run};
use crate::scene::Scene;

#[test]
fn a_copy_has_everything_but_ephemeral_nodes() {
    let scene = Scene::with_app();
    scene.as_owner();
    let said = piped(&scene.at, &["addauth digest user:pass", "cp -r /app /copy"]);
    assert_eq!(said.status, 0, "{said:?}");
    // The ACL of one parent denies access to the session that creates it, so this takes more than
    // one transaction.
    assert!(said.stdout.contains("Copied /app to /copy (8 nodes)"), "{said:?}");
    assert!(said.stderr.contains("1 ephemeral node left out"), "{said:?}");
    assert_eq!(scene.acl("/copy/closed"), scene.acl("/app/closed"));
    assert!(scene.get("/copy/null").is_null() && !scene.exists("/copy/here"));
    let said = piped(&scene.at, &["addauth digest user:pass", "diff -e /app /copy"]);
    assert_eq!((said.status, said.stdout.as_str()), (0, ""), "{said:?}");
}

#[test]
fn hidden_digests_are_not_copied_as_if_they_were_real() {
    let scene = Scene::with_app();
    assert!(fails(&scene.at, &["cp", "-r", "/app", "/copy"]).contains("hides the digests"));
    assert!(!scene.exists("/copy"));
    ok(&scene.at, &["cp", "-r", "-noacl", "/app", "/copy"]);
    assert_eq!(scene.acl("/copy/closed"), scene.acl("/app"));
}

#[test]
fn one_node_is_copied_alone_and_never_over_another_unasked() {
    let scene = Scene::with_app();
    assert_eq!(ok(&scene.at, &["cp", "/app/bytes", "/b"]), "Copied /app/bytes to /b (1 node)\n");
    assert_eq!(&scene.get("/b").data[..], b"\xff\x00\xfe");
    assert!(fails(&scene.at, &["cp", "/app", "/b"]).contains("/b is there already; -f replaces"));
    ok(&scene.at, &["cp", "-f", "/app", "/b"]);
    assert_eq!(scene.get("/b").data, "the text");
    assert!(
        fails(&scene.at, &["cp", "/b", "/x/y"]).contains("Node does not exist: /x. -p creates")
    );
    ok(&scene.at, &["cp", "-p", "/b", "/x/y"]);
    assert!(fails(&scene.at, &["cp", "/app/here", "/y"]).contains("is ephemeral"));
    ok(&scene.at, &["cp", "-e", "/app/here", "/y"]);
    assert_eq!(scene.get("/y").stat.ephemeral_owner, 0);
    assert!(fails(&scene.at, &["cp", "-r", "/b", "/b/c"]).contains("into itself"));
    assert!(fails(&scene.at, &["cp", "/none", "/z"]).contains("Node does not exist: /none"));
}

#[test]
fn a_move_is_one_transaction() {
    let scene = Scene::with_app();
    scene.delete("/app/here");
    let before = scene.get("/app").stat.czxid;
    let said = piped(
        &scene.at,
        &["addauth digest user:pass", "cp -r -noacl /app /old", "mv /old /new --json"],
    );
    assert_eq!(said.status, 0, "{said:?}");
    let moved: serde_json::Value =
        serde_json::from_str(said.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&moved["atomic"], &moved["nodes"]), (&true.into(), &8.into()));
    assert!(!scene.exists("/old") && scene.get("/new").stat.czxid > before);
    assert_eq!(
        scene.get("/new").stat.czxid,
        scene.get("/new/two words/leaf").stat.czxid,
        "all at once"
    );
    assert_eq!(ok(&scene.at, &["diff", "-noacl", "/app", "/new"]), "");
}

#[test]
fn ephemeral_nodes_stay_with_their_session() {
    let scene = Scene::with_app();
    let error = fails(&scene.at, &["mv", "-noacl", "/app", "/new"]);
    let owner = format!("0x{:x}", scene.client.session_id().0);
    assert!(error.contains("/app/here is ephemeral") && error.contains(&owner), "{error}");
    assert!(scene.exists("/app/bytes") && !scene.exists("/new"));
    assert!(fails(&scene.at, &["mv", "/app", "/app/x"]).contains("into itself"));
    assert!(fails(&scene.at, &["mv", "/", "/x"]).contains("root"));
}

#[test]
fn what_is_too_large_for_a_transaction_moves_in_several() {
    let scene = Scene::new();
    scene.create("/big", b"");
    for number in 0..5 {
        scene.create(&format!("/big/{number}"), &[number; 300 * 1024]);
    }
    let moved = &run(&scene.at, &["mv", "/big", "/large", "--json"]).json()[0];
    assert_eq!((&moved["atomic"], &moved["nodes"]), (&false.into(), &6.into()));
    assert_eq!(&scene.get("/large/4").data[..], &[4; 300 * 1024]);
    assert!(!scene.exists("/big"));
}

#[test]
fn subtrees_travel_and_are_compared_from_server_to_server() {
    let scene = Scene::with_app();
    let other = Scene::new();
    let there = format!("{}/app", other.at);
    ok(&scene.at, &["cp", "-r", "-noacl", "/app", &there]);
    assert_eq!(&other.get("/app/bytes").data[..], b"\xff\x00\xfe");
    assert_eq!(run(&scene.at, &["diff", "-e", "-noacl", "/app", &there]).status, 0);
    other.set("/app/empty", b"no more");
    other.create("/app/more", b"");
    other.delete("/app/closed/below");
    let said = run(&scene.at, &["diff", "-e", "-noacl", "/app", &there]);
    let listed = format!(
        "--- /app\n+++ {there}\n- closed/below\n~ empty\n    - (no data)\n    + no more\n+ more\n"
    );
    assert_eq!((said.status, said.stdout), (1, listed));
    let json =
        run(&scene.at, &["diff", "-e", "--json", "/app/empty", &format!("{there}/empty")]).json();
    assert_eq!(json[0]["differs"], serde_json::json!(["data"]));
    assert_eq!(json[0]["right"]["data"], "no more");
    let quiet = run(&scene.at, &["diff", "-q", "-e", "-noacl", "/app", &there]);
    assert_eq!(quiet.stdout, format!("/app and {there}: 3 differences\n"));
    assert!(fails(&scene.at, &["diff", "/app", "127.0.0.1:1/app"]).contains("Cannot connect"));
}

#[test]
fn kinds_and_lists_are_compared_too() {
    let scene = Scene::new();
    scene.create("/a", b"");
    let ephemeral = CreateOptions::new(CreateMode::Ephemeral).acl(ironkeeper_client::acls::read());
    scene.runtime.block_on(scene.client.create_with("/b", "", &ephemeral)).unwrap();
    let said = run(&scene.at, &["diff", "/a", "/b"]);
    assert_eq!(
        said.stdout,
        "--- /a\n+++ /b\n~ .\n    - acl 'world,'anyone: cdrwa\n    + acl 'world,'anyone: r\n    - persistent\n    + ephemeral\n"
    );
}

#[test]
fn an_entry_that_was_lent_to_create_below_a_closed_node_is_taken_back() {
    let scene = Scene::new();
    scene.create("/app", b"");
    scene.create("/app/child", b"");
    let read = ironkeeper_client::acls::read();
    scene.runtime.block_on(scene.client.set_acl("/app", &read, -1)).unwrap();
    let copied = &run(&scene.at, &["cp", "-r", "/app", "/copy", "--json"]).json()[0];
    assert_eq!(copied["nodes"], 2);
    assert_eq!(scene.acl("/copy"), read);
    assert!(scene.exists("/copy/child"));
    // A node that cannot be created at all: the temporary ACL entry is removed nevertheless.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.json");
    let text = ok(&scene.at, &["export", "/app"]);
    let (root, child) = text.split_once("/app/child").unwrap();
    let large = format!("\"data\":\"{}\"", "x".repeat(2_000_000));
    let child = child.replace("\"data\":\"\"", &large);
    std::fs::write(&file, format!("{root}/app/child{child}")).unwrap();
    fails(&scene.at, &["import", file.to_str().unwrap(), "/other"]);
    assert!(!scene.exists("/other/child"));
    assert_eq!(scene.acl("/other"), read);
}

#[test]
fn access_is_lent_to_the_session_and_not_to_its_address() {
    let scene = Scene::new();
    scene.create("/app", b"");
    scene.create("/app/child", b"");
    let read = ironkeeper_client::acls::read();
    scene.runtime.block_on(scene.client.set_acl("/app", &read, -1)).unwrap();
    // A session without an authenticated identity gets a temporary one.
    let said = piped(&scene.at, &["cp -r /app /copy", "whoami"]);
    assert!(said.stdout.contains("digest: ironkeeper-shell"), "{said:?}");
    assert_eq!(scene.acl("/copy"), read);
    // A session with an identity needs no other.
    let said = piped(&scene.at, &["addauth digest me:pw", "cp -r /app /copy2", "whoami"]);
    assert!(said.stdout.contains("digest: me"), "{said:?}");
    assert!(!said.stdout.contains("ironkeeper-shell"), "{said:?}");
    assert_eq!(scene.acl("/copy2"), read);
    assert!(scene.exists("/copy2/child"));
}

#[test]
fn what_was_lent_is_taken_back_although_the_connection_breaks() {
    let scene = Scene::new();
    let closed = ironkeeper_client::acls::read();
    scene.create("/app", b"");
    scene.create("/app/child", b"");
    scene.runtime.block_on(scene.client.set_acl("/app", &closed, -1)).unwrap();
    let proxy = FaultyProxy::start(&scene.at).unwrap();
    // From the handshake to the last request; the last requests set the ACLs.
    let mut broken = 0;
    for bytes in (50..1400).step_by(75) {
        proxy.cut_after(Direction::ToServer, bytes);
        let target = format!("/copy{bytes}");
        broken += run(&proxy.connect_string(), &["cp", "-r", "/app", &target]).status;
        if scene.exists(&target) {
            assert_eq!(scene.acl(&target), closed, "cut after {bytes} bytes");
        }
    }
    assert!(broken > 0);
}
