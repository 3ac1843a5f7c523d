//! `ironkeeper lock`, as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use ironkeeper_client::{Client, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::lock::Mutex;
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

/// A process of a number is gone, or only waits to be asked how it ended.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn whatever_the_program_has_started_is_stopped_with_it() {
    let server = TestServer::start().unwrap();
    // One that would go on when the shell is gone, and one that does not listen.
    let script =
        "sleep 1000 & echo $!; (trap '' TERM; sleep 1000; sleep 1000) & echo $!; echo held; wait";
    let mut child =
        lock(&server, &["--session-timeout", "4000"], &["sh", "-c", script]).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let said: Vec<String> =
        output.lines().map(Result::unwrap).take_while(|line| line != "held").collect();
    assert!(said.len() == 2 && said.iter().all(|pid| !has_ended(pid)), "{said:?}");
    for session in server.sessions().unwrap() {
        server.kill_session(session).unwrap();
    }
    assert_eq!(code_with_open_input(&mut child), Some(76));
    assert!(said.iter().all(|pid| has_ended(pid)), "{said:?}");
}

#[test]
fn the_program_is_stopped_in_time_when_no_server_can_be_reached() {
    let server = TestServer::start().unwrap();
    let mut child = lock(&server, &["--session-timeout", "6000"], &HOLD).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    server.stop().unwrap();
    assert_eq!(code_with_open_input(&mut child), Some(76));
}

fn send(signal: &str, to: &str) {
    assert!(Command::new("kill").args([signal, to]).status().unwrap().success());
}

/// Closing a terminal must not end the holder of the lock alone.
#[test]
fn a_program_that_outlives_its_terminal_keeps_the_lock() {
    let server = TestServer::start().unwrap();
    let script = "trap 'echo heard' HUP; sleep 1000 & echo held; wait; kill $!; read line; exit 7";
    let mut child = lock(&server, &[], &["sh", "-c", script]).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().as_deref(), Some("held"));
    send("-HUP", &child.id().to_string());
    assert_eq!(said.next().as_deref(), Some("heard"));
    let refused = lock(&server, &["--try"], &["true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_program_ends_with_a_holder_that_is_killed() {
    let server = TestServer::start().unwrap();
    let mut child =
        lock(&server, &[], &["sh", "-c", "echo held; exec sleep 1000"]).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().as_deref(), Some("held"));
    child.kill().unwrap();
    // Its output ends with it.
    assert_eq!(said.next(), None);
    child.wait().unwrap();
}

#[test]
fn deadlocks_are_shown_and_ended() {
    let server = TestServer::start().unwrap();
    let show = |options: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
        program.args(["lock", "--server", &server.connect_string()]).args(options);
        let shown = program.output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        (shown.status.code(), text, String::from_utf8(shown.stderr).unwrap())
    };
    let (code, text, _) = show(&["--deadlocks", "/locks", "/absent"]);
    assert_eq!((code, &*text), (Some(0), "no deadlocks\n"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (waiting, client, held) = runtime.block_on(async {
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let lock = |path: &str, who: &'static str| {
            Mutex::new(&client, path).with_data(who).heeding_deadlocks()
        };
        let mut held = vec![lock("/locks/a", "anna").lock().await.unwrap()];
        held.push(lock("/more/b", "berta").lock().await.unwrap());
        let mut waiting = Vec::new();
        for (path, who) in [("/more/b", "anna"), ("/locks/a", "berta")] {
            let lock = lock(path, who);
            waiting.push(tokio::spawn(async move { lock.lock().await }));
            while client.children(path).await.unwrap().len() < 2 {}
        }
        (waiting, client, held)
    });
    // Below one of the paths there is no circle.
    assert_eq!(show(&["--deadlocks", "/locks"]).0, Some(0));
    let (code, text, _) = show(&["--deadlocks", "/locks", "/more"]);
    assert_eq!(code, Some(77));
    assert!(text.contains("(anna) waits at /more/b for") && text.contains("(berta)"), "{text}");
    let (code, text, _) = show(&["--resolve", "--deadlocks", "/locks", "/more"]);
    assert_eq!(code, Some(77));
    assert!(text.contains("told to give way"), "{text}");
    let mut waiting = waiting.into_iter();
    let (anna, berta) = (waiting.next().unwrap(), waiting.next().unwrap());
    let gave_way = runtime.block_on(berta).unwrap().unwrap_err();
    assert!(matches!(gave_way, RecipeError::Deadlock { .. }), "{gave_way}");
    // Behind the request that takes berta out of the line.
    runtime.block_on(client.sync("/")).unwrap();
    assert_eq!(show(&["--deadlocks", "/"]).0, Some(0));
    anna.abort();
    // Misuse is said.
    assert_eq!(show(&["/locks/a"]).0, Some(2));
    let (code, _, said) = show(&["--resolve", "/locks/a", "--", "true"]);
    assert!(code == Some(2) && said.contains("--resolve"), "{said}");
    assert_eq!(show(&["--", "true"]).0, Some(2));
    runtime.block_on(async {
        drop(held);
        client.close().await.unwrap();
    });
}
