//! Runs the binary once and returns its output and status.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the command line of `ironkeeper shell`.
pub fn shell(server: &str) -> Command {
    let mut command = ironkeeper();
    command.args(["shell", "-server", server]);
    command
}

pub fn ironkeeper() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    command.stdin(Stdio::null()).env_remove("VISUAL").env_remove("EDITOR");
    command
}

/// The output of a process, and its status.
#[derive(Debug)]
pub struct Said {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said {
            status: output.status.code().unwrap(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Said {
    /// Parses each line of standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"));
        self.stdout.lines().map(parse).collect()
    }
}

pub fn run(server: &str, words: &[&str]) -> Said {
    shell(server).args(words).output().unwrap().into()
}

/// Runs a command that must succeed, and returns its standard output.
#[track_caller]
pub fn ok(server: &str, words: &[&str]) -> String {
    let said = run(server, words);
    assert_eq!(said.status, 0, "{words:?}: {said:?}");
    said.stdout
}

/// Runs a command that must fail, and returns its standard error.
#[track_caller]
pub fn fails(server: &str, words: &[&str]) -> String {
    let said = run(server, words);
    assert_eq!(said.status, 1, "{words:?}: {said:?}");
    said.stderr
}

/// Runs commands from a pipe, all in one session.
pub fn piped(server: &str, lines: &[&str]) -> Said {
    use std::io::Write;
    let mut child = shell(server)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = lines.join("\n") + "\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}
