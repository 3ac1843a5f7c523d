//! The options of a command, parsed like zkCli's parser (commons-cli).
//!
//! Options may appear anywhere among the words; flags may be joined (`-sw`); a value may follow its
//! option directly (`-v5`), after `=` or as the next word; `--` ends the options; a negative number
//! is a value but never a word. Every command has `--json`, `--yes` and `--help`.

use super::failure::Failure;
use super::path_form;

/// An option of a command: `-name`, with or without a value.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    pub name: &'static str,
    /// The name of the value in the help; `None` for a flag.
    pub value: Option<&'static str>,
    pub help: &'static str,
}

impl Opt {
    pub const fn flag(name: &'static str, help: &'static str) -> Opt {
        Opt { name, value: None, help }
    }

    pub const fn value(name: &'static str, value: &'static str, help: &'static str) -> Opt {
        Opt { name, value: Some(value), help }
    }
}

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The command as it was typed, which may be an alias.
    name: String,
    words: Vec<String>,
    given: Vec<(&'static str, Option<String>)>,
    pub json: bool,
    pub yes: bool,
    pub help: bool,
    /// The node that relative paths start from: the argument of the last `cd`, if any.
    pub directory: Option<String>,
}

impl Arguments {
    /// Parses a command line. `words` starts with the name of the command.
    pub fn parse(words: &[String], options: &[Opt]) -> Result<Arguments, Failure> {
        let mut parsed = Arguments::default();
        let mut words = words.iter().map(String::as_str);
        parsed.name = words.next().unwrap_or_default().to_owned();
        // The option that still needs its value.
        let mut wanting: Option<&'static str> = None;
        let mut ended = false;
        for word in words {
            if ended {
                parsed.words.push(word.to_owned());
                continue;
            }
            if let Some(name) = wanting {
                if is_value(word, options) {
                    parsed.given.push((name, Some(word.to_owned())));
                    wanting = None;
                    continue;
                }
                return Err(missing_value(name));
            }
            match word {
                "--" => ended = true,
                "--json" => parsed.json = true,
                "--yes" => parsed.yes = true,
                "--help" | "-?" => parsed.help = true,
                _ if word.len() > 1 && word.starts_with('-') => {
                    wanting = parsed.option(word, options)?;
                }
                _ => parsed.words.push(word.to_owned()),
            }
        }
        match wanting {
            Some(name) => Err(missing_value(name)),
            None => Ok(parsed),
        }
    }

    /// Parses one word that starts with a dash; returns the option whose value is the next word.
    fn option(&mut self, word: &str, options: &[Opt]) -> Result<Option<&'static str>, Failure> {
        let unknown = || Failure::bad_usage(format!("Unrecognized option: {word}"));
        let text = word.strip_prefix("--").unwrap_or(&word[1..]);
        if let Some(option) = find(text, options) {
            return Ok(self.take(option));
        }
        if let Some((name, value)) = text.split_once('=') {
            let option = find(name, options).filter(|option| option.value.is_some());
            let option = option.ok_or_else(unknown)?;
            self.given.push((option.name, Some(value.to_owned())));
            return Ok(None);
        }
        if word.starts_with("--") {
            return Err(unknown());
        }
        for (at, letter) in text.char_indices() {
            let rest = &text[at + letter.len_utf8()..];
            let option = find(&text[at..at + letter.len_utf8()], options).ok_or_else(unknown)?;
            if let Some(name) = self.take(option) {
                if rest.is_empty() {
                    return Ok(Some(name));
                }
                self.given.push((name, Some(rest.to_owned())));
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Records a flag; an option with a value is returned instead, because the value follows.
    fn take(&mut self, option: &Opt) -> Option<&'static str> {
        if option.value.is_some() {
            return Some(option.name);
        }
        self.given.push((option.name, None));
        None
    }

    /// Returns the name of the command as it was typed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the option is present.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Returns the first value of the option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name)?.1.as_deref()
    }

    /// Returns the value of the option as a number; `kind` describes the expected number in the
    /// error.
    pub fn number<N: std::str::FromStr>(
        &self,
        name: &str,
        kind: &str,
    ) -> Result<Option<N>, Failure> {
        let Some(text) = self.value(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Failure::bad_usage(format!("-{name} argument must be {kind}"))),
        }
    }

    /// Returns the words that are not options, without the command's name.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    pub fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// Returns a mandatory word.
    pub fn required(&self, at: usize) -> Result<&str, Failure> {
        self.word(at).ok_or(Failure::Usage)
    }

    /// Returns a word as a checked path. A single slash at its end is accepted, because completion
    /// inserts it.
    pub fn path(&self, at: usize) -> Result<String, Failure> {
        let mut path = self.resolved(at)?;
        if path.len() > 1 && path.ends_with('/') && !path.ends_with("//") {
            path.pop();
        }
        path_form::check(&path)?;
        Ok(path)
    }

    /// Returns an optional path; the default is the argument of the last `cd`, or the root.
    pub fn path_or_here(&self, at: usize) -> Result<String, Failure> {
        match self.word(at) {
            Some(_) => self.path(at),
            None => Ok(self.directory.clone().unwrap_or_else(|| "/".to_owned())),
        }
    }

    /// Returns a word as an absolute path, without checking its form.
    pub fn resolved(&self, at: usize) -> Result<String, Failure> {
        let word = self.required(at)?;
        Ok(match &self.directory {
            Some(directory) if !word.starts_with('/') => path_form::join(directory, word),
            _ => word.to_owned(),
        })
    }

    /// Returns which of several mutually exclusive options is present.
    pub fn one_of(&self, names: &[&'static str]) -> Result<Option<&'static str>, Failure> {
        let mut given = names.iter().copied().filter(|name| self.has(name));
        let first = given.next();
        match (first, given.next()) {
            (Some(first), Some(second)) => Err(Failure::bad_usage(format!(
                "Options -{first} and -{second} exclude each other"
            ))),
            _ => Ok(first),
        }
    }
}

fn find<'a>(name: &str, options: &'a [Opt]) -> Option<&'a Opt> {
    options.iter().find(|option| option.name == name)
}

fn missing_value(name: &str) -> Failure {
    Failure::bad_usage(format!("Missing argument for option: {name}"))
}

/// Returns whether a word can be the value of the option before it: anything except an option. A
/// negative number is a value although it starts with a dash.
fn is_value(word: &str, options: &[Opt]) -> bool {
    if !word.starts_with('-') || word.len() == 1 || word.parse::<f64>().is_ok() {
        return true;
    }
    let text = word.trim_start_matches('-');
    let name = text.split('=').next().unwrap_or_default();
    let known = find(name, options).is_some()
        || name
            .chars()
            .next()
            .is_some_and(|first| find(first.encode_utf8(&mut [0; 4]), options).is_some());
    !known && !matches!(word, "--" | "--json" | "--yes" | "--help")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt] = &[
        Opt::flag("s", ""),
        Opt::flag("w", ""),
        Opt::value("v", "version", ""),
        Opt::value("members", "list", ""),
    ];

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = super::super::words::split(line).unwrap();
        let shown = match Arguments::parse(&words, OPTIONS) {
            Ok(parsed) => {
                let mut shown = parsed.words.join(" ");
                for (name, value) in &parsed.given {
                    shown += &format!(
                        " [{name}{}]",
                        value.as_ref().map_or(String::new(), |v| format!("={v}"))
                    );
                }
                if parsed.json {
                    shown += " json";
                }
                shown
            }
            Err(failure) => format!("! {}", failure.text("usage")).replace("\nusage", ""),
        };
        assert_eq!(shown, expected, "{line}");
    }

    #[test]
    fn options_stand_anywhere_and_may_be_joined() {
        check("get /a", "/a");
        check("get -s /a", "/a [s]");
        check("get /a -s -w", "/a [s] [w]");
        check("get -sw /a", "/a [s] [w]");
        check("get -v 3 /a", "/a [v=3]");
        check("get -v3 /a", "/a [v=3]");
        check("get -v=3 /a", "/a [v=3]");
        check("get -swv 3 /a", "/a [s] [w] [v=3]");
        check("get /a -v -1", "/a [v=-1]");
        check("get -members a,b", " [members=a,b]");
        check("get --members=a,b", " [members=a,b]");
        check("get --json /a", "/a json");
    }

    #[test]
    fn two_dashes_end_the_options() {
        check("set /a -- -s", "/a -s");
        check("set /a -", "/a -");
    }

    #[test]
    fn what_a_command_does_not_know_is_refused() {
        check("get -x /a", "! Unrecognized option: -x");
        check("get -sx /a", "! Unrecognized option: -sx");
        check("get --what /a", "! Unrecognized option: --what");
        check("set /a -1", "! Unrecognized option: -1");
        check("get -s=1 /a", "! Unrecognized option: -s=1");
        check("get /a -v", "! Missing argument for option: v");
        check("get -v -s /a", "! Missing argument for option: v");
    }
}
