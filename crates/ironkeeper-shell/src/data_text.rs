//! The printed form of a node's data: text if it is text, otherwise a hex dump.
//!
//! zkCli prints all bytes as text, which can corrupt the state of a terminal. Here data that is not
//! UTF-8, or contains control characters other than line ends and tabs, is printed as by `get -x`.

use std::fmt::{self, Display};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::hex_dump::HexDump;

/// The form in which data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text if the data is text, otherwise a hex dump.
    #[default]
    Auto,
    Base64,
    Hex,
}

/// Data to be printed. In JSON it is `"data"` as text or `"data_base64"`; use `#[serde(flatten)]`.
#[derive(Clone, Copy, Debug)]
pub struct DataText<'a> {
    /// Null data, which differs from empty data, is shown as `null`.
    pub data: Option<&'a [u8]>,
    pub form: Form,
}

impl Display for DataText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = self.data.unwrap_or(b"null");
        match (self.form, as_text(data)) {
            (Form::Auto, Some(text)) => f.write_str(text),
            (Form::Base64, _) => f.write_str(&BASE64_STANDARD.encode(data)),
            (Form::Auto | Form::Hex, _) => HexDump(data).fmt(f),
        }
    }
}

impl Serialize for DataText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        let text = self.data.and_then(|data| std::str::from_utf8(data).ok());
        match (self.data, text) {
            (None, _) => map.serialize_entry("data", &())?,
            (Some(_), Some(text)) if self.form == Form::Auto => {
                map.serialize_entry("data", text)?;
            }
            (Some(data), _) => map.serialize_entry("data_base64", &BASE64_STANDARD.encode(data))?,
        }
        map.end()
    }
}

/// Returns the data as text, if it can be printed safely.
pub fn as_text(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?;
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.chars().all(harmless).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: Option<&[u8]>, form: Form, text: &str, json: &str) {
        let shown = DataText { data, form };
        assert_eq!(shown.to_string().lines().next().unwrap_or_default(), text);
        assert_eq!(serde_json::to_string(&shown).unwrap(), json);
    }

    #[test]
    fn text_is_shown_as_text_and_the_rest_as_bytes() {
        let table = "         +-------------------------------------------------+";
        check(Some(b"hello"), Form::Auto, "hello", r#"{"data":"hello"}"#);
        check(None, Form::Auto, "null", r#"{"data":null}"#);
        check(Some(b""), Form::Auto, "", r#"{"data":""}"#);
        check(Some(b"\xff\x00"), Form::Auto, table, r#"{"data_base64":"/wA="}"#);
        check(Some(b"\x1b[2J"), Form::Auto, table, "{\"data\":\"\\u001b[2J\"}");
        check(Some(b"hello"), Form::Base64, "aGVsbG8=", r#"{"data_base64":"aGVsbG8="}"#);
        check(Some(b"hello"), Form::Hex, table, r#"{"data_base64":"aGVsbG8="}"#);
    }
}
