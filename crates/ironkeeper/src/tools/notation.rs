//! The printed form of records: one line each, as text or as JSON.
//!
//! A line is an ordered list of named values. In text the names of some leading values are omitted;
//! in JSON a line is one object.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use ironkeeper_proto::{AclVec, Perms};
use serde_json::Value;

/// The number of bytes of data that are printed in text. JSON contains all of them.
const DATA_SHOWN: usize = 256;

/// A named value of a line.
#[derive(Debug)]
pub enum Field<'a> {
    /// Printed without its name.
    Bare(&'static str, Cow<'a, str>),
    Number(&'static str, i64),
    /// A 64-bit number, printed in hexadecimal.
    Hex(&'static str, i64),
    /// Milliseconds since 1970.
    Time(&'static str, i64),
    Flag(&'static str, bool),
    Data(Option<&'a [u8]>),
    Acl(AclVec<'a>),
    List(&'static str, Vec<String>),
    Lines(&'static str, Vec<Vec<Field<'a>>>),
}

pub fn write_line(fields: &[Field<'_>], json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        let mut line = String::new();
        put_json(fields, &mut line);
        return writeln!(out, "{line}");
    }
    let mut line = String::new();
    put_text(fields, &mut line);
    writeln!(out, "{line}")
}

fn put_text(fields: &[Field<'_>], line: &mut String) {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        // Writing to a string does not fail.
        let _ = match field {
            Field::Bare(_, text) => write!(line, "{}", printable(text)),
            Field::Number(name, number) => write!(line, "{name}={number}"),
            Field::Hex(name, number) => write!(line, "{name}=0x{number:x}"),
            Field::Time("time", ms) => write!(line, "{}", utc(*ms)),
            Field::Time(name, ms) => write!(line, "{name}={}", utc(*ms)),
            Field::Flag(name, value) => write!(line, "{name}={value}"),
            Field::Data(data) => write!(line, "data={}", data_text(*data)),
            Field::Acl(list) => write!(line, "acl={}", acl_entries(*list).join(",")),
            Field::List(name, items) => write!(line, "{name}=[{}]", items.join(", ")),
            Field::Lines(name, lines) => {
                let _ = write!(line, "{name}=[");
                for (index, fields) in lines.iter().enumerate() {
                    if index > 0 {
                        line.push_str("; ");
                    }
                    put_text(fields, line);
                }
                write!(line, "]")
            }
        };
    }
}

fn put_json(fields: &[Field<'_>], line: &mut String) {
    line.push('{');
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        let (name, value) = match field {
            Field::Bare(name, text) => (*name, Value::from(&**text)),
            Field::Number(name, number) | Field::Time(name, number) => {
                (*name, Value::from(*number))
            }
            Field::Hex(name, number) => (*name, Value::from(format!("0x{number:x}"))),
            Field::Flag(name, value) => (*name, Value::from(*value)),
            Field::Data(None) => ("data", Value::Null),
            Field::Data(Some(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => ("data", Value::from(text)),
                Err(_) => ("data_hex", Value::from(hex(bytes))),
            },
            Field::Acl(list) => ("acl", Value::from(acl_entries(*list))),
            Field::List(name, items) => (*name, Value::from(items.clone())),
            Field::Lines(name, lines) => {
                let _ = write!(line, "{}:[", Value::from(*name));
                for (index, fields) in lines.iter().enumerate() {
                    if index > 0 {
                        line.push(',');
                    }
                    put_json(fields, line);
                }
                line.push(']');
                continue;
            }
        };
        let _ = write!(line, "{}:{value}", Value::from(name));
    }
    line.push('}');
}

/// Escapes control characters, which could break the line or the terminal.
fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().any(char::is_control) {
        true => Cow::Owned(text.escape_debug().to_string()),
        false => Cow::Borrowed(text),
    }
}

/// Formats text in quotes, anything else in hexadecimal.
fn data_text(data: Option<&[u8]>) -> String {
    let Some(bytes) = data else { return "null".to_owned() };
    let readable = |text: &str| {
        !text.chars().any(|c| (c.is_control() && !c.is_whitespace()) || c == '\u{fffd}')
    };
    let mut shown = &bytes[..bytes.len().min(DATA_SHOWN)];
    // A character that the limit splits is omitted.
    if let Err(error) = std::str::from_utf8(shown)
        && error.error_len().is_none()
        && shown.len() < bytes.len()
    {
        shown = &shown[..error.valid_up_to()];
    }
    let mut text = match std::str::from_utf8(shown) {
        Ok(text) if readable(text) => format!("\"{}\"", text.escape_debug()),
        _ => format!("0x{}", hex(shown)),
    };
    if shown.len() < bytes.len() {
        let _ = write!(text, "...({} bytes)", bytes.len());
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Formats each entry as `scheme:id:permissions`.
fn acl_entries(list: AclVec<'_>) -> Vec<String> {
    list.iter()
        .map(|acl| {
            let id = format!("{}:{}", acl.scheme, acl.id);
            format!("{}:{}", printable(&id), permissions(acl.perms))
        })
        .collect()
}

fn permissions(perms: Perms) -> String {
    const LETTERS: [(char, Perms); 5] = [
        ('c', Perms::CREATE),
        ('d', Perms::DELETE),
        ('r', Perms::READ),
        ('w', Perms::WRITE),
        ('a', Perms::ADMIN),
    ];
    if perms.0 & !Perms::ALL.0 != 0 {
        return format!("{:#x}", perms.0);
    }
    LETTERS.iter().filter(|(_, perm)| perms.allows(*perm)).map(|(letter, _)| letter).collect()
}

/// Formats a time in UTC, to the millisecond.
pub fn utc(ms: i64) -> String {
    let days = ms.div_euclid(86_400_000);
    let in_day = ms.rem_euclid(86_400_000);
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, millis) = (in_day / 1000 % 60, in_day % 1000);
    // Years are counted from March 1 of the year 0, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &[Field<'_>], text: &str, json: &str) {
        for (as_json, expected) in [(false, text), (true, json)] {
            let mut line = Vec::new();
            write_line(fields, as_json, &mut line).unwrap();
            assert_eq!(String::from_utf8(line).unwrap().trim_end_matches('\n'), expected);
        }
    }

    #[test]
    fn a_line_for_people_and_for_programs() {
        check(
            &[
                Field::Time("time", 1_794_779_605_111),
                Field::Hex("zxid", 0x1_0000_0002),
                Field::Bare("type", "create".into()),
                Field::Bare("path", "/a".into()),
                Field::Data(Some(b"say \"hi\"")),
                Field::Acl(AclVec::OPEN),
                Field::Flag("ephemeral", false),
            ],
            "2026-11-15T21:53:25.111Z zxid=0x100000002 create /a data=\"say \\\"hi\\\"\" \
             acl=world:anyone:cdrwa ephemeral=false",
            "{\"time\":1794779605111,\"zxid\":\"0x100000002\",\"type\":\"create\",\"path\":\"/a\",\
             \"data\":\"say \\\"hi\\\"\",\"acl\":[\"world:anyone:cdrwa\"],\"ephemeral\":false}",
        );
    }

    #[test]
    fn data_is_text_or_hexadecimal_or_nothing() {
        check(&[Field::Data(None)], "data=null", "{\"data\":null}");
        check(&[Field::Data(Some(b""))], "data=\"\"", "{\"data\":\"\"}");
        check(&[Field::Data(Some(&[0xff, 0]))], "data=0xff00", "{\"data_hex\":\"ff00\"}");
        check(&[Field::Data(Some(&[7]))], "data=0x07", "{\"data\":\"\\u0007\"}");
        let long = "ä".repeat(200);
        let shown = format!("data=\"{}\"...(400 bytes)", "ä".repeat(128));
        check(&[Field::Data(Some(long.as_bytes()))], &shown, &format!("{{\"data\":\"{long}\"}}"));
    }

    #[test]
    fn nothing_in_a_path_breaks_its_line() {
        check(&[Field::Bare("path", "/a\nb\u{1b}".into())], "/a\\nb\\u{1b}", {
            "{\"path\":\"/a\\nb\\u001b\"}"
        });
    }

    #[test]
    fn dates_of_all_times() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(utc(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        utc(i64::MAX);
        utc(i64::MIN);
    }
}
