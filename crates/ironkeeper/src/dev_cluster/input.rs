//! The source of a cluster's commands: a prompt with completion and history, or a pipe.

use std::io::{IsTerminal, stdin};

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use tokio::sync::mpsc;

use super::command::NAMES;
use ironkeeper_shell::line_editor::{self, LineEditor, Typed};

const PROMPT: &str = "cluster> ";
/// The name of the history file.
const HISTORY: &str = "dev-cluster-history";

#[derive(Debug)]
pub enum Input {
    Prompt(LineEditor<String>),
    Pipe(mpsc::Receiver<String>),
}

impl Input {
    /// Opens standard input. Completion offers the ids in `servers`.
    pub fn open(servers: Vec<i64>) -> Input {
        if !stdin().is_terminal() {
            return Input::Pipe(read_lines());
        }
        let settings = line_editor::Settings {
            history: line_editor::state_file(HISTORY),
            is_kept: |line| !line.trim().is_empty(),
            colour: false,
        };
        // The printer is dropped: nothing is printed while a line is typed.
        Input::Prompt(LineEditor::start(ClusterHelper { servers }, settings, drop))
    }

    /// Returns the next line, or `None` at the end of the input or at Ctrl-C.
    pub async fn next(&mut self) -> Option<String> {
        match self {
            Input::Pipe(lines) => lines.recv().await,
            Input::Prompt(editor) => match editor.line(PROMPT.to_owned()).await {
                Typed::Line(line) => Some(line),
                Typed::Interrupted | Typed::End => None,
            },
        }
    }

    /// Closes the input. Must not be called while [`Input::next`] is pending.
    pub fn close(self) {
        if let Input::Prompt(editor) = self {
            editor.close();
        }
    }

    /// Closes the input after a pending [`Input::next`] was dropped.
    pub fn abandon(self) {
        if let Input::Prompt(editor) = self {
            editor.abandon();
        }
    }
}

/// Reads the lines of standard input until it ends.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    // A thread that blocks on standard input cannot be interrupted; it ends with the process.
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Completes commands and the numbers of servers.
#[derive(Debug)]
struct ClusterHelper {
    servers: Vec<i64>,
}

impl ClusterHelper {
    /// Returns the start of the last word of the line, and its completions.
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let mut letters = line.char_indices().rev();
        let blank = letters.find(|(_, letter)| letter.is_whitespace());
        let start = blank.map_or(0, |(at, blank)| at + blank.len_utf8());
        let word = &line[start..];
        let words: Vec<String> = match line[..start].split_whitespace().collect::<Vec<_>>()[..] {
            [] => NAMES.iter().map(|(name, _)| format!("{name} ")).collect(),
            [command] if NAMES.contains(&(command, true)) => {
                self.servers.iter().map(i64::to_string).collect()
            }
            _ => Vec::new(),
        };
        (start, words.into_iter().filter(|candidate| candidate.starts_with(word)).collect())
    }
}

impl Completer for ClusterHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(&line[..pos]))
    }
}

impl Hinter for ClusterHelper {
    type Hint = String;
}

impl Highlighter for ClusterHelper {}
impl Validator for ClusterHelper {}
impl Helper for ClusterHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_and_behind_them_servers() {
        let helper = ClusterHelper { servers: vec![1, 2, 12] };
        let complete = |line: &str| {
            let (start, words) = helper.candidates(line);
            (start, words.join("|"))
        };
        assert_eq!(complete("sta"), (0, "status |start ".to_owned()));
        assert_eq!(complete("kill "), (5, "1|2|12".to_owned()));
        assert_eq!(complete("  log 1"), (6, "1|12".to_owned()));
        assert_eq!(complete("status "), (7, String::new()));
        assert_eq!(complete("log 1 "), (6, String::new()));
        assert_eq!(complete("log\u{a0}ü"), (5, String::new()));
    }
}
