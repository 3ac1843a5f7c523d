//! `diff`: prints the differences between two subtrees, of one server or of two servers.

use std::cmp::Ordering;
use std::fmt::{self, Display};

use serde::Serialize;

use crate::acl_text::AclText;
use crate::amounts::count;
use crate::colour::{Colours, Style};
use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::{DataText, Form};
use crate::failure::{Failure, Outcome};
use crate::node_walk::{Found, NodeWalk, below, compare};
use crate::options::{Arguments, Opt};
use crate::output::Message;
use crate::place::Place;
use crate::progress::Progress;

use super::tree::preview;

pub const COMMAND: Command = Command {
    name: "diff",
    aliases: &[],
    usage: "[-e] [-noacl] [-q] [-auth scheme:auth] left right",
    summary: "Compare two subtrees, also of other servers (host:port/path); exit code 1 if they differ.",
    group: Group::More,
    options: &[
        Opt::flag("e", "leave out ephemeral nodes"),
        Opt::flag("noacl", "do not compare ACLs"),
        Opt::flag("q", "say only whether they differ"),
        Opt::value("auth", "scheme:auth", "who we are on the other server"),
    ],
    examples: &["diff /app /backup/app", "diff -noacl /app db2:2181/app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let auth = arguments.value("auth");
    let left = Place::open(context, arguments.required(0)?, auth).await?;
    let right = Place::open(context, arguments.required(1)?, auth).await?;
    let differences = differences(context, arguments, &left, &right).await;
    left.close().await;
    right.close().await;
    match differences? {
        0 => Ok(()),
        // The differences are already printed; the exit code reports that there are some.
        number if arguments.has("q") => {
            let summary = Summary { differences: number, left: left.shown(), right: right.shown() };
            context.out.emit(&summary)?;
            Err(Failure::Reported)
        }
        _ => Err(Failure::Reported),
    }
}

/// Walks through both subtrees in the same order, as in a merge of sorted lists, and returns the
/// number of differences.
async fn differences(
    context: &Context,
    arguments: &Arguments,
    left: &Place,
    right: &Place,
) -> Outcome<u64> {
    let acl = !arguments.has("noacl");
    let quiet = arguments.has("q");
    let mut progress =
        Progress::new("nodes compared", context.terminal.stderr && !context.terminal.stdout);
    let walk = |place: &Place| {
        NodeWalk::new(&place.client, &place.path).with_data(true).with_acl(acl).without_system()
    };
    let (mut lefts, mut rights) = (walk(left), walk(right));
    let skip = arguments.has("e");
    let mut a = next(&mut lefts, skip).await?;
    let mut b = next(&mut rights, skip).await?;
    let mut number = 0;
    loop {
        let (rest, order) = match (&a, &b) {
            (None, None) => return Ok(number),
            (Some(one), None) => (below(&left.path, &one.path), Ordering::Less),
            (None, Some(other)) => (below(&right.path, &other.path), Ordering::Greater),
            (Some(one), Some(other)) => {
                let (one, other) = (below(&left.path, &one.path), below(&right.path, &other.path));
                match compare(one, other) {
                    Ordering::Greater => (other, Ordering::Greater),
                    order => (one, order),
                }
            }
        };
        let path = if rest.is_empty() { "/" } else { rest };
        let pair = match order {
            Ordering::Less => (a.as_ref(), None),
            Ordering::Equal => (a.as_ref(), b.as_ref()),
            Ordering::Greater => (None, b.as_ref()),
        };
        if let Some(difference) = Difference::between(path, pair.0, pair.1, context.colours()) {
            number += 1;
            if !quiet {
                if number == 1 && !context.out.is_json() {
                    let head = format!("--- {}\n+++ {}", left.shown(), right.shown());
                    context.out.emit(&Message::new(head))?;
                }
                context.out.emit(&difference)?;
            }
        }
        progress.add(1);
        if order != Ordering::Greater {
            a = next(&mut lefts, skip).await?;
        }
        if order != Ordering::Less {
            b = next(&mut rights, skip).await?;
        }
    }
}

async fn next(walk: &mut NodeWalk, skip_ephemerals: bool) -> Outcome<Option<Found>> {
    loop {
        match walk.next_readable().await? {
            Some(found) if skip_ephemerals && found.is_ephemeral() => {}
            other => return Ok(other),
        }
    }
}

/// The differences of one node. The path is relative to both roots.
struct Difference<'a> {
    path: &'a str,
    left: Option<&'a Found>,
    right: Option<&'a Found>,
    data: bool,
    acl: bool,
    kind: bool,
    colours: Colours,
}

impl<'a> Difference<'a> {
    fn between(
        path: &'a str,
        left: Option<&'a Found>,
        right: Option<&'a Found>,
        colours: Colours,
    ) -> Option<Difference<'a>> {
        let (data, acl, kind) = match (left, right) {
            (Some(a), Some(b)) => {
                (a.data != b.data, a.acl != b.acl, a.is_ephemeral() != b.is_ephemeral())
            }
            _ => (false, false, false),
        };
        let differs = data || acl || kind || left.is_none() || right.is_none();
        differs.then_some(Difference { path, left, right, data, acl, kind, colours })
    }
}

impl Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minus = |text: String| self.colours.paint(Style::Red, format!("- {text}"));
        let plus = |text: String| self.colours.paint(Style::Green, format!("+ {text}"));
        // Relative to the two roots in the heading.
        let name = match self.path {
            "/" => ".".to_owned(),
            path => path.trim_start_matches('/').to_owned(),
        };
        let (left, right) = match (self.left, self.right) {
            (Some(left), Some(right)) => (left, right),
            (Some(_), None) => return f.write_str(&minus(name)),
            (None, _) => return f.write_str(&plus(name)),
        };
        f.write_str(&self.colours.paint(Style::Yellow, format!("~ {name}")))?;
        let shown = |found: &Found| match &found.data {
            Some(Some(data)) if data.is_empty() => "(no data)".to_owned(),
            Some(Some(data)) => preview(data),
            _ => "(null)".to_owned(),
        };
        if self.data {
            write!(f, "\n    {}\n    {}", minus(shown(left)), plus(shown(right)))?;
        }
        let list = |found: &Found| {
            let entry = |acl| AclText(acl).to_string().replace('\n', "");
            format!("acl {}", found.acl.iter().cloned().map(entry).collect::<Vec<_>>().join(" "))
        };
        if self.acl {
            write!(f, "\n    {}\n    {}", minus(list(left)), plus(list(right)))?;
        }
        if self.kind {
            write!(f, "\n    {}\n    {}", minus(kind(left).into()), plus(kind(right).into()))?;
        }
        Ok(())
    }
}

fn kind(found: &Found) -> &'static str {
    if found.is_ephemeral() { "ephemeral" } else { "persistent" }
}

impl Serialize for Difference<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Side<'a> {
            kind: &'static str,
            #[serde(flatten)]
            data: DataText<'a>,
            acl: Vec<AclText>,
        }
        #[derive(Serialize)]
        struct Fields<'a> {
            path: &'a str,
            differs: Vec<&'static str>,
            left: Option<Side<'a>>,
            right: Option<Side<'a>>,
        }
        fn side(found: &Found) -> Side<'_> {
            let data = found.data.as_ref().and_then(|data| data.as_deref());
            let acl = found.acl.iter().cloned().map(AclText).collect();
            Side { kind: kind(found), data: DataText { data, form: Form::Auto }, acl }
        }
        let mut differs = Vec::new();
        match (self.left, self.right) {
            (Some(_), None) => differs.push("only_left"),
            (None, _) => differs.push("only_right"),
            _ => {}
        }
        for (flag, what) in [(self.data, "data"), (self.acl, "acl"), (self.kind, "kind")] {
            if flag {
                differs.push(what);
            }
        }
        Fields { path: self.path, differs, left: self.left.map(side), right: self.right.map(side) }
            .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Summary {
    differences: u64,
    left: String,
    right: String,
}

impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = count(self.differences, "difference");
        write!(f, "{} and {}: {number}", self.left, self.right)
    }
}
