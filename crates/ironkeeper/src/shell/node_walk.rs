//! Every node of a subtree with whatever a command wants of it, many requests in flight.
//!
//! Nodes come depth first, each before its children, siblings by name: the order of a drawn tree, and one in
//! which two walks can be compared side by side. What comes out is not a snapshot: nodes that go away while
//! the walk is under way are left out.

use std::cmp::Ordering;

use ironkeeper_client::{Acl, Client, Error, ErrorKind, Node, Reply, Stat};

use super::subtree::child;

/// Nodes asked for ahead. The replies wait in memory, data and all.
const IN_FLIGHT_MAX: usize = 64;

/// The subtree in which servers keep their own things.
const SYSTEM: &str = "/zookeeper";

/// A node that was met.
#[derive(Debug)]
pub struct Found {
    pub path: String,
    pub depth: usize,
    pub stat: Stat,
    /// Data that was asked for. `Some(None)` is null data, which differs from no bytes.
    pub data: Option<Option<bytes::Bytes>>,
    /// The list that was asked for.
    pub acl: Vec<Acl>,
    /// Whether it is the last of its parent's children.
    pub last: bool,
}

impl Found {
    pub fn is_ephemeral(&self) -> bool {
        self.stat.ephemeral_owner != 0
    }

    /// The bytes of the data, none if it is null or was not asked for.
    pub fn bytes(&self) -> &[u8] {
        self.data.as_ref().and_then(Option::as_ref).map_or(&[], |data| &data[..])
    }
}

/// What a step of the walk comes to.
#[derive(Debug)]
pub enum Step {
    Node(Box<Found>),
    /// A node that must not be read, and with it all that is below.
    Denied(Box<Denied>),
}

/// A node that must not be read.
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
    /// What is still to be visited, the next on top. Those near the top have been asked for.
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

    /// Zero is the start alone.
    pub fn depth_max(mut self, depth: usize) -> NodeWalk {
        self.depth_max = depth;
        self
    }

    /// Leaves out `/zookeeper` unless the walk starts inside it: the configuration and the quotas there belong
    /// to their server. With a chroot there is nothing to leave out.
    pub fn without_system(mut self) -> NodeWalk {
        self.leaves_out_system = self.client.chroot() == "/";
        self
    }

    /// The next node; `None` when all is done.
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

    /// The next node, for commands to which a node that must not be read is the end.
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
        // The last name first: the stack turns them around.
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
            // The data and its version belong together.
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

/// The part of a path below a root it starts with: empty for the root itself, else with a slash in front.
pub fn below<'a>(root: &str, path: &'a str) -> &'a str {
    match root {
        "/" if path == "/" => "",
        "/" => path,
        _ => path.strip_prefix(root).unwrap_or(path),
    }
}

/// The path that is to another root what `rest` is to its own; see [`below`].
pub fn under(root: &str, rest: &str) -> String {
    match (root, rest) {
        (_, "") => root.to_owned(),
        ("/", _) => rest.to_owned(),
        _ => format!("{root}{rest}"),
    }
}

/// The order in which a walk meets paths: name by name, a node before what is below it.
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
        // As text `/a-b` is before `/a/b`, in a walk it is behind it.
        let mut paths = ["/a-b", "/a", "/a/b", "", "/b"];
        paths.sort_by(|a, b| compare(a, b));
        assert_eq!(paths, ["", "/a", "/a/b", "/a-b", "/b"]);
    }
}
