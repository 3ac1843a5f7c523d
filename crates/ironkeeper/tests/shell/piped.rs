//! Commands from a pipe.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use ironkeeper_testing::TestServer;

fn pipe(server: &str, options: &[&str], script: &[u8]) -> Output {
    let mut shell = Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .args(["shell", "-server", server])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    // The shell may have ended before the last line.
    let _ = stdin.write_all(script);
    drop(stdin);
    shell.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_status_is_that_of_the_first_command_that_fails() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    for (script, status) in [
        ("ls /\n", 0),
        ("get /nothing\n", 1),
        ("get /nothing\nls /\n", 1),
        ("nonsense\nget /nothing\nls /\n", 127),
        ("ls /\nnonsense\n", 127),
        ("get /nothing\n\n", 1),
        ("get /nothing\nquit\nls /\n", 1),
        ("set /a \"half\n", 1),
        ("", 0),
    ] {
        let output = pipe(&at, &[], script.as_bytes());
        assert_eq!(output.status.code(), Some(status), "{script:?} {output:?}");
    }
}

#[test]
fn a_script_ends_at_its_first_error_if_that_is_wanted() {
    let server = TestServer::start().unwrap();
    let script = b"create /a\nget /nothing\ncreate /b\n";
    for option in ["-e", "--stop-on-error"] {
        let output = pipe(&server.connect_string(), &[option], script);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    let output = pipe(&server.connect_string(), &[], b"ls /\n");
    assert_eq!(text(&output.stdout), "[a, zookeeper]\n");
    let output = pipe(&server.connect_string(), &["-e"], b"ls /\nls /a\n");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn relative_paths_begin_where_cd_says() {
    let server = TestServer::start().unwrap();
    let script =
        b"ls a\ncreate /a\ncreate /a/b x\ncd /a\npwd\nget b\ncd b\nset . y\nget ../b\ncd /none\n\
                   tree -d 0\n";
    let output = pipe(&server.connect_string(), &[], script);
    assert_eq!(text(&output.stdout), "/a\nx\ny\n/a/b\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("Path must start with /"), "{said}");
    assert!(said.contains("Node does not exist: /none"), "{said}");
}

#[test]
fn nodes_that_must_not_be_read_have_a_status_of_their_own() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    let output = pipe(
        &at,
        &[],
        b"create /app\ncreate /app/a\ncreate /app/b\ncreate /app/c\nsetAcl /app/b world:anyone:w\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (command, expected) in [
        (
            "tree /app",
            "/app\n\u{251c}\u{2500}\u{2500} a\n\u{251c}\u{2500}\u{2500} b  (no permission to read it)\n\u{2514}\u{2500}\u{2500} c\n",
        ),
        ("ls -R /app", "/app\n/app/a\n/app/b\n/app/c\n"),
        ("find /app -name c", "/app/c\n"),
    ] {
        let output = pipe(&at, &[], format!("{command}\n").as_bytes());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(text(&output.stdout), expected, "{command}");
    }
    assert_eq!(pipe(&at, &[], b"tree /none\n").status.code(), Some(1));
}

#[test]
fn results_are_alone_on_standard_output() {
    let server = TestServer::start().unwrap();
    let script = b"create /a x\nget /a\nls2 /a\nget /a watch\nrmr /a\nls /";
    let output = pipe(&server.connect_string(), &[], script);
    let shown = text(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((lines[0], lines[1]), ("x", "[]"));
    assert!(lines[2].starts_with("cZxid = 0x"), "{shown}");
    assert!(lines.contains(&"[zookeeper]"), "{shown}");
    let said = text(&output.stderr);
    assert!(said.contains("'get path [watch]' has been deprecated"), "{said}");
    assert!(said.contains("'rmr' has been deprecated"), "{said}");
}

#[test]
fn a_notification_is_printed_once_however_many_watches_it_fires() {
    let server = TestServer::start().unwrap();
    let script =
        b"create /a\nget -w /a\nstat -w /a\nls -w /a\naddWatch /a\naddWatch -m PERSISTENT /a\n\
                   delete /a\nremovewatches /a\nremovewatches /a\ncreate /a\n";
    let output = pipe(&server.connect_string(), &[], script);
    let shown = text(&output.stdout);
    let events: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("WatchedEvent state:SyncConnected type:"))
        .map(|line| line.split(" zxid").next().unwrap_or(line))
        .collect();
    assert_eq!(events, ["NodeDeleted path:/a", "PersistentWatchRemoved path:/a"], "{shown}");
    assert!(text(&output.stderr).contains("No such watcher for /a"));
}

#[test]
fn an_older_form_of_delete_keeps_its_version_check() {
    let server = TestServer::start().unwrap();
    let output = pipe(&server.connect_string(), &[], b"create /a\ndelete /a 7\nls /\n");
    assert_eq!(text(&output.stdout), "[a, zookeeper]\n");
    assert!(text(&output.stderr).contains("version No is not valid : /a"));
}

#[test]
fn a_reader_that_goes_away_ends_the_shell_quietly() {
    let server = TestServer::start().unwrap();
    let mut shell = Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .args(["shell", "-server", &server.connect_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(shell.stdout.take());
    let mut stdin = shell.stdin.take().unwrap();
    // The input is never closed: the shell must end because its output is closed.
    let _ = stdin.write_all(b"ls /\nls /\n");
    let output = shell.wait_with_output().unwrap();
    assert!(!text(&output.stderr).contains("panic"), "{output:?}");
    drop(stdin);
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let server = TestServer::start().unwrap();
    let output = pipe(&server.connect_string(), &[], b"create /a \xff\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not UTF-8"));
}

#[test]
fn a_connect_string_that_is_none_costs_nothing() {
    let server = TestServer::start().unwrap();
    let output = pipe(
        &server.connect_string(),
        &[],
        b"create -e /mine\nconnect here:there\ngetEphemerals\n",
    );
    assert!(text(&output.stderr).contains("invalid connect string"), "{output:?}");
    assert_eq!(text(&output.stdout), "[/mine]\n", "{output:?}");
}
