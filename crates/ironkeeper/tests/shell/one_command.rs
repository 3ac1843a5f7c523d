//! A single command: output, streams and exit status, as scripts use them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use ironkeeper_testing::{HeldPort, TestServer};

fn shell(server: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .args(["shell", "-server", server])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command and compares status and both streams.
#[track_caller]
fn check(server: &str, arguments: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = shell(server, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str(), text(&output.stderr).as_str()),
        (Some(status), stdout, stderr),
        "{arguments:?}"
    );
}

#[test]
fn results_are_on_standard_output_and_nothing_else_is() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    check(&at, &["create", "/a", "two words"], 0, "/a\n", "Created /a\n");
    check(&at, &["get", "/a"], 0, "two words\n", "");
    check(&at, &["ls", "/"], 0, "[a, zookeeper]\n", "");
    check(&at, &["get", "/b"], 1, "", "Node does not exist: /b\n");
    check(&at, &["get", "b"], 1, "", "Path must start with / character\n");
    check(&at, &["get"], 1, "", "get [-s] [-w] [-b] [-x] path\n");
    check(&at, &["got", "/b"], 127, "", "Command not found: got\nType help for the commands.\n");
    check(&format!("{at}/a"), &["ls", "/"], 0, "[]\n", "");
}

#[test]
fn json_is_one_object_per_line_for_results_and_for_errors() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    let json = |arguments: &[&str]| -> (serde_json::Value, serde_json::Value) {
        let output = shell(&at, arguments);
        let parse = |bytes: &[u8]| match bytes {
            b"" => serde_json::Value::Null,
            _ => serde_json::from_slice(bytes).unwrap(),
        };
        (parse(&output.stdout), parse(&output.stderr))
    };
    let (created, _) = json(&["--json", "create", "/a", "text"]);
    assert_eq!(created["created"], "/a");
    let (found, _) = json(&["get", "--json", "/a"]);
    assert_eq!(
        (found["data"].as_str(), found["stat"]["version"].as_i64()),
        (Some("text"), Some(0))
    );
    json(&["set", "-b", "/a", "AP8="]);
    let (found, _) = json(&["--json", "get", "/a"]);
    assert_eq!(found["data_base64"], "AP8=");
    let (_, error) = json(&["--json", "get", "/b"]);
    assert_eq!((error["code"].as_str(), error["path"].as_str()), (Some("NoNode"), Some("/b")));
    let (_, error) = json(&["--json", "get", "-q", "/b"]);
    assert_eq!(error["error"], "Unrecognized option: -q");
    let (listed, _) = json(&["--json", "ls", "/"]);
    assert_eq!(listed["children"], serde_json::json!(["a", "zookeeper"]));
}

#[test]
fn bytes_that_are_no_text_are_shown_as_bytes() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    check(&at, &["create", "/a"], 0, "/a\n", "Created /a\n");
    check(&at, &["set", "-b", "/a", "AP8b"], 0, "", "");
    let shown = String::from_utf8(shell(&at, &["get", "/a"]).stdout).unwrap();
    assert!(shown.contains("|00000000| 00 ff 1b "), "{shown}");
    check(
        &at,
        &["set", "-b", "/a", "%"],
        1,
        "",
        "the data is not base64: Invalid symbol 37, offset 0.\n",
    );
}

#[test]
fn data_comes_from_files_and_goes_to_them_as_it_is() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    // Binary data, larger than the arguments of a process can be.
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    std::fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    check(&at, &["create", "-f", file, "/a"], 0, "/a\n", "Created /a\n");
    assert_eq!(shell(&at, &["get", "-raw", "/a"]).stdout, bytes);
    let mut child = Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .args(["shell", "-server", &at, "set", "/a", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from the pipe\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(shell(&at, &["get", "--raw", "/a"]).stdout, b"from the pipe\n");
    // A single dash is data, as in zkCli.
    check(&at, &["set", "/a", "-"], 0, "", "");
    check(&at, &["get", "/a"], 0, "-\n", "");
    let said = String::from_utf8(shell(&at, &["set", "-f", file, "/a", "typed"]).stderr).unwrap();
    assert!(said.starts_with("The data is typed, and -f names a file of data"), "{said}");
    let said = String::from_utf8(shell(&at, &["set", "-f", "/no/file", "/a"]).stderr).unwrap();
    assert!(said.starts_with("Cannot read /no/file"), "{said}");
    check(&at, &["get", "/a"], 0, "-\n", "");
}

#[test]
fn a_list_with_unknown_letters_changes_nothing() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    check(&at, &["create", "/a", "x"], 0, "/a\n", "Created /a\n");
    let complaint = "Unknown perm type: x\nUnknown perm type: y\nAcl is not valid : null\n";
    check(&at, &["setAcl", "/a", "world:anyone:rxy"], 1, "", complaint);
    check(&at, &["setAcl", "-R", "/a", "world:anyone:rxy"], 1, "", complaint);
    check(&at, &["getAcl", "/a"], 0, "'world,'anyone\n: cdrwa\n", "");
    check(&at, &["create", "/b", "x", "world:anyone:xy"], 1, "", complaint);
    check(&at, &["ls", "/"], 0, "[a, zookeeper]\n", "");
}

#[test]
fn parents_are_made_if_that_is_wanted_and_named_if_not() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    check(
        &at,
        &["create", "/x/y/z"],
        1,
        "",
        "Node does not exist: /x/y/z\nThe parent /x/y does not exist; create -p creates it.\n",
    );
    check(&at, &["create", "-p", "/x/y/z"], 0, "/x/y/z\n", "Created /x/y/z\n");
    // Completion inserts a single slash at the end.
    check(&at, &["ls", "/x/"], 0, "[y]\n", "");
    check(&at, &["ls", "/x//"], 1, "", "Path must not end with / character\n");
    let sequential = String::from_utf8(shell(&at, &["create", "-s", "/x/y/"]).stdout).unwrap();
    assert_eq!(sequential, "/x/y/0000000001\n");
    let said = String::from_utf8(shell(&at, &["create", "-e", "/e"]).stderr).unwrap();
    assert!(said.contains("goes with the session of this command"), "{said}");
    check(
        &at,
        &["set", "-v", "7", "/x", "1"],
        1,
        "",
        "version No is not valid : /x\nThe version of its data is 0.\n",
    );
    let said = String::from_utf8(shell(&format!("{at}/none"), &["ls", "/"]).stderr).unwrap();
    assert!(said.contains("The chroot /none does not exist"), "{said}");
    let said = String::from_utf8(shell(&at, &["ls", "/", "|", "grep"]).stderr).unwrap();
    assert!(said.contains("'|' has no meaning here"), "{said}");
}

#[test]
fn the_command_line_of_the_shell_is_like_that_of_others() {
    let server = TestServer::start().unwrap();
    let at = server.connect_string();
    check(&at, &["--", "ls", "/"], 0, "[zookeeper]\n", "");
    let version = String::from_utf8(shell(&at, &["--version"]).stdout).unwrap();
    assert!(version.starts_with("Ironkeeper CLI version: "), "{version}");
    let help = String::from_utf8(shell(&at, &["--help"]).stdout).unwrap();
    assert!(help.contains("--stop-on-error") && help.contains("Exit codes"), "{help}");
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let nobody = HeldPort::take(0).unwrap();
    let at = nobody.address().to_string();
    let refused = format!("Cannot connect to {at}: {at}: Connection refused (os error 111)\n");
    check(&at, &["ls", "/"], 1, "", &refused);
    check(&at, &["addauth", "digest", "a:b"], 1, "", &refused);
    // Commands that need no server work without one.
    assert!(shell(&at, &["help"]).status.success());
    let output = shell(&at, &["-timeout", "2000", "-waitforconnection", "ls", "/"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no server answered within 2000 ms (127.0.0.1:"), "{said}");
    let output = shell("host:port", &["ls", "/"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn help_tells_of_every_command_and_option() {
    let output = shell("localhost:1", &["help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["addWatch", "deleteall", "whoami", "help"] {
        assert!(text.contains(&format!("\n  {name} ")), "{text}");
    }
    for arguments in [["help", "create"], ["create", "--help"]] {
        let text = String::from_utf8(shell("localhost:1", &arguments).stdout).unwrap();
        assert!(text.starts_with("create [-p] [-f file] [-s] [-e]"), "{text}");
        assert!(
            text.contains("-t ttl") && text.contains("examples\n  create /app hello"),
            "{text}"
        );
    }
}
