//! The operations of the multi that make an attempt serializable. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ironkeeper_client::{CreateMode, Transaction};

use crate::stm::attempt::Footprint;

/// One operation of the multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Check { path: String, version: i32 },
    Create { path: String, data: Bytes },
    Set { path: String, data: Bytes, version: i32 },
    Delete { path: String, version: i32 },
}

/// Returns the operations in an order in which the server can apply them: parents are created
/// before their children and deleted after them.
pub(super) fn operations(footprint: &Footprint) -> Vec<Operation> {
    let Footprint { reads, writes, .. } = footprint;
    let (mut creates, mut deletes) = (Vec::new(), Vec::new());
    let mut others: BTreeMap<&str, Operation> = BTreeMap::new();
    // Parents whose lists of children change.
    let mut shifted: BTreeSet<&str> = BTreeSet::new();
    for (path, cell) in reads {
        let Some(cell) = cell else { continue };
        let (path, version) = (path.clone(), cell.version);
        others.insert(path_of(reads, &path), Operation::Check { path, version });
    }
    for (path, wanted) in writes {
        let was = reads.get(path).and_then(Option::as_ref);
        match (was, wanted) {
            (Some(cell), Some(data)) => {
                let (version, data) = (cell.version, data.clone());
                others.insert(path, Operation::Set { path: path.clone(), data, version });
            }
            (Some(cell), None) => {
                others.remove(&**path);
                shifted.extend(parent(path));
                deletes.push(Operation::Delete { path: path.clone(), version: cell.version });
            }
            (None, Some(data)) => {
                shifted.extend(parent(path));
                creates.push(Operation::Create { path: path.clone(), data: data.clone() });
            }
            (None, None) => {}
        }
    }
    for parent in shifted {
        // A parent that is created, written or deleted itself needs no other write.
        if let (Some(Operation::Check { version, .. }), Some(Some(cell))) =
            (others.get(parent), reads.get(parent))
        {
            let (path, data, version) = (parent.to_owned(), cell.data.clone(), *version);
            others.insert(parent, Operation::Set { path, data, version });
        }
    }
    deletes.reverse();
    // Checks and sets first: the version of a parent is compared before its children change.
    others.into_values().chain(creates).chain(deletes).collect()
}

/// Returns the key as stored in the map, with the lifetime of the map.
fn path_of<'a, T>(reads: &'a BTreeMap<String, T>, path: &str) -> &'a str {
    reads.get_key_value(path).map_or("", |(path, _)| path)
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent })
}

/// Adds the operations to a transaction.
pub(super) fn add(operations: &[Operation], mut to: Transaction) -> Transaction {
    for operation in operations {
        to = match operation {
            Operation::Check { path, version } => to.check(path, *version),
            Operation::Create { path, data } => to.create(path, data, CreateMode::Persistent),
            Operation::Set { path, data, version } => to.set(path, data, *version),
            Operation::Delete { path, version } => to.delete(path, *version),
        };
    }
    to
}

#[cfg(test)]
mod tests {
    use super::super::attempt::Cell;
    use super::*;

    /// Reads as "path version" or "path -"; writes as "path data" or "path -".
    #[track_caller]
    fn check(reads: &[&str], writes: &[&str], expected: &[&str]) {
        let mut footprint = Footprint::default();
        for text in reads {
            let (path, version) = text.split_once(' ').unwrap();
            let cell = version.parse().ok().map(|version| Cell { data: "old".into(), version });
            footprint.reads.insert(path.to_owned(), cell);
        }
        for text in writes {
            let (path, data) = text.split_once(' ').unwrap();
            let data = (data != "-").then(|| Bytes::copy_from_slice(data.as_bytes()));
            footprint.writes.insert(path.to_owned(), data);
        }
        let told: Vec<String> = operations(&footprint)
            .iter()
            .map(|operation| match operation {
                Operation::Check { path, version } => format!("check {path} {version}"),
                Operation::Create { path, .. } => format!("create {path}"),
                Operation::Set { path, data, version } => {
                    format!("set {path} {version} {}", String::from_utf8_lossy(data))
                }
                Operation::Delete { path, version } => format!("delete {path} {version}"),
            })
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn what_was_only_read_is_checked() {
        check(&["/m 1", "/m/a 2", "/m/b -"], &[], &["check /m 1", "check /m/a 2"]);
    }

    #[test]
    fn a_written_cell_needs_no_check_of_its_own() {
        check(&["/m 1", "/m/a 2"], &["/m/a new"], &["check /m 1", "set /m/a 2 new"]);
    }

    #[test]
    fn the_parent_is_marked_when_a_child_comes_or_goes() {
        check(&["/m 1", "/m/a -"], &["/m/a new"], &["set /m 1 old", "create /m/a"]);
        check(&["/m 1", "/m/a 2"], &["/m/a -"], &["set /m 1 old", "delete /m/a 2"]);
        // With its new data, if the parent is written too.
        check(&["/m 1", "/m/a -"], &["/m/a new", "/m x"], &["set /m 1 x", "create /m/a"]);
        // A cell that is missing before and after is not changed.
        check(&["/m 1", "/m/a -"], &["/m/a -"], &["check /m 1"]);
    }

    #[test]
    fn parents_come_before_and_go_after_their_children() {
        check(
            &["/m 1", "/m/a -"],
            &["/m/a/b/c x", "/m/a x", "/m/a/b x"],
            &["set /m 1 old", "create /m/a", "create /m/a/b", "create /m/a/b/c"],
        );
        check(
            &["/m 1", "/m/a 2", "/m/a/b 3"],
            &["/m/a -", "/m/a/b -"],
            &["set /m 1 old", "delete /m/a/b 3", "delete /m/a 2"],
        );
    }
}
