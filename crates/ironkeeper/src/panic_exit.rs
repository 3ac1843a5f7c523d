//! A panic ends the server's process.
//!
//! What is in memory after a panic is not to be relied on, and a server that only looks alive is
//! worse than none: its clients wait, and in an ensemble the other members do not elect a new
//! leader. What was acknowledged is in the log, and the next start recovers from it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::time::Duration;

use ironkeeper_server::panics;

use crate::journal;

/// `EX_SOFTWARE` of `sysexits.h`. Not an abort: that would write the whole memory, with all data
/// and passwords, to a core file on many systems, and keep the port and the lock for as long as
/// that takes.
const EXIT_CODE: i32 = 70;
/// How long the message may take to leave, if nothing reads standard error.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(2);

/// From now on a panic on any thread prints thread, place and reason to standard error and ends the
/// process, on that thread and before any of its locks is released.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        // Standard error may be a pipe that is full and never read.
        let _ = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(MESSAGE_PATIENCE);
            std::process::abort();
        });
        let trace = Backtrace::capture();
        let trace = match trace.status() {
            BacktraceStatus::Captured => format!("{trace}"),
            _ => String::new(),
        };
        journal::print_error(&format!(
            "error: {}\n  This is a bug in Ironkeeper; the process ends. Everything it has acknowledged is \
             in its log: start it again.\n{trace}",
            panics::describe(info),
        ));
        std::process::exit(EXIT_CODE);
    }));
}
