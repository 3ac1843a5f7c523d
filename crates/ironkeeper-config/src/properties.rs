//! Parser for the format of Java property files, in which `zoo.cfg` is written.
//!
//! The main rules: a key ends at the first `=`, `:` or blank that is not escaped; `#` and `!` start
//! a comment only as the first visible character of a line; an odd number of backslashes before a
//! line end joins the next line, whose leading blanks are dropped; `\uXXXX` is one UTF-16 unit.
//! Keys and values are trimmed, which ZooKeeper adds to the format.
//!
//! Every occurrence of a key is returned in file order. The caller decides how to handle a repeated
//! key, because it can report it to the user.

use thiserror::Error;

/// One `key = value` of a property file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unescaped and trimmed.
    pub key: String,
    /// Unescaped and trimmed. Empty if the line has a key only.
    pub value: String,
    /// Line of the file the entry begins on, from 1.
    pub line: usize,
    /// Whether the entry contains characters outside ASCII that are not written as `\uXXXX`. Java
    /// decodes the bytes as ISO-8859-1 and this parser as UTF-8, so the two may read different
    /// text.
    pub beyond_ascii: bool,
}

/// A line that is not in the format of property files.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    /// Line of the file the broken entry begins on, from 1.
    pub line: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Parses the whole text of a property file.
///
/// ```
/// use ironkeeper_config::properties;
///
/// let text = "# a comment\ntickTime = 2000\ndataDir: /var/lib/zk\n";
/// let entries = properties::parse(text).unwrap();
/// assert_eq!((entries[1].key.as_str(), entries[1].value.as_str()), ("dataDir", "/var/lib/zk"));
/// assert_eq!(entries[1].line, 3);
/// ```
pub fn parse(text: &str) -> Result<Vec<Entry>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries = Vec::new();
    let mut lines = NaturalLines { rest: text, number: 0 };
    while let Some((line, first)) = lines.next() {
        let first = trim_start(first);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = String::from(first);
        while ends_in_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(trim_start(next)),
                None => break,
            }
        }
        entries.push(entry(&logical, line)?);
    }
    Ok(entries)
}

/// Physical lines, ended by `\n`, `\r` or `\r\n`.
struct NaturalLines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Iterator for NaturalLines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let Some(end) = self.rest.find(['\n', '\r']) else {
            return Some((self.number, std::mem::take(&mut self.rest)));
        };
        let line = &self.rest[..end];
        let terminator = if self.rest[end..].starts_with("\r\n") { 2 } else { 1 };
        self.rest = &self.rest[end + terminator..];
        Some((self.number, line))
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn trim_start(line: &str) -> &str {
    line.trim_start_matches(is_blank)
}

fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

fn entry(logical: &str, line: usize) -> Result<Entry, SyntaxError> {
    let key_end = end_of_key(logical);
    let (key, rest) = logical.split_at(key_end);
    let rest = trim_start(rest);
    let value = trim_start(rest.strip_prefix(['=', ':']).unwrap_or(rest));
    Ok(Entry {
        key: java_trim(&unescape(key, line)?).to_owned(),
        value: java_trim(&unescape(value, line)?).to_owned(),
        line,
        beyond_ascii: !logical.is_ascii(),
    })
}

fn end_of_key(logical: &str) -> usize {
    let mut escaped = false;
    for (at, c) in logical.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':') || is_blank(c) {
            return at;
        }
    }
    logical.len()
}

/// Trims as Java does: all characters up to and including the space.
fn java_trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

fn unescape(text: &str, line: usize) -> Result<String, SyntaxError> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Escapes are UTF-16 units, and a character above U+FFFF consists of two of them. Collecting
    // the units and decoding once at the end joins them in every context.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = if c == '\\' {
            match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    units.push(unit(&digits, line)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => continue,
            }
        } else {
            c
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| SyntaxError {
        line,
        message: "a \\u escape names half of a surrogate pair; write both halves, or the \
                  character itself"
            .to_owned(),
    })
}

fn unit(digits: &str, line: usize) -> Result<u16, SyntaxError> {
    let all_hex = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    all_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten().ok_or_else(|| SyntaxError {
        line,
        message: format!(
            "\\u{digits} is not a character: \\u takes exactly four hexadecimal digits. \
             A backslash that is meant literally, as in a Windows path, is written twice"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the parsed `key=value` pairs.
    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let entries = parse(text).expect("the text is well formed");
        let read: Vec<_> = entries.iter().map(|e| (e.key.as_str(), e.value.as_str())).collect();
        assert_eq!(read, expected, "in {text:?}");
    }

    #[test]
    fn equals_colon_and_blank_all_separate_key_from_value() {
        check(
            "a=1\nb:2\nc 3\nd\t4\ne = 5\nf : 6\ng  =  7",
            &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", "6"), ("g", "7")],
        );
    }

    #[test]
    fn only_the_first_separator_separates() {
        check("server.1=h:2888:3888;2181", &[("server.1", "h:2888:3888;2181")]);
        check("a==b", &[("a", "=b")]);
        check("a = = b", &[("a", "= b")]);
        check("a b=c", &[("a", "b=c")]);
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_and_do_not_continue() {
        check(
            "# one \\\n! two\n\n   \t\n  # three\na=1 # not a comment\n",
            &[("a", "1 # not a comment")],
        );
    }

    #[test]
    fn every_kind_of_line_end_ends_a_line() {
        check("a=1\rb=2\r\nc=3\nd=4", &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    }

    #[test]
    fn odd_backslashes_join_the_next_line_without_its_indent() {
        check("list=a,\\\n     b,\\\r\n\tc", &[("list", "a,b,c")]);
        check("path=c\\\\\nnext=1", &[("path", "c\\"), ("next", "1")]);
        check("a=1\\\n# still the value", &[("a", "1# still the value")]);
        check("a=1\\", &[("a", "1")]);
        check("ke\\\n  y=1", &[("key", "1")]);
    }

    #[test]
    fn escapes_are_resolved_in_keys_and_values() {
        check(r"a\=b\:c\ d=1", &[("a=b:c d", "1")]);
        check(r"a=x\ty\nz\qw", &[("a", "x\ty\nzqw")]);
        check(r"a=\u0041\u00e9\uD83D\uDE00", &[("a", "A\u{e9}\u{1f600}")]);
        check(r"\#a=1", &[("#a", "1")]);
    }

    #[test]
    fn keys_and_values_are_trimmed_even_of_escaped_blanks() {
        check("  a  =  1 \t ", &[("a", "1")]);
        check("a=\\  1 \\ ", &[("a", "1")]);
    }

    #[test]
    fn a_key_alone_has_an_empty_value() {
        check("a\nb=\nc:", &[("a", ""), ("b", ""), ("c", "")]);
        check("=1", &[("", "1")]);
    }

    #[test]
    fn repeated_keys_are_all_reported_in_order() {
        check("a=1\na=2", &[("a", "1"), ("a", "2")]);
    }

    #[test]
    fn lines_count_every_natural_line_and_name_where_an_entry_begins() {
        let entries = parse("#\n\na=1\\\n  2\nb=3\r\n\r\nc=4").expect("well formed");
        assert_eq!(entries.iter().map(|e| e.line).collect::<Vec<_>>(), [3, 5, 7]);
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_key() {
        check("\u{feff}a=1", &[("a", "1")]);
    }

    #[test]
    fn text_beyond_ascii_is_kept_and_marked() {
        let entries = parse("a=/donn\u{e9}es\nb=/donn\\u00e9es # caf\nc=1").expect("well formed");
        assert_eq!(
            entries.iter().map(|e| e.beyond_ascii).collect::<Vec<_>>(),
            [true, false, false]
        );
        assert_eq!(entries[0].value, "/donn\u{e9}es");
    }

    #[test]
    fn broken_unicode_escapes_are_errors_with_their_line() {
        for text in
            ["\na=\\u12", "\na=\\u12G4", "\na=\\u", "\na=C:\\users", "\na=\\u+123", "\na=\\ud800"]
        {
            let error = parse(text).expect_err(text);
            assert_eq!(error.line, 2, "in {text:?}");
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }

    #[test]
    fn nothing_yields_nothing() {
        check("", &[]);
        check("\n\r\n\r", &[]);
        check("\\", &[("", "")]);
    }
}
