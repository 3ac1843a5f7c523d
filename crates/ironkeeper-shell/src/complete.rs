//! Tab completion of commands, their options, and the paths that exist on the server.
//!
//! Runs on the line editor's thread. If the server does not reply in time, there is no completion,
//! but the prompt stays usable.

use std::time::Duration;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use tokio::runtime::Handle;

use super::command;
use super::session::SharedClient;
use super::words;

/// The time limit of a completion.
const ANSWER_WITHIN: Duration = Duration::from_millis(700);
/// The number of candidates that are shown; a node can have a million children.
const CANDIDATES_MAX: usize = 1000;

#[derive(Debug)]
pub struct ShellHelper {
    runtime: Handle,
    client: SharedClient,
    /// Whether hints are shown: only their colour distinguishes them from typed text.
    hints: bool,
}

impl ShellHelper {
    /// Creates a helper. Another thread must drive the runtime.
    pub fn new(runtime: Handle, client: SharedClient, colour: bool) -> ShellHelper {
        ShellHelper { runtime, client, hints: colour }
    }

    fn candidates(&self, before: &[&str], word: &str) -> Vec<Pair> {
        let Some((name, _)) = before.split_first() else {
            return names(word);
        };
        if matches!(*name, "help" | "?") {
            return names(word);
        }
        if word.starts_with('/') {
            return self.paths(word);
        }
        let Some(command) = command::find(name) else { return Vec::new() };
        if word.starts_with('-') {
            let options = command.options.iter().map(|option| format!("-{}", option.name));
            let common = ["--json", "--yes"].map(str::to_owned);
            return options
                .chain(common)
                .filter(|option| option.starts_with(word) && option != word)
                .map(|option| candidate(option.clone(), option + " "))
                .collect();
        }
        // Arguments with a fixed set of words.
        let fixed: &[&str] = match (command.name, before.last()) {
            ("printwatches", _) => &["on", "off"],
            ("addWatch", Some(&"-m")) => &["PERSISTENT", "PERSISTENT_RECURSIVE"],
            _ => &[],
        };
        fixed
            .iter()
            .filter(|fixed| fixed.starts_with(word))
            .map(|fixed| candidate((*fixed).to_owned(), format!("{fixed} ")))
            .collect()
    }

    /// Returns the nodes whose paths start with `word`.
    fn paths(&self, word: &str) -> Vec<Pair> {
        let Some(client) = self.client.current() else { return Vec::new() };
        if !client.state().is_connected() {
            return Vec::new();
        }
        let slash = word.rfind('/').expect("a path starts with one");
        let (parent, prefix) = (&word[..slash], &word[slash + 1..]);
        let above = if parent.is_empty() { "/" } else { parent };
        let found = self.runtime.block_on(async {
            tokio::time::timeout(ANSWER_WITHIN, async {
                let mut children = client.children(above).await.ok()?;
                children.retain(|child| child.starts_with(prefix) && words::quote(child).is_some());
                children.sort_unstable();
                // A single candidate is completed with a slash if it has children, otherwise with a
                // blank.
                let end = match &children[..] {
                    [only] => {
                        let path = format!("{parent}/{only}");
                        let stat = client.exists(&path).await.ok().flatten();
                        if stat.is_some_and(|stat| stat.num_children > 0) { "/" } else { " " }
                    }
                    _ => "",
                };
                Some((children, end))
            })
            .await
        });
        let Ok(Some((children, end))) = found else { return Vec::new() };
        let (children, left_out) = shortened(children, CANDIDATES_MAX);
        let count = children.len();
        let pairs = children.into_iter().enumerate().filter_map(|(at, child)| {
            let path = format!("{parent}/{child}");
            let typed = words::quote(&path)?;
            // Nothing can be typed after a closing quote, so a quoted word is not completed with a
            // slash.
            let end = if typed != path && end == "/" { "" } else { end };
            let display = match left_out > 0 && at + 1 == count {
                true => format!("{child} (and {left_out} before it)"),
                false => child,
            };
            Some(candidate(display, typed + end))
        });
        pairs.collect()
    }
}

/// Shortens sorted names to at most `max`, and returns the number of omitted names. The first and
/// the last name are kept: the editor completes the common prefix of all names, which in a sorted
/// list is the common prefix of these two.
fn shortened(mut names: Vec<String>, max: usize) -> (Vec<String>, usize) {
    let left_out = names.len().saturating_sub(max);
    if left_out > 0 {
        names.drain(max - 1..names.len() - 1);
    }
    (names, left_out)
}

/// Returns the commands whose names start with `word`.
fn names(word: &str) -> Vec<Pair> {
    command::all()
        .filter(|command| command.name.starts_with(word))
        .map(|command| candidate(command.name.to_owned(), format!("{} ", command.name)))
        .collect()
}

fn candidate(display: String, replacement: String) -> Pair {
    Pair { display, replacement }
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (before, start, word) = words::unfinished(&line[..pos]);
        Ok((start, self.candidates(&before, word)))
    }
}

/// A hint that is shown behind the cursor and never inserted into the line.
#[derive(Debug)]
pub struct UsageHint(&'static str);

impl Hint for UsageHint {
    fn display(&self) -> &str {
        self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for ShellHelper {
    type Hint = UsageHint;

    /// Returns the usage of the command once its name is typed.
    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<UsageHint> {
        if pos < line.len() || !self.hints {
            return None;
        }
        let command = command::find(line.strip_suffix(' ')?)?;
        let usage = command.usage.split(" #").next().unwrap_or_default();
        (!usage.is_empty()).then_some(UsageHint(usage))
    }
}

impl Highlighter for ShellHelper {
    fn highlight_hint<'h>(&self, hint: &'h str) -> std::borrow::Cow<'h, str> {
        format!("\x1b[2m{hint}\x1b[0m").into()
    }
}

impl Validator for ShellHelper {}
impl Helper for ShellHelper {}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn what_all_names_have_in_common_is_kept_however_many_there_are() {
        let names: Vec<String> = (0..10_000).map(|n| format!("child-{n:05}")).collect();
        let (kept, left_out) = shortened(names, 1000);
        assert_eq!((kept.len(), left_out), (1000, 9000));
        assert_eq!(
            (&*kept[0], &*kept[998], &*kept[999]),
            ("child-00000", "child-00998", "child-09999")
        );
        let (kept, left_out) = shortened(vec!["a".to_owned()], 1000);
        assert_eq!((kept.len(), left_out), (1, 0));
    }
}
