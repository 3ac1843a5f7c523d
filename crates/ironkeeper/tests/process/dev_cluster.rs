//! `ironkeeper dev-cluster`, as a process with child processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ironkeeper_testing::HeldPort;
use rustix::process::Signal;

use crate::pseudo_terminal::{PseudoTerminal, TAB, UP};

struct Cluster {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    id: String,
    role: String,
    pid: String,
}

impl Cluster {
    fn start(dir: &Path, options: &[&str]) -> Cluster {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
        command.arg("dev-cluster").args(options).args(["--port", "0", "--data-dir"]).arg(dir);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Cluster { process, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable output");
        line.trim_end().to_owned()
    }

    /// Reads the line that describes the outcome, and the table after it.
    fn settled(&mut self, members: usize) -> (String, Vec<Row>) {
        let how = self.line();
        let titles = self.line();
        assert!(titles.starts_with("SERVER"), "{how}\n{titles}");
        let mut rows = Vec::new();
        for _ in 0..members {
            let line = self.line();
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [id, _, role, pid, ..] = cells[..] else { panic!("not a row: {line}") };
            rows.push(Row { id: id.into(), role: role.into(), pid: pid.into() });
        }
        (how, rows)
    }

    fn order(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("it listens");
    }

    fn quit(mut self) {
        self.order("quit");
        assert!(self.process.wait().expect("its end").success());
    }
}

fn id_of(rows: &[Row], role: &str) -> String {
    let row = rows.iter().find(|row| row.role == role);
    row.unwrap_or_else(|| panic!("no {role} in {rows:?}")).id.clone()
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back_as_a_follower() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(dir.path(), &["3", "--observers", "1"]);
    let (how, rows) = cluster.settled(4);
    assert!(how.contains("4 servers, server ") && how.contains(" leads"), "{how}");
    assert_eq!(id_of(&rows, "observer"), "4");
    assert!(cluster.line().starts_with("connect "));
    assert!(cluster.line().starts_with("commands "));

    let killed = id_of(&rows, "leader");
    cluster.order(&format!("kill {killed}"));
    let (_, rows) = cluster.settled(4);
    assert_ne!(id_of(&rows, "leader"), killed);
    assert_eq!(id_of(&rows, "stopped"), killed);

    cluster.order(&format!("start {killed}"));
    let (_, rows) = cluster.settled(4);
    let back = rows.iter().find(|row| row.id == killed).unwrap();
    assert_eq!(back.role, "follower");

    let (first, second) = (id_of(&rows, "leader"), killed);
    cluster.order(&format!("stop {first}"));
    cluster.settled(4);
    cluster.order(&format!("kill {second}"));
    let (how, _) = cluster.settled(4);
    assert_eq!(how, "1 of 3 voters are up, which is no quorum");
    cluster.order("kill 7");
    assert_eq!(cluster.line(), "there is no server 7");
    cluster.quit();
}

#[test]
fn settings_and_the_log_filter_reach_the_members() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["1", "--set", "reconfigEnabled=true", "--set", "tickTime=500", "--log", "error"];
    let mut cluster = Cluster::start(dir.path(), &options);
    cluster.settled(1);
    assert!(cluster.line().starts_with("connect "));
    assert!(cluster.line().starts_with("commands "));
    let config = std::fs::read_to_string(dir.path().join("1/zoo.cfg")).unwrap();
    assert!(config.contains("\nreconfigEnabled=true\n"), "{config}");
    assert_eq!(config.matches("tickTime=").count(), 1, "{config}");
    let log = std::fs::read_to_string(dir.path().join("1/server.log")).unwrap();
    // Without --log members would log at info, for instance that a member leads.
    assert!(!log.contains(" INFO "), "{log}");
    cluster.order("start 1");
    assert_eq!(cluster.line(), "server 1 runs already");
    cluster.order("log 1 1");
    let last = cluster.line();
    assert!(!last.is_empty() && !last.starts_with("all of it"), "{last}");
    assert!(cluster.line().starts_with("all of it: "));
    cluster.quit();
    // An existing cluster keeps its own settings.
    let mut again = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    again.args(["dev-cluster", "--set", "tickTime=100", "--data-dir"]).arg(dir.path());
    let refused = again.output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("zoo.cfg of each member"));
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    let refused = wrong.args(["dev-cluster", "--set", "reconfigEnabled"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_cluster_that_was_left_is_started_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("1");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("myid"), "1").unwrap();
    let [client, quorum, election] = [0; 3].map(|any| HeldPort::take(any).unwrap());
    let config = format!(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPortAddress=127.0.0.1\n\
         clientPort={}\nstandaloneEnabled=false\nserver.1={}:{}\n",
        own.display(),
        client.address().port(),
        quorum.address(),
        election.address().port()
    );
    std::fs::write(own.join("zoo.cfg"), config).unwrap();
    let mut cluster = Cluster::start(dir.path(), &["5"]);
    let (how, rows) = cluster.settled(1);
    assert!(how.starts_with("1 server, server 1 leads"), "{how}");
    assert_eq!(id_of(&rows, "leader"), "1");
    assert_eq!(cluster.line(), format!("connect  ironkeeper shell -server {}", client.address()));
    cluster.quit();
}

fn open_prompt(home: &Path) -> PseudoTerminal {
    let data = home.join("data").display().to_string();
    let arguments = ["dev-cluster", "1", "--port", "0", "--data-dir", &data];
    let mut terminal = PseudoTerminal::of(&arguments, ("XDG_STATE_HOME", home), "");
    terminal.wait_for("cluster> ");
    terminal
}

#[test]
fn the_prompt_completes_commands_and_servers_and_has_a_history() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open_prompt(home.path());
    terminal.press("stat");
    terminal.press(TAB);
    terminal.wait_for("us ");
    terminal.run("");
    terminal.wait_for("SERVER");
    terminal.wait_for("cluster> ");
    terminal.press("sto");
    terminal.press(TAB);
    terminal.wait_for("p ");
    terminal.press(TAB);
    terminal.wait_for("stop 1");
    terminal.run("");
    terminal.wait_for("0 of 1 voters are up");
    terminal.wait_for("cluster> ");
    terminal.press(UP);
    terminal.wait_for("stop 1");
    terminal.press(UP);
    terminal.wait_for("status");
    // Ctrl-C ends the cluster process.
    terminal.press(crate::pseudo_terminal::CTRL_C);
    assert!(terminal.wait_for_end().success());
    assert!(terminal.edits_lines());

    let mut next = open_prompt(home.path());
    next.press(UP);
    next.wait_for("stop 1");
    // A killed cluster process would leave its member behind.
    next.press(crate::pseudo_terminal::CTRL_C);
    assert!(next.wait_for_end().success());
}

#[test]
fn a_terminal_is_as_it_was_when_a_signal_ends_the_cluster() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open_prompt(home.path());
    assert!(!terminal.edits_lines());
    terminal.signal(Signal::TERM);
    assert!(terminal.wait_for_end().success());
    assert!(terminal.edits_lines());
}
