//! `ironkeeper lock`, as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use ironkeeper_client::{Client, Version};
use ironkeeper_testing::TestServer;

fn lock(server: &TestServer, options: &[&str], command: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    program.args(["lock", "--server", &server.connect_string()]).args(options);
    program.arg("/locks/job").arg("--").args(command);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

/// Runs until its standard input is closed, and says so when it has begun.
const HOLD: [&str; 3] = ["sh", "-c", "echo held; read line; echo done; exit 7"];

fn started(server: &TestServer) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = lock(server, &[], &HOLD).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    (child, output)
}

/// Waiting closes the input of a process, which would end the program.
fn code_with_open_input(child: &mut Child) -> Option<i32> {
    let _input = child.stdin.take();
    child.wait().unwrap().code()
}

#[test]
fn the_program_runs_under_the_lock_and_its_code_is_ours() {
    let server = TestServer::start().unwrap();
    let (mut first, mut output) = started(&server);
    let refused = lock(&server, &["--try"], &["true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let refused = lock(&server, &["--wait", "0.05"], &["true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    drop(first.stdin.take());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert_eq!(first.wait().unwrap().code(), Some(7));
    let shown = lock(&server, &["--try"], &["sh", "-c", "echo $IRONKEEPER_LOCK_TOKEN"]);
    let shown = { shown }.output().unwrap();
    assert!(shown.status.success());
    let token: i64 = String::from_utf8(shown.stdout).unwrap().trim().parse().unwrap();
    assert!(token > 0);
}

#[test]
fn a_program_that_cannot_be_run_leaves_the_lock_free() {
    let server = TestServer::start().unwrap();
    let failed = lock(&server, &[], &["/no/such/program"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("/no/such/program"));
    assert!(lock(&server, &["--try"], &["true"]).status().unwrap().success());
}

#[test]
fn the_program_is_stopped_when_the_lock_is_lost() {
    let server = TestServer::start().unwrap();
    let (mut child, _output) = started(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let names = client.children("/locks/job").await.unwrap();
        client.delete(&format!("/locks/job/{}", names[0]), Version::Any).await.unwrap();
    });
    assert_eq!(code_with_open_input(&mut child), Some(76));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("lost"), "{said}");
    // The same when the session ends.
    let (mut child, _output) = started(&server);
    for session in server.sessions().unwrap() {
        server.kill_session(session).unwrap();
    }
    assert_eq!(code_with_open_input(&mut child), Some(76));
}

#[test]
fn the_program_is_stopped_in_time_when_no_server_can_be_reached() {
    let server = TestServer::start().unwrap();
    let mut child = lock(&server, &["--session-timeout", "1200"], &HOLD).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    server.stop().unwrap();
    assert_eq!(code_with_open_input(&mut child), Some(76));
}
