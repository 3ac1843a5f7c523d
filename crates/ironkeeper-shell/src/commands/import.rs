//! `import`: creates a subtree from the JSON that `export` writes.
//!
//! The whole file is read and checked, and the existing nodes are read, before the first change.

use std::collections::VecDeque;
use std::fmt::{self, Display};

use ironkeeper_client::{
    Acl, Client, CreateMode, CreateOptions, ErrorKind, Node, Reply, Stat, Version,
};
use serde::Serialize;

use crate::amounts::count;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::export_file::{ExportFile, Mode, NodeRecord};
use crate::failure::{Failure, Outcome};
use crate::input_file;
use crate::node_walk::{below, under};
use crate::options::{Arguments, Opt};
use crate::path_form;
use crate::planting::{self, Change};
use crate::progress::Progress;

pub const COMMAND: Command = Command {
    name: "import",
    aliases: &[],
    usage: "[-n] [-exists fail|keep|replace] [-e] file [path]",
    summary: "Create a subtree from an export (- reads the input), where it was or at another path.",
    group: Group::More,
    options: &[
        Opt::flag("n", "do nothing, say what would be done"),
        Opt::value("exists", "fail|keep|replace", "what to do about nodes that differ [fail]"),
        Opt::flag("e", "create ephemeral nodes as persistent ones; else they are left out"),
    ],
    examples: &["import -n app.json", "import -exists replace app.json /restored"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The number of reads in flight.
const IN_FLIGHT_MAX: usize = 64;
/// The largest file that is accepted; the file is held in memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let name = arguments.required(0)?;
    let text = input_file::read(context, name, FILE_BYTES_MAX).await?;
    let file = ExportFile::parse(&text)?;
    drop(text);
    let root = match arguments.word(1) {
        Some(_) => &*arguments.path(1)?,
        None => &file.root,
    };
    let policy = match arguments.value("exists").unwrap_or("fail") {
        "fail" => Policy::Fail,
        "keep" => Policy::Keep,
        "replace" => Policy::Replace,
        other => {
            return Err(Failure::bad_usage(format!(
                "-exists must be fail, keep or replace, not {other}"
            )));
        }
    };
    let client = context.client()?;
    let ephemerals = arguments.has("e");
    let plan = plan(context, &client, &file, root, policy, ephemerals).await?;
    if arguments.has("n") {
        for step in &plan.steps {
            context.out.emit(step)?;
        }
        return context.out.emit(&Imported { dry_run: true, ..plan.summary(root) });
    }
    if plan.changed > 0 {
        let what = count(plan.changed, "node");
        context.confirm(&format!("Replace the data or ACL of {what}?")).await?;
    }
    carry_out(context, &client, &plan, root).await?;
    context.out.emit(&plan.summary(root))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Fail,
    Keep,
    Replace,
}

/// The changes to be made.
#[derive(Debug, Default)]
struct Plan {
    /// Every node of the file, with its action.
    steps: Vec<Step>,
    changes: Vec<Change>,
    acls: Vec<(String, Vec<Acl>)>,
    created: u64,
    changed: u64,
    kept: u64,
    same: u64,
    left_out: u64,
}

#[derive(Debug, Serialize)]
struct Step {
    path: String,
    action: &'static str,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.action, self.path)
    }
}

async fn plan(
    context: &Context,
    client: &Client,
    file: &ExportFile,
    root: &str,
    policy: Policy,
    ephemerals: bool,
) -> Outcome<Plan> {
    type Answers = (Reply<Node>, Reply<(Vec<Acl>, Stat)>);
    let mut progress = Progress::new("nodes compared", context.terminal.stderr);
    let mut plan = Plan::default();
    let mut conflicts = Vec::new();
    let mut nodes = file.nodes.iter();
    let mut asked: VecDeque<(&NodeRecord, String, Answers)> = VecDeque::new();
    loop {
        while asked.len() < IN_FLIGHT_MAX
            && let Some(node) = nodes.next()
        {
            let path = under(root, below(&file.root, &node.path));
            path_form::check(&path)?;
            let answers = (client.get(&path), client.get_acl(&path));
            asked.push_back((node, path, answers));
        }
        let Some((node, path, (data, acl))) = asked.pop_front() else { break };
        progress.add(1);
        if node.mode == Mode::Ephemeral && !ephemerals {
            plan.left_out += 1;
            plan.steps.push(Step { path, action: "leave" });
            continue;
        }
        let wanted = node.acl()?;
        if planting::is_masked(&wanted) {
            return Err(Failure::message(format!(
                "The ACL of {} in the file has digests that the server did not show to whoever made the export",
                node.path
            )));
        }
        let there = match data.await {
            Ok(there) => Some((there, acl.await?.0)),
            Err(error) if error.kind() == ErrorKind::NoNode => None,
            Err(error) => return Err(error.into()),
        };
        let action = match there {
            None => {
                plan.created += 1;
                let change = Change::create(path.clone(), node.data()?, node.options()?, &wanted);
                plan.changes.push(change);
                "create"
            }
            Some((there, acl)) => {
                let data = node.data()?;
                let same_data = data.is_none() == there.is_null()
                    && data.clone().unwrap_or_default() == there.data;
                if same_data && acl == wanted {
                    plan.same += 1;
                    "same"
                } else if policy == Policy::Keep {
                    plan.kept += 1;
                    "keep"
                } else {
                    // The root always exists, so it is no conflict.
                    if policy == Policy::Fail && path == "/" {
                        plan.kept += 1;
                        plan.steps.push(Step { path, action: "keep" });
                        continue;
                    }
                    if policy == Policy::Fail {
                        conflicts.push(path.clone());
                    }
                    plan.changed += 1;
                    let is_leaf = there.stat.num_children == 0 && path != "/";
                    if data.is_none() && !there.is_null() && is_leaf {
                        // Null data can be created but not set.
                        let version = there.stat.version;
                        plan.changes.push(Change::Delete { path: path.clone(), version });
                        let options = node.options()?;
                        plan.changes.push(Change::create(path.clone(), None, options, &wanted));
                    } else {
                        if !same_data {
                            plan.changes.push(Change::Set {
                                path: path.clone(),
                                data: data.unwrap_or_default(),
                                version: Version::from(there.stat.version),
                            });
                        }
                        if acl != wanted {
                            plan.acls.push((path.clone(), wanted));
                        }
                    }
                    "replace"
                }
            }
        };
        plan.steps.push(Step { path, action });
    }
    match conflicts.as_slice() {
        [] => Ok(plan),
        [first, ..] => Err(Failure::message(format!(
            "{} there already and not the same, the first is {first}. Nothing was done; -exists keep leaves such \
             nodes alone, -exists replace changes them.",
            match conflicts.len() {
                1 => "1 node is".to_owned(),
                many => format!("{many} nodes are"),
            }
        ))),
    }
}

async fn carry_out(context: &Context, client: &Client, plan: &Plan, root: &str) -> Outcome {
    if root != "/" {
        client.create_parents_with(root, &CreateOptions::new(CreateMode::Persistent)).await?;
    }
    let mut changes = plan.changes.clone();
    let mut progress = Progress::new("nodes imported", context.terminal.stderr);
    planting::with_lent_access(client, &mut changes, &mut progress).await?;
    planting::set_acls(client, &plan.acls).await
}

impl Plan {
    fn summary<'a>(&self, root: &'a str) -> Imported<'a> {
        Imported {
            imported: root,
            dry_run: false,
            created: self.created,
            replaced: self.changed,
            kept: self.kept,
            same: self.same,
            ephemerals_left_out: self.left_out,
        }
    }
}

#[derive(Serialize)]
struct Imported<'a> {
    imported: &'a str,
    dry_run: bool,
    created: u64,
    replaced: u64,
    kept: u64,
    same: u64,
    ephemerals_left_out: u64,
}

impl Display for Imported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let would = if self.dry_run { "Would import" } else { "Imported" };
        write!(f, "{would} {}: {} created", self.imported, self.created)?;
        for (number, what) in [
            (self.replaced, "replaced"),
            (self.kept, "kept as they are"),
            (self.same, "the same already"),
            (self.ephemerals_left_out, "ephemeral and left out"),
        ] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}
