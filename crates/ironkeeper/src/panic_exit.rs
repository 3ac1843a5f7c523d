//! Ends the server process on a panic.
//!
//! After a panic the state in memory cannot be trusted. A server that only appears to run is worse
//! than no server: its clients wait, and in an ensemble the other members do not elect a new
//! leader. Acknowledged transactions are in the log, and the next start recovers them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::time::Duration;

use ironkeeper_server::panics;

use crate::journal;

/// `EX_SOFTWARE` of `sysexits.h`. Not an abort: on many systems that would write the whole memory,
/// with all data and passwords, to a core file, and hold the port and the lock for as long as that
/// takes.
const EXIT_CODE: i32 = 70;
/// How long writing the message may take if standard error is not read.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(2);

/// Installs a panic hook. A panic on any thread prints thread, location and reason to standard
/// error and ends the process, on that thread and before any of its locks is released.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        // Standard error may be a full pipe that is never read.
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
