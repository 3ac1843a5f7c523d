//! The C client: its shell `cli_mt`, and a program of ours with `libzookeeper_mt`.
//!
//! `cli_mt` is tested in both modes: one process per command, compared with a recording like that
//! of `zkCli`, and one interactive session for commands that need a lasting session.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_peers::cache::CClient;
use ironkeeper_steps::{process, repo};

use super::transcript::{self, Step};
use super::{Lab, Tally, driver};

/// The longest wait for an expected line of `cli_mt`.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Commands that `cli_mt` runs in a process of their own.
const ONE_SHOT: [&str; 22] = [
    "ls /",
    "create /a",
    "create /a",
    "create2 /b",
    "create /none/x",
    "create +s /seq",
    "create2 +s /seq",
    "create +c /box",
    "create +t=3600000 /ttl",
    "create +e /eph",
    "ls2 /",
    "set /a hello",
    "get /a",
    "get /eph",
    "get /nothing",
    "sync /",
    "delete /b",
    "delete /b",
    "delete /zookeeper",
    "ls /nothing",
    "config",
    "reconfig -remove 2",
];

/// An interactive session: each input line, and the output that must appear before the next line is
/// sent.
const CONVERSATION: [(&str, &str); 8] = [
    ("wexists /talk", "Error -101 for /talk"),
    ("create +e /talk", "Watcher CREATED_EVENT state = CONNECTED_STATE for path /talk"),
    ("wexists /talk", ""),
    ("set /talk x", "Watcher CHANGED_EVENT state = CONNECTED_STATE for path /talk"),
    ("addauth digest user:password", ""),
    ("aget /talk", " value_len = 1"),
    ("ls /", "\ttalk"),
    ("quit", "Quitting..."),
];

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let client = lab.cache.c_client()?;
    let mut server = lab.server(|setup| setup)?;
    let address = server.address();

    let mut steps = Vec::new();
    for command in ONE_SHOT {
        steps.push(one_shot(&client, &address, command)?);
    }
    let mut tally =
        transcript::compare(&repo::interop("c/cli_mt.expected.txt"), &steps, lab.bless)?;
    tally.add(converse(&client, &address)?);

    tally.add(driver::run(driver(lab)?.arg(&address), &mut server)?);
    Ok(tally)
}

/// Compiles the program of `interop/c` and returns its command; the caller adds the address.
pub fn driver(lab: &Lab<'_>) -> Result<Command> {
    let client = lab.cache.c_client()?;
    let (source, with) = (repo::interop("c/client.c"), client.lib.display().to_string());
    let home = lab.cache.compiled("c", std::slice::from_ref(&source), &with, |home| {
        process::run(
            Command::new("cc")
                .args(["-std=c11", "-D_GNU_SOURCE", "-DTHREADED", "-Wall", "-Wextra", "-Werror"])
                .arg("-o")
                .arg(home.join("client"))
                .arg(&source)
                .arg("-I")
                .arg(&client.include)
                .arg("-L")
                .arg(&client.lib)
                .args(["-lzookeeper_mt", "-lpthread"]),
        )
        .context("interop/c/client.c does not compile")
        .map(drop)
    })?;
    Ok(with_library(home.join("client"), &client))
}

fn with_library(program: impl AsRef<OsStr>, client: &CClient) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &client.lib);
    command
}

fn one_shot(client: &CClient, address: &str, words: &str) -> Result<Step> {
    let mut lines = Vec::new();
    let mut talk =
        Talk::start(with_library(&client.cli_mt, client).args(["-h", address, "-c", words]))?;
    while let Some(line) = talk.line() {
        lines.extend(mask(&line));
    }
    if talk.ended_late() {
        lines.push(format!("(did not end within {ANSWER_MAX:?})"));
    }
    // Children are listed in the order of a hash table.
    if words.starts_with("ls") {
        lines.sort();
    }
    Ok(Step { title: words.to_owned(), lines })
}

fn converse(client: &CClient, address: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut talk = Talk::start(with_library(&client.cli_mt, client).args(["-h", address]))?;
    let mut said = |words: &str, expected: &str, talk: &mut Talk| {
        let mut seen = Vec::new();
        let found = expected.is_empty()
            || std::iter::from_fn(|| talk.line()).any(|line| {
                let found = line.contains(expected);
                seen.push(line);
                found
            });
        let why = || format!("{expected:?} did not appear in {seen:?}");
        tally.check(words, found.then_some(()).ok_or_else(why));
    };
    said("cli_mt connects", "state = CONNECTED_STATE", &mut talk);
    for (words, expected) in CONVERSATION {
        talk.say(words);
        said(words, expected, &mut talk);
    }
    Ok(tally)
}

/// A running `cli_mt`, which prints everything to its standard error.
struct Talk {
    child: std::process::Child,
    lines: mpsc::Receiver<String>,
    late: bool,
}

impl Talk {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run cli_mt")?;
        let stderr = BufReader::new(child.stderr.take().context("stderr was piped")?);
        let (sender, lines) = mpsc::channel();
        // The thread ends with the process, which is killed when `Talk` is dropped.
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, late: false })
    }

    /// Sends a line. If `cli_mt` has terminated, the missing output shows it.
    fn say(&mut self, words: &str) {
        if let Some(stdin) = &mut self.child.stdin {
            let _ = stdin.write_all(format!("{words}\n").as_bytes());
        }
    }

    /// Returns the next line; `None` at the end of the output or after a timeout.
    fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(ANSWER_MAX) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => {
                self.late = true;
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn ended_late(&self) -> bool {
        self.late
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // Both calls fail only if the process has already terminated.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Drops the client's diagnostic lines and replaces values that differ from run to run.
fn mask(line: &str) -> Option<String> {
    // Two threads print; lines that only report a sent packet or a connection have no fixed order.
    const CHATTER: [&str; 5] =
        ["time = ", "Got a new session id", "Batch mode: ", "Creating [", "Watcher SESSION_EVENT"];
    if line.is_empty()
        || line.contains(":ZOO_")
        || CHATTER.iter().any(|start| line.starts_with(start))
    {
        return None;
    }
    let line = transcript::mask(line, "time = ", "<time>", |_| true);
    Some(transcript::mask(&line, "mtime=", "<time>", |_| true))
}
