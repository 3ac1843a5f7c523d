//! Walks through all nodes of a subtree and reads what a command requires of each, with many
//! requests in flight.
//!
//! The order is depth first, each node before its children, siblings by name: the order of a drawn
//! tree, in which two walks can be compared side by side. The result is not a snapshot: nodes that
//! are deleted during the walk are omitted.

use std::cmp::Ordering;

use ironkeeper_client::{Acl, Client, Error, ErrorKind, Node, Reply, Stat};

use super::subtree::child;

/// The number of nodes that are read ahead. Their replies, with the data, are held in memory.
const IN_FLIGHT_MAX: usize = 64;

/// The subtree of nodes that belong to the server.
const SYSTEM: &str = "/zookeeper";

/// A node of the walk.
#[derive(Debug)]
pub struct Found {
    pub path: String,
    pub depth: usize,
    pub stat: Stat,
    /// The data, if requested. `Some(None)` is null data, which differs from empty data.
    pub data: Option<Option<bytes::Bytes>>,
    /// The access control list, if requested.
    pub acl: Vec<Acl>,
    /// Whether the node is the last child of its parent.
    pub last: bool,
}

impl Found {
    pub fn is_ephemeral(&self) -> bool {
        self.stat.ephemeral_owner != 0
    }

    /// Returns the data; empty if it is null or was not requested.
    pub fn bytes(&self) -> &[u8] {
        self.data.as_ref().and_then(Option::as_ref).map_or(&[], |data| &data[..])
    }
}

/// The result of one step.
#[derive(Debug)]
pub enum Step {
    Node(Box<Found>),
    /// A node without read permission; its subtree is skipped.
    Denied(Box<Denied>),
}

/// A node without read permission.
#[derive(Debug)]
pub struct Denied {
    pub path: String,
    pub depth: usize,
    pub last: bool,
    pub error: Error,
}

#[derive(Debug)]
pub struct NodeWalk {
    client: Client,
    with_data: bool,
    with_acl: bool,
    depth_max: usize,
    leaves_out_system: bool,
    /// The nodes still to be visited, the next one on top. The nodes near the top are already
    /// requested.
    stack: Vec<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    path: String,
    depth: usize,
    last: bool,
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    children: Reply<(Vec<String>, Stat)>,
    node: Option<Reply<Node>>,
    acl: Option<Reply<(Vec<Acl>, Stat)>>,
}

impl NodeWalk {
    pub fn new(client: &Client, root: &str) -> NodeWalk {
        let start = Ahead { path: root.to_owned(), depth: 0, last: true, asked: None };
        NodeWalk {
            client: client.clone(),
            with_data: false,
            with_acl: false,
            depth_max: usize::MAX,
            leaves_out_system: false,
            stack: vec![start],
        }
    }

    pub fn with_data(mut self, wanted: bool) -> NodeWalk {
        self.with_data = wanted;
        self
    }

    pub fn with_acl(mut self, wanted: bool) -> NodeWalk {
        self.with_acl = wanted;
        self
    }

    /// Limits the depth; zero is the root alone.
    pub fn depth_max(mut self, depth: usize) -> NodeWalk {
        self.depth_max = depth;
        self
    }

    /// Omits `/zookeeper` unless the walk starts inside it: the membership and the quotas there
    /// belong to the server. With a chroot there is nothing to omit.
    pub fn without_system(mut self) -> NodeWalk {
        self.leaves_out_system = self.client.chroot() == "/";
        self
    }

    /// Returns the next node; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Step>, Error> {
        loop {
            let ahead = self.stack.len().saturating_sub(IN_FLIGHT_MAX);
            for next in self.stack[ahead..].iter_mut().rev() {
                let (client, path) = (&self.client, &next.path);
                next.asked.get_or_insert_with(|| Asked {
                    children: client.children_and_stat(path),
                    node: self.with_data.then(|| client.get(path)),
                    acl: self.with_acl.then(|| client.get_acl(path)),
                });
            }
            let Some(Ahead { path, depth, last, asked }) = self.stack.pop() else {
                return Ok(None);
            };
            let asked = asked.expect("the topmost ones have been asked for");
            match asked.answered().await {
                Ok((names, stat, data, acl)) => {
                    self.push_children(&path, depth, names);
                    let found = Found { path, depth, stat, data, acl, last };
                    return Ok(Some(Step::Node(Box::new(found))));
                }
                Err(error) if error.kind() == ErrorKind::NoNode && depth > 0 => {}
                Err(error) if error.kind() == ErrorKind::NoAuth => {
                    return Ok(Some(Step::Denied(Box::new(Denied { path, depth, last, error }))));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the next node, for commands that fail at a node without read permission.
    pub async fn next_readable(&mut self) -> Result<Option<Found>, Error> {
        match self.next().await? {
            Some(Step::Node(found)) => Ok(Some(*found)),
            Some(Step::Denied(denied)) => Err(denied.error),
            None => Ok(None),
        }
    }

    fn push_children(&mut self, parent: &str, depth: usize, mut names: Vec<String>) {
        if depth >= self.depth_max {
            return;
        }
        // In reverse order, because the stack reverses them again.
        names.sort_unstable_by(|a, b| b.cmp(a));
        let mut last = true;
        for name in names {
            let path = child(parent, &name);
            if self.leaves_out_system && path == SYSTEM {
                continue;
            }
            self.stack.push(Ahead { path, depth: depth + 1, last, asked: None });
            last = false;
        }
    }
}

type Answer = (Vec<String>, Stat, Option<Option<bytes::Bytes>>, Vec<Acl>);

impl Asked {
    async fn answered(self) -> Result<Answer, Error> {
        let (names, mut stat) = self.children.await?;
        let mut data = None;
        if let Some(reply) = self.node {
            let node = reply.await?;
            // The Stat must be the one that belongs to the data.
            stat = node.stat;
            data = Some(if node.is_null() { None } else { Some(node.data) });
        }
        let acl = match self.acl {
            Some(reply) => reply.await?.0,
            None => Vec::new(),
        };
        Ok((names, stat, data, acl))
    }
}

/// Returns the part of a path below `root`, which must be a prefix of it: empty for the root
/// itself, otherwise starting with a slash.
pub fn below<'a>(root: &str, path: &'a str) -> &'a str {
    match root {
        "/" if path == "/" => "",
        "/" => path,
        _ => path.strip_prefix(root).unwrap_or(path),
    }
}

/// Returns the path that has the relative path `rest` below `root`; see [`below`].
pub fn under(root: &str, rest: &str) -> String {
    match (root, rest) {
        (_, "") => root.to_owned(),
        ("/", _) => rest.to_owned(),
        _ => format!("{root}{rest}"),
    }
}

/// Compares paths in the order of a walk: name by name, a node before its descendants.
pub fn compare(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_moved_from_root_to_root() {
        for (root, path, rest) in
            [("/", "/", ""), ("/", "/a/b", "/a/b"), ("/a", "/a", ""), ("/a", "/a/b/c", "/b/c")]
        {
            assert_eq!(below(root, path), rest);
            assert_eq!(under(root, rest), path);
        }
        assert_eq!(under("/x", ""), "/x");
        assert_eq!(under("/x", "/y"), "/x/y");
    }

    #[test]
    fn a_node_comes_before_what_is_below_it_and_that_before_its_sibling() {
        // As strings, `/a-b` < `/a/b`; in a walk `/a/b` comes first.
        let mut paths = ["/a-b", "/a", "/a/b", "", "/b"];
        paths.sort_by(|a, b| compare(a, b));
        assert_eq!(paths, ["", "/a", "/a/b", "/a-b", "/b"]);
    }
}
