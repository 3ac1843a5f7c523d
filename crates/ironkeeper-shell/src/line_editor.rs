//! A prompt with history and completion, for a program that runs on an asynchronous runtime.
//!
//! The line editor blocks, so it runs on its own thread. Channels carry prompts to that thread and
//! typed lines back.

use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, ExternalPrinter, Helper, Prompt};
use tokio::sync::mpsc;

const HISTORY_LINES_MAX: usize = 1000;

/// The result of a prompt.
#[derive(Debug)]
pub enum Typed {
    Line(String),
    /// Ctrl-C: the line is discarded.
    Interrupted,
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// The settings of a line editor.
#[derive(Debug)]
pub struct Settings {
    /// The file in which lines are kept between runs.
    pub history: Option<PathBuf>,
    /// Decides whether a line may be kept, in memory and in the file.
    pub is_kept: fn(&str) -> bool,
    pub colour: bool,
}

/// A line editor on its own thread, see the head of this file. `P` is the type of the prompts.
#[derive(Debug)]
pub struct LineEditor<P> {
    prompts: std_mpsc::Sender<P>,
    lines: mpsc::Receiver<Typed>,
    thread: JoinHandle<()>,
    /// The terminal modes while no line is edited.
    #[cfg(unix)]
    modes: Option<rustix::termios::Termios>,
}

impl<P: Prompt + Send + 'static> LineEditor<P> {
    /// Starts the thread. Calls `ready` with a printer that prints lines above the prompt, if the
    /// editor can create one.
    pub fn start<H: Helper + Send + 'static>(
        helper: H,
        settings: Settings,
        ready: impl FnOnce(Box<dyn ExternalPrinter + Send>) + Send + 'static,
    ) -> LineEditor<P> {
        #[cfg(unix)]
        let modes = rustix::termios::tcgetattr(std::io::stdin()).ok();
        let (prompts, prompt) = std_mpsc::channel::<P>();
        let (typed, lines) = mpsc::channel(1);
        let thread = std::thread::spawn(move || {
            let mut editor = match editor(helper, settings.colour) {
                Ok(editor) => editor,
                Err(error) => {
                    eprintln!("cannot use the terminal: {error}");
                    return;
                }
            };
            if let Ok(printer) = editor.create_external_printer() {
                ready(Box::new(printer));
            }
            if let Some(file) = &settings.history {
                // The file does not exist in the first run.
                let _ = editor.load_history(file);
            }
            while let Ok(prompt) = prompt.recv() {
                let result = match editor.readline(&prompt) {
                    Ok(line) => {
                        if (settings.is_kept)(&line) {
                            let _ = editor.add_history_entry(&line);
                        }
                        Typed::Line(line)
                    }
                    Err(ReadlineError::Interrupted) => Typed::Interrupted,
                    Err(_) => Typed::End,
                };
                if typed.blocking_send(result).is_err() {
                    break;
                }
            }
            if let Some(file) = &settings.history {
                // If the home directory is not writable, only the history is lost.
                let _ = file.parent().map(std::fs::create_dir_all);
                let _ = editor.save_history(file);
            }
        });
        LineEditor {
            prompts,
            lines,
            thread,
            #[cfg(unix)]
            modes,
        }
    }

    /// Shows a prompt and waits for the typed line.
    pub async fn line(&mut self, prompt: P) -> Typed {
        match self.prompts.send(prompt) {
            Ok(()) => self.lines.recv().await.unwrap_or(Typed::End),
            Err(_) => Typed::End,
        }
    }

    /// Restores the terminal modes while a prompt is shown. The thread keeps waiting for a key and
    /// ends with the process; the history of this run is not saved.
    #[cfg(unix)]
    pub fn abandon(self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(modes) = &self.modes {
            // The terminal may be closed.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
        }
    }

    #[cfg(not(unix))]
    pub fn abandon(self) {}

    /// Ends the thread, which saves the history. Must not be called while a prompt is shown,
    /// because the thread then waits for a key.
    pub fn close(self) {
        drop(self.prompts);
        let _ = self.thread.join();
    }
}

fn editor<H: Helper>(helper: H, colour: bool) -> rustyline::Result<Editor<H, FileHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES_MAX)?
        .build();
    let mut editor = Editor::with_config(config)?;
    if !colour {
        editor.set_color_mode(ColorMode::Disabled);
    }
    editor.set_helper(Some(helper));
    Ok(editor)
}

/// Returns the path of a file in the XDG state directory.
pub fn state_file(name: &str) -> Option<PathBuf> {
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("ironkeeper").join(name))
}

/// Returns the path in an environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
