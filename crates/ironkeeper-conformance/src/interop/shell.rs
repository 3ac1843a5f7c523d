//! Our own shell, compared with the recording of Apache's shell: the same session gives the same
//! output, except for the differences listed here with their reasons.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use ironkeeper_steps::repo;

use super::transcript::{self, Step};
use super::{Lab, Tally, shell_session};

/// A command whose output differs from that of Apache's shell on purpose.
struct Difference {
    command: &'static str,
    /// The index among equal commands of the session, from zero.
    nth: usize,
    /// The output of our shell.
    ours: &'static [&'static str],
    why: &'static str,
}

const fn differs(
    command: &'static str,
    nth: usize,
    ours: &'static [&'static str],
    why: &'static str,
) -> Difference {
    Difference { command, nth, ours, why }
}

const UNKNOWN_COMMAND: &str =
    "one line that names the command once, and where to find the others; the status is the same";
const JAVA_CLASS: &str = "a Java class name tells nothing; the usage does";
const STICKY_MODE: &str =
    "zkCli takes the mode of the last addWatch where none is given, whatever its usage says";
const NEEDS_NO_SESSION: &str =
    "printwatches needs no connection, so it does not complain of a missing one";

const ACL_UNDERSTOOD: &str =
    "zkCli sets what is left of the list, here no permissions at all, and locks the node for all";

const DIFFERENCES: &[Difference] = &[
    differs(
        "(start)",
        0,
        &[
            "Connecting to $ADDRESS",
            "Welcome to Ironkeeper! Type help for the commands.",
            "WatchedEvent state:SyncConnected type:None path:null zxid: -1",
        ],
        "the name; and there is no Java line editor to tell of",
    ),
    differs(
        "create -x /app/x",
        0,
        &["Unrecognized option: -x", "create [-s] [-e] [-c] [-t ttl] path [data] [acl]"],
        JAVA_CLASS,
    ),
    differs(
        "setAcl /own world:anyone:xyz",
        0,
        &[
            "Unknown perm type: x",
            "Unknown perm type: y",
            "Unknown perm type: z",
            "Acl is not valid : null",
        ],
        ACL_UNDERSTOOD,
    ),
    differs(
        "setquota /q",
        0,
        &["Missing required option: one of -n, -b, -N, -B", "setquota -n|-b|-N|-B val path"],
        JAVA_CLASS,
    ),
    differs(
        "create /tree/x",
        0,
        &[
            "Created /tree/x",
            "WatchedEvent state:SyncConnected type:NodeCreated path:/tree/x zxid: 40",
        ],
        STICKY_MODE,
    ),
    differs(
        "nonsense",
        0,
        &["Command not found: nonsense", "Type help for the commands."],
        UNKNOWN_COMMAND,
    ),
    differs(
        "version",
        0,
        &["Ironkeeper CLI version: <version>, compatible with ZooKeeper CLI version: 3.9.5"],
        "it is another program",
    ),
    differs("ls /", 2, &["Not connected"], NEEDS_NO_SESSION),
    differs(
        "connect $ADDRESS",
        0,
        &["WatchedEvent state:SyncConnected type:None path:null zxid: -1"],
        NEEDS_NO_SESSION,
    ),
    differs(
        "$ zkCli create /script",
        0,
        &["/script", "stderr: Created /script", "exit status 0"],
        "a script reads the path that was created, which may have a number, from standard output",
    ),
    differs(
        "$ zkCli nonsense",
        0,
        &[
            "stderr: Command not found: nonsense",
            "stderr: Type help for the commands.",
            "exit status 127",
        ],
        UNKNOWN_COMMAND,
    ),
];

/// The line that Apache's shell prints before the result of a single command. Ours omits it, so
/// that `$(... get /x)` is the data.
const CONNECTING: &str = "Connecting to $ADDRESS";

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    // The shell under test is ours, on either server.
    let binary = lab.binary.context("no ironkeeper binary was built")?;
    let recording = repo::interop("zkcli/session.expected.txt");
    let text = fs::read_to_string(&recording)
        .with_context(|| format!("cannot read {}", recording.display()))?;
    let mut wanted = transcript::parse(&text);
    let unused = apply_differences(&mut wanted);

    let server = lab.server(|setup| setup)?;
    let address = server.address();
    let shell = || {
        let mut shell = Command::new(binary);
        shell.args(["shell", "-server", &address]);
        shell
    };
    // The number of expected events, which differs from the recording for some commands.
    let events = |number: usize, _| {
        let lines = wanted.get(number).map_or(&[][..], |step| &step.lines);
        lines.iter().filter(|line| line.starts_with("WatchedEvent ")).count()
    };
    let mut steps = shell_session::play(shell, &address, events, &lab.dir)?;
    for line in steps.iter_mut().flat_map(|step| &mut step.lines) {
        *line = transcript::mask(line, "Ironkeeper CLI version: ", "<version>", |c| c != ',');
    }
    let mut tally = transcript::check(&wanted, &steps);
    for difference in unused {
        let why =
            format!("is listed as different ({}), but there is no such command", difference.why);
        tally.check(difference.command, Err(why));
    }
    println!("   {} differences are listed, each with its reason", DIFFERENCES.len() + 1);
    Ok(tally)
}

/// Changes the recording into the expected output of our shell; returns the differences whose
/// command does not occur.
fn apply_differences(wanted: &mut [Step]) -> Vec<&'static Difference> {
    for step in wanted.iter_mut().filter(|step| step.title.starts_with("$ ")) {
        step.lines.retain(|line| line != CONNECTING);
    }
    let mut unused = Vec::new();
    for difference in DIFFERENCES {
        let mut same = wanted.iter_mut().filter(|step| step.title == difference.command);
        let ours = || difference.ours.iter().map(|line| (*line).to_owned());
        match same.nth(difference.nth) {
            Some(step) if !ours().eq(step.lines.iter().cloned()) => step.lines = ours().collect(),
            _ => unused.push(difference),
        }
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_difference_is_one() {
        let text = fs::read_to_string(repo::interop("zkcli/session.expected.txt")).unwrap();
        let mut wanted = transcript::parse(&text);
        let unused = apply_differences(&mut wanted);
        let names: Vec<&str> = unused.iter().map(|difference| difference.command).collect();
        assert!(names.is_empty(), "{names:?}");
        assert!(DIFFERENCES.iter().all(|difference| !difference.why.is_empty()));
    }
}
