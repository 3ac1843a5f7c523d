//! The output of commands: records as text (for people, and for scripts written for zkCli) or as
//! JSON.
//!
//! A record is a value with a text form and a JSON form. Results are written to standard output; in
//! text mode, what zkCli writes to standard error (notes, and `Created /x`) is written there. In
//! JSON mode each record is one object on one line. Output is buffered until the command ends,
//! except on a terminal.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::ExternalPrinter;
use serde::Serialize;
use serde_json::json;

use super::failure::{Failure, Outcome};

/// A cheap handle. Events are printed through a clone of it while a command runs or a line is
/// typed.
#[derive(Clone)]
pub struct Output {
    json: bool,
    streams: Arc<Mutex<Streams>>,
    /// Prints above the line that is being typed; set in an interactive shell only. It may block
    /// while the line editor is busy, so it has its own lock, which only the thread that prints
    /// events takes.
    above_prompt: Arc<Mutex<Option<Box<dyn ExternalPrinter + Send>>>>,
}

struct Streams {
    stdout: BufWriter<Stdout>,
    terminal: bool,
}

impl Streams {
    /// Flushes the output if it is a terminal.
    fn settle(&mut self) -> Outcome {
        if self.terminal {
            self.stdout.flush()?;
        }
        Ok(())
    }
}

impl Output {
    pub fn new(json: bool) -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let streams = Streams { stdout: BufWriter::new(stdout), terminal };
        Output { json, streams: Arc::new(Mutex::new(streams)), above_prompt: Arc::default() }
    }

    /// Returns a handle to the same streams, in JSON mode or not.
    pub fn with_json(&self, json: bool) -> Output {
        Output { json, ..self.clone() }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result.
    pub fn emit<R: Display + Serialize>(&self, record: &R) -> Outcome {
        if self.json {
            return self.emit_json(record);
        }
        let mut streams = self.streams();
        writeln!(streams.stdout, "{record}")?;
        streams.settle()
    }

    /// Prints bytes unchanged, without a line end.
    pub fn raw(&self, bytes: &[u8]) -> Outcome {
        let mut streams = self.streams();
        streams.stdout.write_all(bytes)?;
        streams.settle()
    }

    /// Prints a result that has no text form. The caller has checked that JSON mode is on.
    pub fn emit_json<R: Serialize>(&self, record: &R) -> Outcome {
        let mut streams = self.streams();
        serde_json::to_writer(&mut streams.stdout, record).map_err(io::Error::from)?;
        streams.stdout.write_all(b"\n")?;
        streams.settle()
    }

    /// Prints a result that zkCli writes to standard error; in JSON mode it is written to standard
    /// output.
    pub fn emit_aside<R: Display + Serialize>(&self, record: &R) -> Outcome {
        if self.json {
            return self.emit(record);
        }
        self.to_stderr(&record.to_string())
    }

    /// Prints text for people: never on standard output, and not in JSON mode.
    pub fn note(&self, text: impl Display) -> Outcome {
        if self.json {
            return Ok(());
        }
        self.to_stderr(&text.to_string())
    }

    /// Prints the failure of a command. A failure to write it is ignored.
    pub fn error(&self, failure: &Failure, usage: &str) {
        let text = match self.json {
            false => failure.text(usage),
            true => json!(failure.record(usage)).to_string(),
        };
        let _ = self.to_stderr(&text);
    }

    /// Prints an event, at any time. Only called by the thread that prints events.
    pub fn event<R: Display + Serialize>(&self, record: &R) {
        let text = match (self.json, serde_json::to_string(record)) {
            (true, Ok(text)) => text + "\n",
            _ => format!("{record}\n"),
        };
        // A closed output is detected by the next command.
        let _ = self.streams().stdout.flush();
        if let Some(printer) = &mut *lock(&self.above_prompt)
            && printer.print(text.clone()).is_ok()
        {
            return;
        }
        let mut streams = self.streams();
        let _ = streams.stdout.write_all(text.as_bytes());
        let _ = streams.stdout.flush();
    }

    /// Prints an event to standard error, apart from the results.
    pub fn event_aside<R: Display + Serialize>(&self, record: &R) {
        let text = match (self.json, serde_json::to_string(record)) {
            (true, Ok(text)) => text,
            _ => record.to_string(),
        };
        let _ = self.to_stderr(&text);
    }

    /// Flushes the buffered output; for commands that run until they are interrupted.
    pub fn flush(&self) -> Outcome {
        Ok(self.streams().stdout.flush()?)
    }

    /// Sets the printer that prints events above the prompt.
    pub fn print_above_prompt(&self, printer: Box<dyn ExternalPrinter + Send>) {
        *lock(&self.above_prompt) = Some(printer);
    }

    /// Writes to standard error. Flushes standard output first, so that a reader of both sees the
    /// right order.
    fn to_stderr(&self, text: &str) -> Outcome {
        let mut streams = self.streams();
        streams.stdout.flush()?;
        // A closed standard error must not fail the command.
        let _ = writeln!(io::stderr(), "{text}");
        Ok(())
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.streams)
    }
}

/// Locks a mutex and ignores poisoning: a panic in another thread leaves the data usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("json", &self.json).finish_non_exhaustive()
    }
}

/// A record that consists of one line of text; `{"message": …}` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    pub message: String,
}

impl Message {
    pub fn new(message: impl Into<String>) -> Message {
        Message { message: message.into() }
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
