//! The commands of a session, numbered from 0, for `history` and `redo`.

use std::collections::VecDeque;

/// The number of commands that are kept; a script may be endless.
const LINES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct History {
    lines: VecDeque<String>,
    /// The number of the oldest line that is kept.
    first: usize,
}

impl History {
    pub fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.first += 1;
        }
        self.lines.push_back(line);
    }

    /// Returns the number of commands so far, which is the number of the next command.
    pub fn count(&self) -> usize {
        self.first + self.lines.len()
    }

    pub fn line(&self, number: usize) -> Option<&str> {
        self.lines.get(number.checked_sub(self.first)?).map(String::as_str)
    }

    /// Replaces the newest line: a `redo` is replaced by the command that it repeated.
    pub fn replace_last(&mut self, line: String) {
        if let Some(last) = self.lines.back_mut() {
            *last = line;
        }
    }

    /// Returns the newest lines with their numbers, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = (usize, &str)> {
        let skipped = self.lines.len().saturating_sub(count);
        (self.first + skipped..).zip(self.lines.iter().skip(skipped).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_when_old_lines_go() {
        let mut history = History::default();
        for number in 0..LINES_MAX + 5 {
            history.push(format!("ls /{number}"));
        }
        assert_eq!(history.count(), LINES_MAX + 5);
        assert_eq!(history.line(4), None);
        assert_eq!(history.line(5), Some("ls /5"));
        let last: Vec<_> = history.last(2).collect();
        assert_eq!(last, [(LINES_MAX + 3, "ls /10003"), (LINES_MAX + 4, "ls /10004")]);
    }
}
