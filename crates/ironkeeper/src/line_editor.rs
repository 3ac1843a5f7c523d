//! A prompt with history and completion, for a program whose work runs on an asynchronous runtime.
//!
//! The line editor blocks, so it has a thread of its own. A prompt travels to that thread, and the
//! line that was typed travels back.

use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, ExternalPrinter, Helper, Prompt};
use tokio::sync::mpsc;

const HISTORY_LINES_MAX: usize = 1000;

/// What came of a prompt.
#[derive(Debug)]
pub enum Typed {
    Line(String),
    /// Ctrl-C: the line is thrown away.
    Interrupted,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// How lines are edited and kept.
#[derive(Debug)]
pub struct Settings {
    /// Where lines are kept between two runs.
    pub history: Option<PathBuf>,
    /// Whether a line may be kept, in memory and in the file.
    pub is_kept: fn(&str) -> bool,
    pub colour: bool,
}

/// See the head of this file. Prompts are of type `P`.
#[derive(Debug)]
pub struct LineEditor<P> {
    prompts: std_mpsc::Sender<P>,
    lines: mpsc::Receiver<Typed>,
    thread: JoinHandle<()>,
    /// The modes of the terminal while no line is edited.
    #[cfg(unix)]
    modes: Option<rustix::termios::Termios>,
}

impl<P: Prompt + Send + 'static> LineEditor<P> {
    /// Starts the thread. `ready` is called with a printer of lines above the prompt, if there is
    /// one.
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
                // Not there the first time.
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
                // A home that cannot be written to costs the history, nothing else.
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

    /// Shows a prompt and waits for what is typed.
    pub async fn line(&mut self, prompt: P) -> Typed {
        match self.prompts.send(prompt) {
            Ok(()) => self.lines.recv().await.unwrap_or(Typed::End),
            Err(_) => Typed::End,
        }
    }

    /// Gives the terminal its modes back while a prompt is shown. The thread waits for a key and
    /// ends with the process; the history of this run is not written.
    #[cfg(unix)]
    pub fn abandon(self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(modes) = &self.modes {
            // The terminal may be gone.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
        }
    }

    #[cfg(not(unix))]
    pub fn abandon(self) {}

    /// Ends the thread, which writes the history. Not while a prompt is shown: the thread waits for
    /// a key then.
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

/// The file with this name in the directory for state that XDG names.
pub fn state_file(name: &str) -> Option<PathBuf> {
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("ironkeeper").join(name))
}

/// A path in a variable of the environment that is set and not empty.
pub fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
