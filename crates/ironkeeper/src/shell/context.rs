//! What a command is given: the session, the output, the history, and how it was called.

use std::io::{IsTerminal, stderr, stdin, stdout};

use ironkeeper_client::Client;

use crate::colour::Colours;

use super::confirm;
use super::failure::{Failure, Outcome};
use super::history::History;
use super::output::Output;
use super::session::Session;

#[derive(Debug)]
pub struct Context {
    /// Where results go; in JSON if the shell or this command was told so.
    pub out: Output,
    pub session: Session,
    pub history: History,
    /// `--yes`: nothing is asked.
    pub yes: bool,
    pub terminal: Terminal,
    /// Whether a person types the commands. False for one command and for commands from a pipe.
    pub interactive: bool,
    /// Whether commands are read from standard input, by a person or from a pipe: then it has nothing else.
    pub reads_commands: bool,
    /// Where relative paths begin, if `cd` was used.
    pub directory: Option<String>,
    /// Whether the first command that fails is the last one.
    pub stops_on_error: bool,
    /// The exit status of the last command.
    pub status: u8,
    /// The exit status of the first command that failed, which is that of a script.
    pub first_failure: u8,
    /// Set by `quit`.
    pub quit: bool,
    /// Set by `redo`: the line to run next.
    pub again: Option<String>,
}

/// Which of the standard streams are terminals.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

impl Terminal {
    pub fn look() -> Terminal {
        Terminal {
            stdin: stdin().is_terminal(),
            stdout: stdout().is_terminal(),
            stderr: stderr().is_terminal(),
        }
    }

    /// Whether standard output may be coloured.
    pub fn colour(&self) -> bool {
        self.stdout && Colours::allowed()
    }
}

impl Context {
    /// The session's client, or the error of a command that needs one.
    pub fn client(&self) -> Outcome<Client> {
        self.session.client()
    }

    /// Whether commands come from a pipe: a script, perhaps one that was made for zkCli.
    pub fn is_script(&self) -> bool {
        self.reads_commands && !self.interactive
    }

    /// Prints advice on standard error: not in JSON, and not into the output of a script, which
    /// zkCli's compares to.
    pub fn hint(&self, text: impl std::fmt::Display) -> Outcome {
        if self.is_script() { Ok(()) } else { self.out.note(text) }
    }

    /// The colours of results.
    pub fn colours(&self) -> Colours {
        Colours::when(self.terminal.colour() && !self.out.is_json())
    }

    /// Asks before something that cannot be undone. Without a person at a terminal, or with `--yes`, the
    /// answer is yes: scripts know what they do.
    pub async fn confirm(&self, question: &str) -> Outcome {
        let asks = self.terminal.stdin && self.terminal.stderr && !self.yes;
        if !asks || confirm::ask(question).await? {
            return Ok(());
        }
        Err(Failure::message("Nothing was done"))
    }
}
