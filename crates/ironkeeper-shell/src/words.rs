//! Splits a typed line into words, as zkCli does: blanks separate, single or double quotes group.
//!
//! A quote groups only at the start of a word (`it's` is a word), and there are no escapes. A quote
//! that is not closed is an error here; zkCli drops it and splits the rest, and so stores only a
//! part of the intended data.

use thiserror::Error;

/// The error of a line that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WordsError {
    #[error("unclosed quote {quote} at column {column}")]
    UnclosedQuote { quote: char, column: usize },
}

/// Returns the words of a line.
pub fn split(line: &str) -> Result<Vec<String>, WordsError> {
    let (words, open) = scan(line);
    match open {
        Some((at, quote)) => {
            Err(WordsError::UnclosedQuote { quote, column: line[..at].chars().count() + 1 })
        }
        None => Ok(words.into_iter().map(|word| word.text.to_owned()).collect()),
    }
}

/// Returns the words before the unfinished word at the end of a line, the position at which that
/// word starts, including its opening quote, and its text.
pub fn unfinished(line: &str) -> (Vec<&str>, usize, &str) {
    let (mut words, open) = scan(line);
    let (start, text) = match open {
        Some((at, _)) => (at, &line[at + 1..]),
        None => match words.last() {
            Some(last) if last.end == line.len() && !last.quoted => {
                let last = words.pop().expect("there is a last word");
                (last.start, last.text)
            }
            _ => (line.len(), ""),
        },
    };
    (words.into_iter().map(|word| word.text).collect(), start, text)
}

struct Word<'a> {
    text: &'a str,
    start: usize,
    end: usize,
    quoted: bool,
}

/// Returns the finished words, and the position of a quote that is not closed.
fn scan(line: &str) -> (Vec<Word<'_>>, Option<(usize, char)>) {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(skipped) = line[at..].find(|c| !is_blank(c)) {
        let start = at + skipped;
        let first = line[start..].chars().next().expect("something was found here");
        let end;
        if first == '"' || first == '\'' {
            let Some(length) = line[start + 1..].find(first) else {
                return (words, Some((start, first)));
            };
            end = start + 1 + length + 1;
            words.push(Word { text: &line[start + 1..end - 1], start, end, quoted: true });
        } else {
            end = line[start..].find(is_blank).map_or(line.len(), |length| start + length);
            words.push(Word { text: &line[start..end], start, end, quoted: false });
        }
        at = end;
    }
    (words, None)
}

/// Returns whether Java's `\s` matches the character.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// Returns a word as it must be typed to be parsed as one word; `None` if it cannot be quoted.
pub fn quote(word: &str) -> Option<String> {
    let plain = !word.is_empty() && !word.contains(is_blank) && !word.starts_with(['"', '\'']);
    if plain {
        return Some(word.to_owned());
    }
    ['"', '\''].into_iter().find(|quote| !word.contains(*quote)).map(|q| format!("{q}{word}{q}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, words: &[&str]) {
        assert_eq!(split(line).unwrap(), words, "{line:?}");
    }

    #[test]
    fn blanks_separate_and_quotes_group() {
        check("", &[]);
        check("   ", &[]);
        check("ls /", &["ls", "/"]);
        check("  ls\t/a  ", &["ls", "/a"]);
        check("create /a \"two words\"", &["create", "/a", "two words"]);
        check("create /a 'it is \"quoted\"'", &["create", "/a", "it is \"quoted\""]);
        check("set /a \"\"", &["set", "/a", ""]);
        check("set /a it's", &["set", "/a", "it's"]);
        check("set /a {\"k\":1}", &["set", "/a", "{\"k\":1}"]);
        check("set /a \"b\"c", &["set", "/a", "b", "c"]);
        check("set /\u{e4} \u{4e2d} \u{a0}", &["set", "/\u{e4}", "\u{4e2d}", "\u{a0}"]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_an_error() {
        assert_eq!(
            split("set /\u{e4} \"half"),
            Err(WordsError::UnclosedQuote { quote: '"', column: 8 })
        );
    }

    #[test]
    fn the_word_under_the_cursor_is_found() {
        assert_eq!(unfinished(""), (vec![], 0, ""));
        assert_eq!(unfinished("ge"), (vec![], 0, "ge"));
        assert_eq!(unfinished("get "), (vec!["get"], 4, ""));
        assert_eq!(unfinished("get -s /a"), (vec!["get", "-s"], 7, "/a"));
        assert_eq!(unfinished("get \"/a b"), (vec!["get"], 4, "/a b"));
        assert_eq!(unfinished("get \"/a b\""), (vec!["get", "/a b"], 10, ""));
    }

    #[test]
    fn quoted_words_are_read_back() {
        for word in ["a", "", "a b", "it's", "'a", "\"a b\"", "a 'b"] {
            let quoted = quote(word).unwrap();
            assert_eq!(split(&quoted).unwrap(), [word], "{quoted}");
        }
        assert_eq!(quote("a 'b' \"c\""), None);
    }
}
