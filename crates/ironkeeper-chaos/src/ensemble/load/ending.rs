//! The end of a load: reads the state of every member and checks the clients' records against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use ironkeeper_client::{Client, Stat};

use super::load_client::{LoadClient, seen};
use super::{REGISTERS, Report, SESSION, Shared, connect, live_path, register_path};
use crate::ensemble::history::{self, Action, Op, Outcome};

/// A member's nodes below `/load`.
type Tree = BTreeMap<String, (Stat, Bytes)>;

/// The number of printed differences between two trees; the others are counted.
const SHOWN: usize = 5;

/// Compares the clients' records with the members' state, closes the sessions, and checks that
/// their ephemeral nodes are deleted.
pub async fn judge(
    members: &[String],
    load_clients: Vec<LoadClient>,
    acknowledged: u64,
    shared: &Arc<Shared>,
) -> Result<Report> {
    let mut failures = Vec::new();
    let mut ops: Vec<Op> =
        load_clients.iter().flat_map(|load_client| load_client.ops.iter().cloned()).collect();
    let unknown = ops.iter().filter(|op| op.outcome == Outcome::Unknown).count();
    for load_client in &load_clients {
        let name = load_client.number;
        failures.extend(load_client.trouble.iter().map(|what| format!("client {name}: {what}")));
    }

    let mut trees = Vec::new();
    for (at, member) in members.iter().enumerate() {
        let began = shared.now();
        let tree = read(member).await.with_context(|| format!("reading from member {}", at + 1))?;
        let ended = shared.now();
        for register in 0..REGISTERS {
            let found =
                tree.get(&register_path(register)).and_then(|(stat, data)| seen(data, stat));
            match found {
                Some(seen) => ops.push(Op {
                    client: usize::MAX - at,
                    register,
                    action: Action::SyncedRead,
                    began,
                    ended,
                    outcome: Outcome::Done(seen),
                    server: None,
                }),
                None => failures.push(format!("member {} has no register {register}", at + 1)),
            }
        }
        trees.push(tree);
    }
    let mut stale = Vec::new();
    for broken in history::violations(&ops) {
        match broken.stale_on {
            Some(port) => stale.push((port, broken.what)),
            None => failures.push(broken.what),
        }
    }
    if let Some((first, others)) = trees.split_first() {
        for (at, tree) in others.iter().enumerate() {
            failures.extend(
                differences(first, tree).map(|what| format!("members 1 and {}: {what}", at + 2)),
            );
        }
        failures.extend(missing_from_line(first, &load_clients));
        failures.extend(missing_sessions(first, &load_clients));
    }

    for load_client in &load_clients {
        if let Err(error) = load_client.client.close().await {
            failures
                .push(format!("client {} could not end its session: {error}", load_client.number));
        }
    }
    for (at, member) in members.iter().enumerate() {
        let left: Vec<String> = read(member)
            .await?
            .into_keys()
            .filter(|path| path.starts_with("/load/live/"))
            .collect();
        if !left.is_empty() {
            failures.push(format!("member {} keeps {left:?} of sessions that have ended", at + 1));
        }
    }
    let reconnects = load_clients.iter().map(|load_client| load_client.reconnects).sum();
    Ok(Report { acknowledged, unknown, reconnects, stale, failures })
}

/// Reads all nodes of one member, after a sync.
async fn read(member: &str) -> Result<Tree> {
    let client: Client = connect(member, SESSION).await?;
    client.sync("/load").await?;
    let mut walk = client.walk("/load").with_data();
    let mut tree = Tree::new();
    while let Some(node) = walk.next().await {
        let node = node?;
        tree.insert(node.path, (node.stat, node.data.unwrap_or_default()));
    }
    client.close().await?;
    Ok(tree)
}

fn differences(one: &Tree, other: &Tree) -> impl Iterator<Item = String> {
    let paths: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let different: Vec<&String> =
        paths.into_iter().filter(|path| one.get(*path) != other.get(*path)).collect();
    let more = different.len().saturating_sub(SHOWN);
    let shown: Vec<String> = different
        .into_iter()
        .take(SHOWN)
        .map(|path| format!("{path} is {:?} here, {:?} there", one.get(path), other.get(path)))
        .collect();
    shown.into_iter().chain((more > 0).then(|| format!("{more} more nodes differ")))
}

/// Returns appended nodes that are missing, duplicated or unexpected.
fn missing_from_line(tree: &Tree, load_clients: &[LoadClient]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut acknowledged = BTreeSet::new();
    for (load_client, path) in load_clients
        .iter()
        .flat_map(|load_client| load_client.appended.iter().map(move |path| (load_client, path)))
    {
        if !acknowledged.insert(path) {
            failures.push(format!("{path} was given to two"));
        }
        let owner = tree.get(path).map(|(_, data)| data.as_ref());
        if owner != Some(load_client.number.to_string().as_bytes()) {
            failures.push(format!(
                "{path} of client {} was acknowledged, and is {owner:?}",
                load_client.number
            ));
        }
    }
    let there = tree.keys().filter(|path| path.starts_with("/load/log/")).count();
    let unknown: usize = load_clients.iter().map(|load_client| load_client.appended_unknown).sum();
    if there > acknowledged.len() + unknown {
        failures.push(format!(
            "{there} nodes in the line, of {} acknowledged and {unknown} unknown",
            acknowledged.len()
        ));
    }
    let more = failures.len().saturating_sub(SHOWN);
    failures.truncate(SHOWN);
    failures.extend((more > 0).then(|| format!("{more} more nodes of the line are wrong")));
    failures
}

/// Checks that each open session has its ephemeral node and owns it.
fn missing_sessions(tree: &Tree, load_clients: &[LoadClient]) -> Vec<String> {
    load_clients
        .iter()
        .filter_map(|load_client| {
            let owner =
                tree.get(&live_path(load_client.number)).map(|(stat, _)| stat.ephemeral_owner);
            let session = load_client.client.session_id().0;
            (owner != Some(session)).then(|| {
                format!(
                    "client {} lives as {session:?}; its node is of {owner:?}",
                    load_client.number
                )
            })
        })
        .collect()
}
