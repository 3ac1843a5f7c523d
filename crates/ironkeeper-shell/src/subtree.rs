//! Walks through a subtree by getChildren, with many requests in flight.
//!
//! The result is not a snapshot: nodes that are deleted during the walk are omitted.

use std::collections::VecDeque;

use ironkeeper_client::{Client, Error, ErrorKind, Reply};

use super::failure::Outcome;

/// The number of requests in flight. A larger number is not faster, and the replies are held in
/// memory.
const IN_FLIGHT_MAX: usize = 64;

/// Returns the path of a child.
pub fn child(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// Returns the paths of a subtree level by level, starting with the root. Every node precedes its
/// children, so in reverse order all of them can be deleted.
pub async fn level_by_level(
    client: &Client,
    root: &str,
    mut visited: impl FnMut(u64),
) -> Outcome<Vec<String>> {
    let mut paths = vec![root.to_owned()];
    // The number of `paths` that are already requested, and the replies in flight.
    let mut asked = 0;
    let mut replies: VecDeque<(usize, Reply<Vec<String>>)> = VecDeque::new();
    loop {
        while asked < paths.len() && replies.len() < IN_FLIGHT_MAX {
            replies.push_back((asked, client.children(&paths[asked])));
            asked += 1;
        }
        let Some((of, reply)) = replies.pop_front() else { return Ok(paths) };
        let names = vanished_is_empty(reply.await, of == 0)?;
        visited(names.len() as u64);
        let parent = paths[of].clone();
        paths.extend(names.iter().map(|name| child(&parent, name)));
    }
}

/// A walk in zkCli's order: the children of a node by name, then the children of the first child,
/// and so on.
#[derive(Debug)]
pub struct DepthFirst {
    client: Client,
    /// The nodes still to be listed, the next one on top. The nodes near the top are already
    /// requested.
    stack: Vec<(String, Option<Reply<Vec<String>>>)>,
    at_root: bool,
    /// The errors of nodes below the root whose children cannot be listed.
    denied: Vec<Error>,
}

impl DepthFirst {
    pub fn new(client: &Client, root: &str) -> DepthFirst {
        let stack = vec![(root.to_owned(), None)];
        DepthFirst { client: client.clone(), stack, at_root: true, denied: Vec::new() }
    }

    /// Returns the permission errors since the last call.
    pub fn take_denied(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.denied)
    }

    /// Returns the paths of the children of the next node; `None` at the end.
    pub async fn next(&mut self) -> Outcome<Option<Vec<String>>> {
        let ahead = self.stack.len().saturating_sub(IN_FLIGHT_MAX);
        for (path, reply) in self.stack[ahead..].iter_mut().rev() {
            reply.get_or_insert_with(|| self.client.children(path));
        }
        let Some((parent, reply)) = self.stack.pop() else { return Ok(None) };
        let reply = reply.expect("the topmost ones have been asked for");
        let mut names = match vanished_is_empty(reply.await, self.at_root) {
            Err(error) if error.kind() == ErrorKind::NoAuth && !self.at_root => {
                self.denied.push(error);
                Vec::new()
            }
            answer => answer?,
        };
        self.at_root = false;
        names.sort_unstable();
        let paths: Vec<String> = names.iter().map(|name| child(&parent, name)).collect();
        self.stack.extend(paths.iter().rev().map(|path| (path.clone(), None)));
        Ok(Some(paths))
    }
}

/// Treats a node that was deleted meanwhile as a node without children. The root of the walk must
/// exist.
fn vanished_is_empty(
    answer: Result<Vec<String>, Error>,
    is_root: bool,
) -> Result<Vec<String>, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::NoNode && !is_root => Ok(Vec::new()),
        other => other,
    }
}
