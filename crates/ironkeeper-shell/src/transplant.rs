//! Copies a subtree to another location, for `cp` and `mv`.

use std::collections::VecDeque;

use ironkeeper_client::{Acl, CreateMode, CreateOptions, ErrorKind, Reply, Stat, Version, acls};

use super::amounts::count;
use super::context::Context;
use super::failure::{Failure, Outcome};
use super::node_walk::{Found, NodeWalk, below, under};
use super::place::Place;
use super::planting::{self, Change};
use super::progress::Progress;

/// The number of requests in flight.
const IN_FLIGHT_MAX: usize = 64;

/// The options of a copy.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub recursive: bool,
    /// Existing nodes at the target are changed.
    pub replace: bool,
    pub with_acl: bool,
    /// Ephemeral nodes become persistent; without this option they are omitted.
    pub ephemerals: bool,
}

/// The source of a copy: the nodes, parents first, and the number of omitted nodes.
#[derive(Debug)]
pub struct Cutting {
    pub nodes: Vec<Found>,
    pub left_out: u64,
}

/// Reads the source. It is held in memory, because nothing is written before everything is read.
pub async fn read(context: &Context, source: &Place, how: How) -> Outcome<Cutting> {
    let mut progress = Progress::new("nodes read", context.terminal.stderr);
    let mut walk = NodeWalk::new(&source.client, &source.path)
        .with_data(true)
        .with_acl(how.with_acl)
        .depth_max(if how.recursive { usize::MAX } else { 0 })
        .without_system();
    let mut cutting = Cutting { nodes: Vec::new(), left_out: 0 };
    while let Some(found) = walk.next_readable().await? {
        progress.add(1);
        if found.depth == 0 && !how.recursive && found.stat.num_children > 0 {
            context.out.note(format!(
                "{} has {} that are not copied; -r copies them too",
                found.path,
                count(u64::try_from(found.stat.num_children).unwrap_or(0), "child node"),
            ))?;
        }
        if planting::is_masked(&found.acl) {
            return Err(planting::masked(&found.path));
        }
        if found.is_ephemeral() && !how.ephemerals {
            if found.depth == 0 {
                return Err(Failure::message(format!(
                    "{} is ephemeral: it belongs to session 0x{:x} and goes with it. -e makes a persistent copy.",
                    found.path, found.stat.ephemeral_owner
                )));
            }
            cutting.left_out += 1;
            continue;
        }
        cutting.nodes.push(found);
    }
    Ok(cutting)
}

/// The changes at the target.
#[derive(Debug, Default)]
pub struct Plan {
    pub changes: Vec<Change>,
    /// The ACLs of existing nodes, which no transaction can set.
    pub acls: Vec<(String, Vec<Acl>)>,
    pub replaced: u64,
}

/// Reads the target and returns the changes. An existing node is an error unless it may be
/// replaced.
pub async fn plan(cutting: &Cutting, source: &Place, target: &Place, how: How) -> Outcome<Plan> {
    let mut plan = Plan::default();
    let path = |found: &Found| under(&target.path, below(&source.path, &found.path));
    let mut asked: VecDeque<(&Found, Reply<Option<Stat>>)> = VecDeque::new();
    let mut nodes = cutting.nodes.iter();
    loop {
        while asked.len() < IN_FLIGHT_MAX
            && let Some(found) = nodes.next()
        {
            asked.push_back((found, target.client.exists(&path(found))));
        }
        let Some((found, reply)) = asked.pop_front() else { return Ok(plan) };
        let acl = if how.with_acl { found.acl.clone() } else { acls::open() };
        let data = found.data.clone().flatten();
        match reply.await? {
            None => {
                let mode = CreateOptions::new(CreateMode::Persistent);
                plan.changes.push(Change::create(path(found), data, mode, &acl));
            }
            Some(_) if how.replace => {
                let data = data.unwrap_or_default();
                plan.changes.push(Change::Set { path: path(found), data, version: Version::Any });
                plan.replaced += 1;
                if how.with_acl {
                    plan.acls.push((path(found), acl));
                }
            }
            Some(_) => {
                return Err(Failure::message(format!(
                    "{} is there already; -f replaces its data",
                    target.at(&path(found))
                )));
            }
        }
    }
}

/// The result of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Whether the copy was one transaction, including the additional changes.
    pub atomic: bool,
    pub transactions: u64,
}

/// Applies a plan, in one transaction if possible. The changes in `beside` are applied only as a
/// part of that transaction.
pub async fn plant(
    context: &Context,
    target: &Place,
    mut plan: Plan,
    beside: Vec<Change>,
) -> Outcome<Planted> {
    let own = plan.changes.len();
    plan.changes.extend(beside);
    match planting::at_once(&target.client, &plan.changes).await {
        Ok(true) => {
            planting::set_acls(&target.client, &plan.acls).await?;
            return Ok(Planted { atomic: true, transactions: 1 });
        }
        Ok(false) => {}
        Err(error) if planting::is_closed_to_us(&error, &plan.changes) => {}
        Err(error)
            if error.kind() == ErrorKind::NoNode
                && error.failed_operation().is_some_and(|at| at < own) =>
        {
            let path = error.path().unwrap_or(&target.path);
            let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
            return Err(Failure::message(format!(
                "Node does not exist: {parent}. -p creates the parents of the target."
            )));
        }
        Err(error) => return Err(error.into()),
    }
    plan.changes.truncate(own);
    let mut progress = Progress::new("nodes written", context.terminal.stderr);
    let transactions =
        planting::with_lent_access(&target.client, &mut plan.changes, &mut progress).await?;
    planting::set_acls(&target.client, &plan.acls).await?;
    Ok(Planted { atomic: false, transactions })
}
