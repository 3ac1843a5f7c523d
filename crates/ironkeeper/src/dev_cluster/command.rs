//! The commands of a dev cluster.

pub const HELP: &str = "\
commands status | kill N (as kill -9) | stop N | start N | pause N | resume N | log N [LINES] | help | quit";

/// The commands that completion offers, and whether a server number follows.
pub const NAMES: [(&str, bool); 9] = [
    ("status", false),
    ("kill", true),
    ("stop", true),
    ("start", true),
    ("pause", true),
    ("resume", true),
    ("log", true),
    ("help", false),
    ("quit", false),
];

/// The default number of log lines that are printed.
const LOG_LINES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Status,
    /// Ends the process immediately with SIGKILL.
    Kill(i64),
    Stop(i64),
    Start(i64),
    /// Suspends the process: its connections stay open, but it does not reply.
    Pause(i64),
    Resume(i64),
    /// Prints the last lines of the log.
    Log(i64, usize),
    Help,
    Quit,
}

/// Parses a line. Returns `None` for an empty line, and an error message for an unknown command.
pub fn parse(line: &str) -> Result<Option<Command>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| format!("{text:?} is not the number of a server"))
    };
    Ok(Some(match words[..] {
        [] => return Ok(None),
        ["status" | "s"] => Command::Status,
        ["kill" | "k", id] => Command::Kill(number(id)?),
        ["stop", id] => Command::Stop(number(id)?),
        ["start", id] => Command::Start(number(id)?),
        ["pause", id] => Command::Pause(number(id)?),
        ["resume", id] => Command::Resume(number(id)?),
        ["log", id] => Command::Log(number(id)?, LOG_LINES),
        ["log", id, lines] => {
            let count = lines.parse().map_err(|_| format!("{lines:?} is not a number of lines"))?;
            Command::Log(number(id)?, count)
        }
        ["help" | "h" | "?"] => Command::Help,
        ["quit" | "q" | "exit"] => Command::Quit,
        _ => return Err(format!("not understood: {}\n{HELP}", words.join(" "))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_offers_commands_that_are_understood_and_in_the_help() {
        for (name, takes_server) in NAMES {
            let line = if takes_server { format!("{name} 1") } else { name.to_owned() };
            assert!(matches!(parse(&line), Ok(Some(_))), "{line}");
            assert!(HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn lines_are_read() {
        for (line, expected) in [
            ("", Ok(None)),
            (" status ", Ok(Some(Command::Status))),
            ("kill 3", Ok(Some(Command::Kill(3)))),
            ("k 2", Ok(Some(Command::Kill(2)))),
            ("q", Ok(Some(Command::Quit))),
            ("log 1", Ok(Some(Command::Log(1, 20)))),
            ("log 1 5", Ok(Some(Command::Log(1, 5)))),
            ("kill x", Err("\"x\" is not the number of a server".to_owned())),
            ("kill", Err(format!("not understood: kill\n{HELP}"))),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
