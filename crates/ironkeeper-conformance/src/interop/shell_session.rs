//! A scripted session in a shell: `interop/zkcli/session.txt` as input of Apache's shell or ours.
//!
//! The script is sent to one shell, and its output is split by command. Servers start empty and
//! receive the same requests, so zxids must be equal; only times and session ids are masked. A few
//! commands also run as single processes, as in scripts, to check their exit status.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_steps::repo;

use super::transcript::Step;

/// Sent after each command; its output, with or without a connection, marks the end of the
/// command's output.
const MARKER: &str = "printwatches";
const MARKER_OUTPUT: &str = "printwatches is ";
/// The prefix of an event, which follows a line `WATCHER::`.
const EVENT_OUTPUT: &str = "WatchedEvent ";
/// The longest wait for an event; no check depends on it being short.
const EVENT_MAX: Duration = Duration::from_secs(30);

/// Commands given as arguments: the shell runs them and exits with their status.
const ONE_SHOT: [&[&str]; 7] = [
    &["create", "/script"],
    &["ls", "/"],
    &["get", "/nothing"],
    &["nonsense"],
    &["delete", "/script"],
    &["-r", "ls", "/"],
    &["-timeout", "5000", "-waitforconnection", "stat", "/nothing"],
];

/// Runs the whole session. `shell` returns the command line of a shell connected to the server at
/// `address`, to which options and a command can be added; `events` maps the index and the event
/// count of a command to the number of events to wait for. The output of the shell is written to
/// `dir`.
pub fn play(
    shell: impl Fn() -> Command,
    address: &str,
    events: impl Fn(usize, usize) -> usize,
    dir: &Path,
) -> Result<Vec<Step>> {
    let script = fs::read_to_string(repo::interop("zkcli/session.txt"))
        .context("cannot read interop/zkcli/session.txt")?;
    let mut entries = parse(&script);
    for (number, entry) in entries.iter_mut().enumerate() {
        entry.events = events(number, entry.events);
    }
    let output = type_into_shell(shell(), address, &entries)?;
    fs::write(dir.join("session.out"), &output)?;
    let mut steps = split(&entries, &output);
    for arguments in ONE_SHOT {
        steps.push(one_shot(shell(), arguments)?);
    }
    for step in &mut steps {
        for line in &mut step.lines {
            *line = mask(line, address);
        }
        // Apache keeps identities in a hash set and lists them in its order.
        if step.title == "whoami" {
            step.lines.sort();
        }
    }
    Ok(steps)
}

/// A line of the script, and the number of events that the shell prints for it.
struct Entry<'a> {
    command: &'a str,
    events: usize,
}

/// Parses the script's commands; the first entry stands for the output at the start: banner and
/// connection.
fn parse(script: &str) -> Vec<Entry<'_>> {
    let mut entries = vec![Entry { command: "(start)", events: 1 }];
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "(event)" {
            entries.last_mut().expect("the first entry is there from the start").events += 1;
        } else {
            entries.push(Entry { command: line, events: 0 });
        }
    }
    entries
}

/// Sends the script to a shell and returns its whole output.
///
/// Another thread than that of the results prints events, also in the middle of results; therefore
/// the next command is sent only when the events of the last one have appeared.
fn type_into_shell(mut shell: Command, address: &str, entries: &[Entry<'_>]) -> Result<String> {
    // One pipe for both streams keeps their order; errors and results are not distinguished.
    let (reader, writer) = std::io::pipe()?;
    shell.arg("-waitforconnection");
    let mut child = shell
        .stdin(Stdio::piped())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot run {:?}", shell.get_program()))?;
    // The command owns the writing ends; the reader gets the end of file only when they are closed.
    drop(shell);
    let mut stdin = child.stdin.take().context("stdin was piped")?;
    let (event, events) = mpsc::channel();
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            for entry in entries {
                let command = entry.command.replace("$ADDRESS", address);
                // A shell that terminated early, or a missing event, shows in the output.
                if entry.command != "(start)" {
                    let _ = writeln!(stdin, "{command}");
                }
                for _ in 0..entry.events {
                    let _ = events.recv_timeout(EVENT_MAX);
                }
                let _ = writeln!(stdin, "{MARKER}");
            }
            let _ = writeln!(stdin, "quit");
        });
        let mut output = String::new();
        for line in BufReader::new(reader).lines() {
            let line = line?;
            if line.starts_with(EVENT_OUTPUT) {
                let _ = event.send(());
            }
            output.push_str(&line);
            output.push('\n');
        }
        Ok::<_, std::io::Error>(output)
    })?;
    child.wait()?;
    Ok(output)
}

/// Splits the output into one step per entry, with events after results.
fn split(entries: &[Entry<'_>], output: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut results = Vec::new();
    let mut events = Vec::new();
    let mut entries = entries.iter();
    for line in output.lines() {
        if line.starts_with(EVENT_OUTPUT) {
            events.push(line.to_owned());
        } else if line.starts_with(MARKER_OUTPUT) {
            let title = entries.next().map_or("(too many answers)", |entry| entry.command);
            results.append(&mut events);
            steps.push(Step { title: title.to_owned(), lines: std::mem::take(&mut results) });
        } else if !line.is_empty() && line != "WATCHER::" {
            results.push(line.to_owned());
        }
    }
    // Output after the last marker belongs to the exit of the shell, which may or may not be
    // printed.
    steps
}

fn one_shot(mut shell: Command, arguments: &[&str]) -> Result<Step> {
    let output = run_to_end(shell.args(arguments))?;
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .lines()
            // The connection event may or may not be printed before the process ends.
            .filter(|line| {
                !line.is_empty() && *line != "WATCHER::" && !line.starts_with(EVENT_OUTPUT)
            })
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut lines = text(&output.stdout);
    lines.extend(text(&output.stderr).into_iter().map(|line| format!("stderr: {line}")));
    lines.push(format!("exit status {}", output.status.code().unwrap_or(-1)));
    Ok(Step { title: format!("$ zkCli {}", arguments.join(" ")), lines })
}

fn run_to_end(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))
}

/// Replaces values that differ from run to run: times, session ids, the server's port.
fn mask(line: &str, address: &str) -> String {
    let line = line.replace(address, "$ADDRESS");
    for key in ["ctime = ", "mtime = "] {
        if line.starts_with(key) {
            return format!("{key}<time>");
        }
    }
    // The owners of containers and TTL nodes encode the kind in the top byte; they have sixteen
    // digits and are kept.
    if let Some(owner) = line.strip_prefix("ephemeralOwner = 0x")
        && owner != "0"
        && owner.len() < 16
    {
        return "ephemeralOwner = 0x<session>".to_owned();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_follow_the_results_of_their_command() {
        let entries = parse("# a script\nls /\n\ncreate /a\n(event)\n");
        let output = "Connecting to x\n\nWATCHER::\n\nWatchedEvent type:None\nWelcome!\n\
                      printwatches is on\n[zookeeper]\nprintwatches is on\n\
                      \nWATCHER::\nWatchedEvent type:NodeCreated path:/a\nCreated /a\n\
                      printwatches is on\nWatchedEvent state:Closed\n";
        let steps = split(&entries, output);
        let flat: Vec<(&str, String)> =
            steps.iter().map(|step| (step.title.as_str(), step.lines.join("|"))).collect();
        assert_eq!(
            flat,
            [
                ("(start)", "Connecting to x|Welcome!|WatchedEvent type:None".to_owned()),
                ("ls /", "[zookeeper]".to_owned()),
                ("create /a", "Created /a|WatchedEvent type:NodeCreated path:/a".to_owned()),
            ]
        );
    }

    #[test]
    fn only_what_varies_is_masked() {
        assert_eq!(mask("cZxid = 0x2", "h:1"), "cZxid = 0x2");
        assert_eq!(mask("mtime = Sun Nov 15", "h:1"), "mtime = <time>");
        assert_eq!(
            mask("ephemeralOwner = 0x100001dc4d70003", "h:1"),
            "ephemeralOwner = 0x<session>"
        );
        assert_eq!(
            mask("ephemeralOwner = 0xff0000000036ee80", "h:1"),
            "ephemeralOwner = 0xff0000000036ee80"
        );
        assert_eq!(mask("ephemeralOwner = 0x0", "h:1"), "ephemeralOwner = 0x0");
    }
}
