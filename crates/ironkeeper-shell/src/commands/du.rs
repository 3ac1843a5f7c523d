//! `du`: prints the number of nodes and bytes per subtree.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::amounts::human_bytes;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::node_walk::{NodeWalk, Step};
use crate::options::{Arguments, Opt};
use crate::progress::Progress;

pub const COMMAND: Command = Command {
    name: "du",
    aliases: &[],
    usage: "[-d depth] [-n] [-b] [path]",
    summary: "Count the bytes and nodes of subtrees, the largest first.",
    group: Group::More,
    options: &[
        Opt::value("d", "depth", "how deep subtrees are listed one by one [1]"),
        Opt::flag("n", "sort by the number of nodes, not by bytes"),
        Opt::flag("b", "print exact bytes, not KiB and MiB"),
    ],
    examples: &["du /app", "du -d 2 -n /"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = &*arguments.path_or_here(0)?;
    let depth = arguments.number("d", "a number")?.unwrap_or(1);
    let client = context.client()?;
    let mut progress = Progress::new("nodes counted", context.terminal.stderr);
    let mut walk = NodeWalk::new(&client, root);
    let mut totals = Totals::new(depth, arguments.has("b"));
    let mut denied = false;
    while let Some(step) = walk.next().await? {
        match step {
            Step::Node(found) => {
                totals.add(&found.path, found.depth, found.stat.data_length);
                progress.add(1);
            }
            Step::Denied(denied_node) => {
                context.out.error(&Failure::from(denied_node.error), "");
                denied = true;
            }
        }
    }
    drop(progress);
    for total in totals.sorted(arguments.has("n")) {
        context.out.emit(&total)?;
    }
    if denied { Err(Failure::Incomplete) } else { Ok(()) }
}

/// The sums of a depth-first walk: the last node and its ancestors are the open subtrees.
#[derive(Debug)]
struct Totals {
    depth_max: usize,
    exact: bool,
    /// The subtrees being counted, outermost first.
    open: Vec<Total>,
    closed: Vec<Total>,
}

#[derive(Clone, Debug, Serialize)]
struct Total {
    path: String,
    bytes: u64,
    nodes: u64,
    #[serde(skip)]
    exact: bool,
}

impl Totals {
    fn new(depth_max: usize, exact: bool) -> Totals {
        Totals { depth_max, exact, open: Vec::new(), closed: Vec::new() }
    }

    fn add(&mut self, path: &str, depth: usize, data_length: i32) {
        if depth <= self.depth_max {
            self.closed.extend(self.open.drain(depth.min(self.open.len())..));
            let total = Total { path: path.to_owned(), bytes: 0, nodes: 0, exact: self.exact };
            self.open.push(total);
        }
        for total in &mut self.open {
            total.nodes += 1;
            total.bytes += u64::try_from(data_length).unwrap_or(0);
        }
    }

    fn sorted(mut self, by_nodes: bool) -> Vec<Total> {
        self.closed.append(&mut self.open);
        self.closed.sort_by(|a, b| {
            let by = |total: &Total| match by_nodes {
                true => (total.nodes, total.bytes),
                false => (total.bytes, total.nodes),
            };
            by(b).cmp(&by(a)).then_with(|| a.path.cmp(&b.path))
        });
        self.closed
    }
}

impl Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = if self.exact { self.bytes.to_string() } else { human_bytes(self.bytes) };
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        write!(f, "{bytes:>10}  {:>9} {nodes:<5}  {}", self.nodes, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(depth: usize, by_nodes: bool, expected: &[&str]) {
        let mut totals = Totals::new(depth, true);
        for (path, depth, bytes) in [
            ("/", 0, 1),
            ("/a", 1, 10),
            ("/a/x", 2, 100),
            ("/a/y", 2, 100),
            ("/b", 1, 1000),
            ("/b/z", 2, 0),
        ] {
            totals.add(path, depth, bytes);
        }
        let shown: Vec<String> = totals
            .sorted(by_nodes)
            .iter()
            .map(|total| format!("{} {} {}", total.path, total.bytes, total.nodes))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_node_counts_in_all_subtrees_above_it() {
        check(0, false, &["/ 1211 6"]);
        check(1, false, &["/ 1211 6", "/b 1000 2", "/a 210 3"]);
        check(1, true, &["/ 1211 6", "/a 210 3", "/b 1000 2"]);
        check(
            2,
            false,
            &["/ 1211 6", "/b 1000 2", "/a 210 3", "/a/x 100 1", "/a/y 100 1", "/b/z 0 1"],
        );
    }
}
