//! Support for standard error that is connected to the systemd journal.
//!
//! The journal adds a timestamp to each line and reads the priority from a prefix `<N>`
//! (`sd-daemon(3)`), so lines have this prefix there, and text has no timestamp of its own.

use std::fmt::{Debug, Result};
use std::sync::LazyLock;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

static CONNECTED: LazyLock<bool> = LazyLock::new(|| {
    std::env::var("JOURNAL_STREAM").is_ok_and(|named| stderr_name() == Some(named))
});

/// Returns whether standard error is the stream that `JOURNAL_STREAM` names. Processes whose
/// standard error is redirected inherit the variable, too.
pub fn is_connected() -> bool {
    *CONNECTED
}

/// Returns device and inode of standard error, in the format of `JOURNAL_STREAM`.
#[cfg(unix)]
fn stderr_name() -> Option<String> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
    let metadata = std::fs::File::from(stderr).metadata().ok()?;
    Some(format!("{}:{}", metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn stderr_name() -> Option<String> {
    None
}

/// Prints the error that ends the process, to standard error.
pub fn print_error(text: &str) {
    match is_connected() {
        true => eprint!("{}", prefixed(Level::ERROR, text)),
        false => eprintln!("{}", text.trim_end()),
    }
}

/// The format `F`, with the priority in front of each line.
#[derive(Debug)]
pub struct Prioritized<F>(pub F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        // Level names are padded with a leading blank for alignment.
        writer.write_str(&prefixed(*event.metadata().level(), text.trim_start()))
    }
}

/// Adds the prefix to each line, because the journal makes each line an entry.
fn prefixed(level: Level, text: &str) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority_of_its_level() {
        assert_eq!(prefixed(Level::ERROR, "a\n  b\n"), "<3>a\n<3>  b\n");
        let priorities = [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let lines = priorities.map(|level| prefixed(level, "x"));
        assert_eq!(lines.concat(), "<4>x\n<6>x\n<7>x\n<7>x\n");
    }
}
