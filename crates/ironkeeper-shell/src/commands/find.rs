//! `find`: prints the nodes of a subtree that match given criteria.

use std::fmt::{self, Display};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironkeeper_client::Stat;
use regex::Regex;
use serde::Serialize;

use crate::amounts::{Limit, human_bytes, human_time, parse_bytes, parse_seconds};
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::node_walk::{Found, NodeWalk, Step};
use crate::options::{Arguments, Opt};
use crate::progress::Progress;
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "find",
    aliases: &[],
    usage: "[-name glob] [-type kind] [-size size] [-age time] [-created time] [-owner session] [-empty] \
            [-depth n] [-l] [path]",
    summary: "Find nodes by name, kind, size, age or owner.",
    group: Group::More,
    options: &[
        Opt::value("name", "glob", "the name, with * ? and [a-z]; with a slash: the whole path"),
        Opt::value("type", "kind", "ephemeral or persistent (e or p)"),
        Opt::value("size", "size", "bytes of data: +10k more, -10k less, 10k exactly"),
        Opt::value("age", "time", "since the data was changed: +2h longer, -30m shorter"),
        Opt::value("created", "time", "since the node was created, likewise"),
        Opt::value("owner", "session", "ephemeral nodes of this session, like 0x1000b30ac0000"),
        Opt::flag("empty", "no data and no children"),
        Opt::value("depth", "n", "go no deeper than this"),
        Opt::flag("l", "show kind, size, children, version and age as well"),
    ],
    examples: &["find /app -name 'node-*'"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = &*arguments.path_or_here(0)?;
    let wanted = Wanted::parse(arguments)?;
    let depth_max = arguments.number("depth", "a number")?.unwrap_or(usize::MAX);
    let long = arguments.has("l");
    let now_ms = now_ms();
    let client = context.client()?;
    let mut progress =
        Progress::new("nodes looked at", context.terminal.stderr && !context.terminal.stdout);
    let mut walk = NodeWalk::new(&client, root).depth_max(depth_max);
    let mut denied = false;
    while let Some(step) = walk.next().await? {
        progress.add(1);
        match step {
            Step::Node(found) if wanted.has(&found, now_ms) => {
                context.out.emit(&Line { found: &found, long, now_ms })?;
            }
            Step::Node(_) => {}
            Step::Denied(denied_node) => {
                context.out.error(&Failure::from(denied_node.error), "");
                denied = true;
            }
        }
    }
    if denied { Err(Failure::Incomplete) } else { Ok(()) }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The criteria; a node must match all that are set.
#[derive(Debug, Default)]
struct Wanted {
    name: Option<Glob>,
    ephemeral: Option<bool>,
    size: Option<Limit<u64>>,
    age: Option<Limit<u64>>,
    created: Option<Limit<u64>>,
    owner: Option<i64>,
    empty: bool,
}

impl Wanted {
    fn parse(arguments: &Arguments) -> Outcome<Wanted> {
        let limit = |name: &str, kind: &str, amount: fn(&str) -> Option<u64>| {
            let Some(text) = arguments.value(name) else { return Ok(None) };
            let parsed = Limit::parse(text, amount);
            parsed
                .map(Some)
                .ok_or_else(|| Failure::bad_usage(format!("-{name} must be {kind}, not {text}")))
        };
        let owner = match arguments.value("owner") {
            None => None,
            Some(text) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let id = u64::from_str_radix(digits, 16).map_err(|_| {
                    Failure::bad_usage(format!(
                        "-owner must be a session like 0x1000b30ac0000, not {text}"
                    ))
                })?;
                Some(id.cast_signed())
            }
        };
        let ephemeral = match arguments.value("type") {
            None => None,
            Some("e" | "ephemeral") => Some(true),
            Some("p" | "persistent") => Some(false),
            Some("c" | "container" | "t" | "ttl") => {
                return Err(Failure::message(
                    "Servers do not tell clients which nodes are containers or have a TTL: to clients both look \
                     persistent. ironkeeper snapshot --json shows them in a server's files.",
                ));
            }
            Some(other) => {
                return Err(Failure::bad_usage(format!(
                    "-type must be ephemeral or persistent, not {other}"
                )));
            }
        };
        Ok(Wanted {
            name: arguments.value("name").map(Glob::parse).transpose()?,
            ephemeral,
            size: limit("size", "a size like +10k", parse_bytes)?,
            age: limit("age", "a time like +2h or -30m", parse_seconds)?,
            created: limit("created", "a time like +2h or -30m", parse_seconds)?,
            owner,
            empty: arguments.has("empty"),
        })
    }

    fn has(&self, found: &Found, now_ms: i64) -> bool {
        let stat = &found.stat;
        let length = u64::try_from(stat.data_length).unwrap_or(0);
        self.name.as_ref().is_none_or(|glob| glob.matches(&found.path))
            && self.ephemeral.is_none_or(|wanted| wanted == found.is_ephemeral())
            && self.size.is_none_or(|limit| limit.holds(length))
            && self.age.is_none_or(|limit| limit.holds(seconds_since(stat.mtime, now_ms)))
            && self.created.is_none_or(|limit| limit.holds(seconds_since(stat.ctime, now_ms)))
            && self.owner.is_none_or(|owner| stat.ephemeral_owner == owner && owner != 0)
            && (!self.empty || length == 0 && stat.num_children == 0)
    }
}

/// Returns the age in seconds; zero for times in the future, because clocks differ.
fn seconds_since(then_ms: i64, now_ms: i64) -> u64 {
    u64::try_from(now_ms.saturating_sub(then_ms)).unwrap_or(0) / 1000
}

/// A shell pattern. It applies to node names, or to whole paths if it contains a slash.
#[derive(Debug)]
struct Glob {
    pattern: Regex,
    of_path: bool,
}

impl Glob {
    fn parse(text: &str) -> Outcome<Glob> {
        let mut pattern = String::from("(?s)^");
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '*' => pattern.push_str(".*"),
                '?' => pattern.push('.'),
                '[' => {
                    pattern.push('[');
                    if chars.next_if(|c| matches!(c, '!' | '^')).is_some() {
                        pattern.push('^');
                    }
                    // A closing bracket in the first position is literal.
                    let mut first = true;
                    loop {
                        match chars.next() {
                            Some(']') if !first => break,
                            Some('-') => pattern.push('-'),
                            Some(c) => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
                            None => return Err(bad_glob(text)),
                        }
                        first = false;
                    }
                    pattern.push(']');
                }
                '\\' => {
                    let c = chars.next().ok_or_else(|| bad_glob(text))?;
                    pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
                }
                c => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
        }
        pattern.push('$');
        let pattern = Regex::new(&pattern).map_err(|_| bad_glob(text))?;
        Ok(Glob { pattern, of_path: text.contains('/') })
    }

    fn matches(&self, path: &str) -> bool {
        let name = if self.of_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        self.pattern.is_match(name)
    }
}

fn bad_glob(text: &str) -> Failure {
    Failure::bad_usage(format!("not a pattern: {text}"))
}

struct Line<'a> {
    found: &'a Found,
    long: bool,
    now_ms: i64,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { path, stat, .. } = self.found;
        if self.long {
            let kind = if self.found.is_ephemeral() { 'e' } else { 'p' };
            let Stat { data_length, num_children, version, mtime, .. } = *stat;
            let size = human_bytes(u64::try_from(data_length).unwrap_or(0));
            // The nodes that exist on every server have no modification time.
            let age = if mtime <= 0 {
                "-".to_owned()
            } else {
                human_time(Duration::from_secs(seconds_since(mtime, self.now_ms)))
            };
            write!(f, "{kind} {size:>9} {num_children:>7} v{version:<6} {age:>8}  ")?;
        }
        f.write_str(path)
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            path: &'a str,
            stat: StatText,
        }
        Fields { path: &self.found.path, stat: StatText(self.found.stat) }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_those_of_shells() {
        for (glob, path, expected) in [
            ("lock-*", "/a/lock-0001", true),
            ("lock-*", "/lock-1/x", false),
            ("?", "/a/b", true),
            ("?", "/a/bc", false),
            ("[a-c]x", "/bx", true),
            ("[!a-c]x", "/bx", false),
            ("[]]", "/]", true),
            ("a.b", "/axb", false),
            ("\\*", "/*", true),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*", "/b/c", false),
            ("[[:]", "/:", true),
            ("[a&&b]", "/&", true),
        ] {
            assert_eq!(Glob::parse(glob).unwrap().matches(path), expected, "{glob} {path}");
        }
        for bad in ["[a", "\\", "[z-a]"] {
            assert!(Glob::parse(bad).is_err(), "{bad}");
        }
    }
}
