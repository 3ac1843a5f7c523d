//! Encoding of any text as a node name, and of any bytes as one word of readable text.
//!
//! Letters, digits and most punctuation stay as they are; each other byte becomes `%` and two
//! hexadecimal digits, as in URLs.

/// The last character that may stay: above it are characters that paths may not contain and
/// characters that take two UTF-16 units in Java.
const LAST_PLAIN: char = '\u{d7ff}';

/// Encodes bytes as text without white space, slashes, or characters that a path may not contain.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if stays(letter) {
                escaped.push(letter);
            } else {
                push_bytes(&mut escaped, letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        push_bytes(&mut escaped, chunk.invalid());
    }
    escaped
}

fn stays(letter: char) -> bool {
    match letter {
        '/' | '%' => false,
        _ => letter.is_ascii_graphic() || (letter.is_alphanumeric() && letter <= LAST_PLAIN),
    }
}

fn push_bytes(escaped: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        escaped.push('%');
        escaped.push(char::from(DIGITS[usize::from(byte >> 4)]));
        escaped.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Decodes the result of [`escape`]. Returns `None` if an escape sequence is invalid.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
        rest = behind;
    }
    Some(bytes)
}

/// Encodes any text as a node name.
pub(crate) fn to_name(key: &str) -> String {
    match key {
        // Node names must not be empty, `.` or `..`.
        "" => "%".to_owned(),
        "." | ".." => key.replace('.', "%2E"),
        _ => escape(key.as_bytes()),
    }
}

/// Decodes a node name. Returns `None` if [`to_name`] cannot have produced it.
pub(crate) fn from_name(name: &str) -> Option<String> {
    if name == "%" {
        return Some(String::new());
    }
    let key = String::from_utf8(unescape(name)?).ok()?;
    (to_name(&key) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn readable_names_stay_readable() {
        assert_eq!(to_name("anna@host:21.x-y_z"), "anna@host:21.x-y_z");
        assert_eq!(to_name("größe"), "größe");
        assert_eq!(to_name("a/b c%"), "a%2Fb%20c%25");
        assert_eq!([to_name(""), to_name("."), to_name("..")], ["%", "%2E", "%2E%2E"]);
        assert_eq!(escape(b"\xff\n"), "%FF%0A");
    }

    #[test]
    fn names_that_others_made_are_told_apart() {
        for foreign in ["%4", "%zz", "%41", "a b", "%ff", "a%2fb"] {
            assert_eq!(from_name(foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn any_key_comes_back_from_a_name_that_a_server_takes(key: String) {
            let name = to_name(&key);
            prop_assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
            prop_assert!(!name.chars().any(|letter| letter.is_control() || letter > LAST_PLAIN));
            prop_assert_eq!(from_name(&name), Some(key));
        }

        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            let word = escape(&bytes);
            prop_assert!(!word.contains(char::is_whitespace));
            prop_assert_eq!(unescape(&word), Some(bytes));
        }
    }
}
