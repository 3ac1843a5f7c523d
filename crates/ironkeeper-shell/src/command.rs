//! The table of commands, from which help, completion and dispatch are derived.

use std::fmt::{self, Display, Write};
use std::future::Future;
use std::pin::Pin;

use serde::{Serialize, Serializer};

use super::commands;
use super::context::Context;
use super::failure::Outcome;
use super::options::{Arguments, Opt};

/// A running command. It stays on the shell's own thread, so it need not be `Send`.
pub type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// One command of the shell.
#[derive(Debug)]
pub struct Command {
    pub name: &'static str,
    /// Older names. A command may behave differently under an alias.
    pub aliases: &'static [&'static str],
    /// The arguments in the usage line, after the name.
    pub usage: &'static str,
    /// The text for the help; its first line is the headline.
    pub summary: &'static str,
    pub group: Group,
    pub options: &'static [Opt],
    /// Example lines for the help.
    pub examples: &'static [&'static str],
    /// Starts the command. The arguments are already parsed according to `options`.
    pub run: for<'a> fn(&'a mut Context, &'a Arguments) -> Running<'a>,
}

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A command of zkCli, compatible with it.
    ZkCli,
    /// A command that zkCli does not have.
    More,
}

/// Returns all commands in the order in which zkCli lists them: by name, capitals first.
pub fn all() -> impl Iterator<Item = &'static Command> {
    commands::ALL.iter().copied()
}

/// Returns the command with that name or alias.
pub fn find(name: &str) -> Option<&'static Command> {
    all().find(|command| command.name == name || command.aliases.contains(&name))
}

impl Command {
    /// Returns `name options path`, as zkCli prints it.
    pub fn usage_line(&self) -> String {
        format!("{} {}", self.name, self.usage).trim_end().to_owned()
    }

    /// Returns the first line of the summary.
    pub fn headline(&self) -> &'static str {
        self.summary.lines().next().unwrap_or_default()
    }

    /// Returns the usage line with the options that zkCli does not have or does not list.
    fn full_usage_line(&self) -> String {
        let is_named = |option: &Opt| self.usage.contains(&format!("-{}", option.name));
        let unnamed = self.options.iter().filter(|option| !is_named(option));
        let unnamed: String = unnamed.map(|option| format!(" [{}]", written(option))).collect();
        format!("{}{unnamed} {}", self.name, self.usage).trim_end().to_owned()
    }

    fn help(&self) -> String {
        let mut text = format!("{}\n\n{}", self.full_usage_line(), self.summary);
        if !self.options.is_empty() {
            text.push('\n');
        }
        let names: Vec<String> = self.options.iter().map(written).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0).max(16);
        for (name, option) in names.iter().zip(self.options) {
            let _ = write!(text, "\n  {name:<width$}  {}", option.help);
        }
        if !self.examples.is_empty() {
            let _ = write!(text, "\n\nexamples\n  {}", self.examples.join("\n  "));
        }
        if !self.aliases.is_empty() {
            let _ = write!(text, "\n\nalso: {}", self.aliases.join(", "));
        }
        text
    }
}

/// Returns an option as it is typed.
fn written(option: &Opt) -> String {
    match option.value {
        Some(value) => format!("-{} {value}", option.name),
        None => format!("-{}", option.name),
    }
}

/// The output of `help name` and `name --help`.
#[derive(Debug)]
pub struct Help(pub &'static Command);

impl Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.help())
    }
}

impl Serialize for Help {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            command: &'static str,
            aliases: &'static [&'static str],
            usage: String,
            summary: &'static str,
            examples: &'static [&'static str],
        }
        let command = self.0;
        Fields {
            command: command.name,
            aliases: command.aliases,
            usage: command.full_usage_line(),
            summary: command.summary,
            examples: command.examples,
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sorted() {
        let names: Vec<&str> = all().map(|command| command.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(names, sorted);
        let mut every: Vec<&str> = all()
            .flat_map(|command| command.aliases.iter().chain([&command.name]))
            .copied()
            .collect();
        let count = every.len();
        every.sort_unstable();
        every.dedup();
        assert_eq!(every.len(), count);
    }

    #[test]
    fn every_command_of_zkcli_is_there() {
        for name in [
            "addWatch",
            "addauth",
            "close",
            "config",
            "connect",
            "create",
            "delete",
            "deleteall",
            "delquota",
            "exit",
            "get",
            "getAcl",
            "getAllChildrenNumber",
            "getEphemerals",
            "history",
            "listquota",
            "ls",
            "ls2",
            "printwatches",
            "quit",
            "reconfig",
            "redo",
            "removewatches",
            "rmr",
            "set",
            "setAcl",
            "setquota",
            "stat",
            "sync",
            "version",
            "whoami",
        ] {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn usage_names_every_option() {
        for command in all() {
            for option in command.options {
                let named = command.usage.contains(&format!("-{}", option.name));
                // zkCli's usage lines omit two options of removewatches.
                assert!(
                    named || command.group == Group::ZkCli,
                    "{} -{}",
                    command.name,
                    option.name
                );
            }
            assert!(!command.summary.is_empty());
            for example in command.examples {
                let name = example.split(' ').next().unwrap();
                assert_eq!(name, command.name, "{example}");
                let words = crate::words::split(example).unwrap();
                assert!(Arguments::parse(&words, command.options).is_ok(), "{example}");
            }
        }
    }
}
