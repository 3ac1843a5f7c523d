//! The fields of log lines in the format text: `message field=value field="a text with blanks"`.
//!
//! A value is quoted if it contains anything that could be mistaken for another field or line, so
//! that programs can parse the lines, and no client or peer can forge one.

use std::fmt::{Debug, Result, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The format of fields, see the head of this file.
#[derive(Debug)]
pub struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> Result {
        let mut pairs = Pairs { writer, is_first: true, result: Ok(()) };
        fields.record(&mut pairs);
        pairs.result
    }
}

struct Pairs<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: Result,
}

impl Pairs<'_> {
    fn put(&mut self, field: &Field, value: &str) -> Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if field.name() == "message" {
            return put_message(&mut self.writer, value);
        }
        match self.writer.has_ansi_escapes() {
            true => write!(self.writer, "\x1b[2m{}=\x1b[0m", field.name())?,
            false => write!(self.writer, "{}=", field.name())?,
        }
        put_value(&mut self.writer, value)
    }
}

impl Visit for Pairs<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.result.is_ok() {
            self.result = self.put(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Writes a message. Only messages of other libraries can contain control characters.
fn put_message(writer: &mut impl Write, message: &str) -> Result {
    if message.contains(char::is_control) {
        return write!(writer, "{}", message.escape_debug());
    }
    writer.write_str(message)
}

fn put_value(writer: &mut impl Write, value: &str) -> Result {
    let is_special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '=' | '\\');
    if value.is_empty() || value.contains(is_special) {
        return write!(writer, "{value:?}");
    }
    writer.write_str(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_only_if_it_is_ambiguous() {
        for (value, expected) in [
            ("0x1000a", "0x1000a"),
            ("[::1]:2181", "[::1]:2181"),
            ("/a/b", "/a/b"),
            ("", r#""""#),
            ("two words", r#""two words""#),
            ("/a\n2026-01-01 INFO forged", r#""/a\n2026-01-01 INFO forged""#),
            ("\x1b[31m", r#""\u{1b}[31m""#),
            (r#"a="b""#, r#""a=\"b\"""#),
        ] {
            let mut text = String::new();
            put_value(&mut text, value).expect("a string has room");
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_message_stays_on_one_line() {
        let mut text = String::new();
        put_message(&mut text, "two\nlines").expect("a string has room");
        assert_eq!(text, r"two\nlines");
    }
}
