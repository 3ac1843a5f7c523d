//! Java system properties in the flags that an existing installation gives to its JVM.
//!
//! `zkServer.sh` starts Java with `$SERVER_JVMFLAGS $JVMFLAGS`, so a property set in both has the
//! value of `JVMFLAGS`. Ironkeeper has no JVM: `-Dname=value` is the only kind of flag with a
//! meaning, and all others are returned so that the user can be notified. The caller reads the
//! environment.

use thiserror::Error;

/// The environment variable that contained a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlagVariable {
    /// `SERVER_JVMFLAGS`
    ServerJvmFlags,
    /// `JVMFLAGS`
    JvmFlags,
}

impl FlagVariable {
    /// Returns the name of the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            FlagVariable::ServerJvmFlags => "SERVER_JVMFLAGS",
            FlagVariable::JvmFlags => "JVMFLAGS",
        }
    }
}

/// One flag of a Java command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flag {
    /// `-Dname=value`, with the value trimmed. `-Dname` has an empty value.
    Property { name: String, value: String },
    /// Anything else, such as `-Xmx1g`.
    Other(String),
}

/// The error of flags that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} has an opening {quote} without a closing one", .variable.name())]
pub struct UnclosedQuote {
    /// The variable with the quote in it.
    pub variable: FlagVariable,
    /// The quote character.
    pub quote: char,
}

/// Splits the text of one variable into flags, in order; a later property takes precedence over an
/// earlier one.
///
/// Words are separated by blanks. Single quotes keep everything as it is, double quotes keep blanks
/// and let a backslash escape `"`, `\`, `$` and `` ` ``, and outside quotes a backslash escapes any
/// character.
///
/// ```
/// use ironkeeper_config::system_properties::{Flag, FlagVariable, parse};
///
/// let flags = parse("-Xmx1g '-Dzookeeper.skipACL=yes'", FlagVariable::JvmFlags).unwrap();
/// assert_eq!(flags[0], Flag::Other("-Xmx1g".into()));
/// assert_eq!(flags[1], Flag::Property { name: "zookeeper.skipACL".into(), value: "yes".into() });
/// ```
pub fn parse(text: &str, variable: FlagVariable) -> Result<Vec<Flag>, UnclosedQuote> {
    let words = split(text).map_err(|quote| UnclosedQuote { variable, quote })?;
    Ok(words.into_iter().map(flag).collect())
}

fn flag(word: String) -> Flag {
    let Some(definition) = word.strip_prefix("-D") else {
        return Flag::Other(word);
    };
    let (name, value) = definition.split_once('=').unwrap_or((definition, ""));
    if name.is_empty() {
        return Flag::Other(word);
    }
    Flag::Property { name: name.to_owned(), value: value.trim().to_owned() }
}

/// Splits as a shell would. On failure, returns the quote that was left open.
fn split(text: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err('\''),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.peek() {
                            Some(&c @ ('"' | '\\' | '$' | '`')) => {
                                chars.next();
                                word.push(c);
                            }
                            _ => word.push('\\'),
                        },
                        Some(c) => word.push(c),
                        None => return Err('"'),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => word.get_or_insert_default().push('\\'),
            },
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split(text).expect("quotes are closed"), expected, "in {text:?}");
    }

    #[track_caller]
    fn property(text: &str) -> (String, String) {
        match parse(text, FlagVariable::JvmFlags).expect("quotes are closed").as_slice() {
            [Flag::Property { name, value }] => (name.clone(), value.clone()),
            other => panic!("{text:?} gave {other:?}"),
        }
    }

    #[test]
    fn blanks_separate_words_and_quotes_keep_them_together() {
        check("", &[]);
        check("  -a   -b\t-c\n-d ", &["-a", "-b", "-c", "-d"]);
        check("'-Da=b c' -d", &["-Da=b c", "-d"]);
        check("-Da=\"b c\"'d e'f", &["-Da=b cd ef"]);
        check("-Da='' ''", &["-Da=", ""]);
    }

    #[test]
    fn backslashes_escape_as_in_a_shell() {
        check(r"a\ b", &["a b"]);
        check(r#""a\"b\\c\d""#, &[r#"a"b\c\d"#]);
        check(r"'a\b'", &[r"a\b"]);
        check("a\\\nb", &["ab"]);
        check("a\\", &["a\\"]);
    }

    #[test]
    fn an_open_quote_is_an_error_that_names_the_variable() {
        let error = parse("-Da='b", FlagVariable::ServerJvmFlags).expect_err("the quote is open");
        assert_eq!(error.to_string(), "SERVER_JVMFLAGS has an opening ' without a closing one");
        assert_eq!(split("\"a"), Err('"'));
    }

    #[test]
    fn definitions_become_properties() {
        assert_eq!(property("-Da.b=c"), ("a.b".into(), "c".into()));
        assert_eq!(property("-Da=b=c"), ("a".into(), "b=c".into()));
        assert_eq!(property("-Da"), ("a".into(), String::new()));
        assert_eq!(property("'-Da= b '"), ("a".into(), "b".into()));
    }

    #[test]
    fn other_flags_are_handed_back_as_they_are() {
        let flags = parse("-Xmx1g -cp lib -D -D=x", FlagVariable::JvmFlags).expect("no quotes");
        let texts: Vec<_> = flags.into_iter().map(|f| matches!(f, Flag::Other(_))).collect();
        assert_eq!(texts, [true; 5]);
    }
}
