//! The text that servers have logged since a moment.

use std::fs;
use std::path::{Path, PathBuf};

/// Positions in the logs of some servers.
#[derive(Debug)]
pub struct Marks(Vec<(PathBuf, usize)>);

impl Marks {
    /// Marks the present ends of the logs.
    pub fn at_end<'a>(logs: impl IntoIterator<Item = &'a Path>) -> Marks {
        Marks(logs.into_iter().map(|log| (log.to_owned(), read(log).len())).collect())
    }

    /// Returns the text after the marks.
    pub fn since(&self) -> String {
        let parts = self.0.iter().map(|(log, from)| {
            let bytes = read(log);
            String::from_utf8_lossy(bytes.get(*from..).unwrap_or_default()).into_owned()
        });
        parts.collect()
    }
}

fn read(log: &Path) -> Vec<u8> {
    fs::read(log).unwrap_or_default()
}

/// Returns the lines that report a panic, which no input may cause.
pub fn panics(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.contains("panicked at"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_behind_the_marks_count_in_all_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, "started\n").unwrap();
        let marks = Marks::at_end([one.as_path(), two.as_path()]);
        assert_eq!(marks.since(), "");
        fs::write(&one, "started\nrefused a\nrefused b\n").unwrap();
        fs::write(&two, "thread 'io' panicked at src/lib.rs:1\n").unwrap();
        let text = marks.since();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(panics(&text).count(), 1);
    }
}
