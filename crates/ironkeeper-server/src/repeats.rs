//! Lines for the operator that would otherwise repeat themselves for as long as the trouble lasts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same line is said again after this long.
const PAUSE: Duration = Duration::from_secs(60);
/// Different lines that are remembered. With more of them all are forgotten, and may be said once more.
const LINES_MAX: usize = 64;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Repeats {
    said: Mutex<BTreeMap<String, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    /// How often it was kept back since.
    kept_back: u64,
}

impl Repeats {
    /// The line as it should be said now, or `None` if it was said a moment ago.
    pub fn line(&self, line: String, now: Instant) -> Option<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = said.get_mut(&line) {
            if now.saturating_duration_since(before.at) < PAUSE {
                before.kept_back += 1;
                return None;
            }
            let kept_back = std::mem::take(&mut before.kept_back);
            before.at = now;
            return Some(match kept_back {
                0 => line,
                more => format!("{line} (and {more} times since this was last said)"),
            });
        }
        if said.len() >= LINES_MAX {
            said.clear();
        }
        said.insert(line.clone(), Said { at: now, kept_back: 0 });
        Some(line)
    }

    /// Warns of trouble.
    pub fn warn(&self, line: String) {
        if let Some(line) = self.line(line, Instant::now()) {
            tracing::warn!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once_a_minute_with_the_count_of_those_kept_back() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let say = |line: &str, after: Duration| repeats.line(line.to_owned(), now + after);
        assert_eq!(say("a", Duration::ZERO).as_deref(), Some("a"));
        assert_eq!(say("a", PAUSE / 2), None);
        assert_eq!(say("b", PAUSE / 2).as_deref(), Some("b"), "another line is news");
        assert_eq!(say("a", PAUSE / 2), None);
        let again = say("a", PAUSE).expect("a minute has passed");
        assert_eq!(again, "a (and 2 times since this was last said)");
        assert_eq!(say("a", 2 * PAUSE).as_deref(), Some("a"));
    }

    #[test]
    fn no_more_is_remembered_however_many_lines_there_are() {
        let repeats = Repeats::default();
        for number in 0..10 * LINES_MAX {
            assert!(repeats.line(number.to_string(), Instant::now()).is_some());
        }
        assert!(repeats.said.lock().expect("nobody panics").len() <= LINES_MAX);
    }
}
