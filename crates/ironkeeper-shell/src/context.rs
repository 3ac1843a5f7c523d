//! The context of a command: the session, the output, the history, and the mode of the shell.

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
    /// The output of results; JSON if requested for the shell or for this command.
    pub out: Output,
    pub session: Session,
    pub history: History,
    /// `--yes`: commands do not ask for confirmation.
    pub yes: bool,
    pub terminal: Terminal,
    /// Whether a user types the commands. False for a single command and for commands from a pipe.
    pub interactive: bool,
    /// Whether commands are read from standard input, typed or from a pipe. If so, no data can be
    /// read from it.
    pub reads_commands: bool,
    /// The node that relative paths start from, if `cd` was used.
    pub directory: Option<String>,
    /// Whether the shell ends after the first command that fails.
    pub stops_on_error: bool,
    /// The exit status of the last command.
    pub status: u8,
    /// The exit status of the first command that failed, which is the status of a script.
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

    /// Returns whether standard output may be coloured.
    pub fn colour(&self) -> bool {
        self.stdout && Colours::allowed()
    }
}

impl Context {
    /// Returns the client of the session, or an error if there is no session.
    pub fn client(&self) -> Outcome<Client> {
        self.session.client()
    }

    /// Returns whether commands come from a pipe: a script, possibly written for zkCli.
    pub fn is_script(&self) -> bool {
        self.reads_commands && !self.interactive
    }

    /// Prints advice on standard error. Not in JSON mode, and not for scripts, whose output should
    /// equal that of zkCli.
    pub fn hint(&self, text: impl std::fmt::Display) -> Outcome {
        if self.is_script() { Ok(()) } else { self.out.note(text) }
    }

    /// Returns the colour setting of results.
    pub fn colours(&self) -> Colours {
        Colours::when(self.terminal.colour() && !self.out.is_json())
    }

    /// Asks for confirmation before an irreversible change. Without a terminal, or with `--yes`,
    /// the change is confirmed without asking.
    pub async fn confirm(&self, question: &str) -> Outcome {
        let asks = self.terminal.stdin && self.terminal.stderr && !self.yes;
        if !asks || confirm::ask(question).await? {
            return Ok(());
        }
        Err(Failure::message("Nothing was done"))
    }
}
