//! Timestamps of log lines.

use std::fmt::Result;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The time of a log line: RFC 3339, in UTC, with milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct UtcMillis;

impl FormatTime for UtcMillis {
    fn format_time(&self, writer: &mut Writer<'_>) -> Result {
        write!(writer, "{:.3}", jiff::Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_milliseconds_and_the_zone_utc() {
        let mut text = String::new();
        UtcMillis.format_time(&mut Writer::new(&mut text)).expect("a string has room");
        assert_eq!(text.len(), "2026-01-31T23:59:59.123Z".len(), "{text}");
        assert!(text.contains('T') && text.ends_with('Z'), "{text}");
    }
}
