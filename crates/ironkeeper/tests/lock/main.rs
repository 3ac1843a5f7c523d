//! `ironkeeper lock`, as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::lock::Mutex;
use ironkeeper_testing::{HeldPort, TestServer};

fn lock(server: &TestServer, options: &[&str], command: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    program.args(["lock", "--server", &server.connect_string()]).args(options);
    program.arg("/locks/job").arg("--").args(command);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

/// A program that runs until its standard input is closed, and prints `held` when it has started.
const HOLD: [&str; 3] = ["sh", "-c", "echo held; read line; echo done; exit 7"];

fn started(server: &TestServer) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = lock(server, &[], &HOLD).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    (child, output)
}

/// Waits for the exit code. `Child::wait` closes the standard input, which would end the program,
/// so the input is taken out first.
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
    assert_eq!(failed.status.code(), Some(127), "as shells have it");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("/no/such/program"));
    let failed = lock(&server, &[], &["/dev/null"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(126), "{failed:?}");
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
    // The exit code is the same when the session ends.
    let (mut child, _output) = started(&server);
    for session in server.sessions().unwrap() {
        server.kill_session(session).unwrap();
    }
    assert_eq!(code_with_open_input(&mut child), Some(76));
}

/// A node of kazoo's `Lock`: a uuid without dashes, and `__lock__`; the server appends the sequence
/// number.
const KAZOO_NODE: &str = "/locks/job/0b7c6a0e5d4f4c3b8a291807f6e5d4c3__lock__";

fn kazoo(server: &TestServer) -> (tokio::runtime::Runtime, Client, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, path) = runtime.block_on(async {
        let client = Client::connect(&server.connect_string()).await.unwrap();
        client.create_parents(KAZOO_NODE).await.unwrap();
        let path = client.create(KAZOO_NODE, "kazoo", CreateMode::EphemeralSequential).await;
        (client, path.unwrap())
    });
    (runtime, client, path)
}

#[test]
fn a_path_that_kazoo_uses_is_refused_and_no_node_is_left() {
    let server = TestServer::start().unwrap();
    let (runtime, client, held) = kazoo(&server);
    for options in [&[][..], &["--try"], &["--wait", "5"]] {
        let refused = lock(&server, options, &["true"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("--kazoo") && said.contains("another recipe"), "{said}");
        let names = runtime.block_on(client.children("/locks/job")).unwrap();
        assert_eq!(names, [held.rsplit('/').next().unwrap()], "a node was left behind");
    }
    // With the same names it is queued behind the holder.
    let refused = lock(&server, &["--kazoo", "--try"], &["true"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(75), "{said}");
    assert!(said.contains("held by 'kazoo' (session 0x"), "{said}");
    runtime.block_on(client.delete(&held, Version::Any)).unwrap();
    assert!(lock(&server, &["--kazoo", "--try"], &["true"]).status().unwrap().success());
}

#[test]
fn a_lock_of_kazoo_that_does_not_see_ours_is_warned_of() {
    let server = TestServer::start().unwrap();
    let (mut child, _output) = started(&server);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (runtime, client, held) = kazoo(&server);
    let warning = said.next().unwrap();
    assert!(warning.contains("WARNING") && warning.contains("--kazoo"), "{warning}");
    runtime.block_on(client.delete(&held, Version::Any)).unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_process_that_waits_prints_who_holds_the_lock() {
    let server = TestServer::start().unwrap();
    let mut first = lock(&server, &["--data", "job A"], &HOLD).spawn().unwrap();
    let mut output = BufReader::new(first.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let mut second = lock(&server, &[], &["true"]).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waiting = said.next().unwrap();
    assert!(
        waiting.starts_with("waiting for /locks/job: held by 'job A' (session 0x"),
        "{waiting}"
    );
    assert!(waiting.contains("since 20"), "{waiting}");
    let refused = lock(&server, &["--try"], &["true"]).output().unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("was not granted: held by 'job A'"), "{refused}");
    drop(first.stdin.take());
    assert_eq!(first.wait().unwrap().code(), Some(7));
    assert!(second.wait().unwrap().success());
    // Without --data the node names the process.
    let (mut child, _output) = started(&server);
    let refused = lock(&server, &["--try"], &["true"]).output().unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains(&format!("process {}'", child.id())), "{refused}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_an_error_without_waiting() {
    let no_server = HeldPort::take(0).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    program.args(["lock", "--server", &no_server.address().to_string(), "/a", "--", "true"]);
    let failed = program.output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1));
    // The client's own timeout would cause a different message, after fifteen seconds.
    assert!(said.contains("cannot connect to") && said.contains("Connection refused"), "{said}");
}

#[test]
fn a_process_that_waits_can_be_ended_when_no_server_is_there() {
    let server = TestServer::start().unwrap();
    let (mut first, _output) = started(&server);
    let mut second = lock(&server, &[], &["true"]).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().starts_with("waiting for"));
    server.stop().unwrap();
    send("-TERM", &second.id().to_string());
    // Reading the holder of the lock would block until a server is reachable.
    assert_eq!(second.wait().unwrap().code(), Some(75));
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Returns whether a process has ended; a zombie has ended.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn whatever_the_program_has_started_is_stopped_with_it() {
    let server = TestServer::start().unwrap();
    // A process that would survive the shell, and a process that ignores SIGTERM.
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

/// Closing the terminal must not end the holder of the lock while the program continues.
///
/// The trap ends the `sleep`: the shell can run the trap before it enters `wait`, and a `wait` that
/// begins after the trap is interrupted by no signal.
#[test]
fn a_program_that_outlives_its_terminal_keeps_the_lock() {
    let server = TestServer::start().unwrap();
    let script = "trap 'echo heard; kill $pid' HUP; sleep 1000 & pid=$!; echo held; wait $pid; \
                  read line; exit 7";
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
    // The output is closed when the program is killed.
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
    let (code, _, said) = show(&["--deadlocks", "/absent"]);
    assert!(code == Some(1) && said.contains("there is no node /absent"), "{said}");
    let (code, text, _) = show(&["--deadlocks", "/zookeeper"]);
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
    // The locks below this path alone form no cycle.
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
    // The sync is behind the request that deletes berta's contender.
    runtime.block_on(client.sync("/")).unwrap();
    assert_eq!(show(&["--deadlocks", "/"]).0, Some(0));
    anna.abort();
    // Wrong usage is an error.
    assert_eq!(show(&["/locks/a"]).0, Some(2));
    let (code, _, said) = show(&["--resolve", "/locks/a", "--", "true"]);
    assert!(code == Some(2) && said.contains("--resolve"), "{said}");
    assert_eq!(show(&["--", "true"]).0, Some(2));
    runtime.block_on(async {
        drop(held);
        client.close().await.unwrap();
    });
}
