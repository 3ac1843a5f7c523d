//! Walking a subtree by asking for children, many requests in flight.
//!
//! What comes out is not a snapshot: nodes that go away while the walk is under way are left out.

use std::collections::VecDeque;

use ironkeeper_client::{Client, Error, ErrorKind, Reply};

use super::failure::Outcome;

/// Requests in flight. More does not make it faster, and the replies wait in memory.
const IN_FLIGHT_MAX: usize = 64;

/// The path of a child.
pub fn child(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// A subtree level by level, the root of it first. Every node comes before its children, so the list read
/// backwards is an order in which all of it can be deleted.
pub async fn level_by_level(
    client: &Client,
    root: &str,
    mut visited: impl FnMut(u64),
) -> Outcome<Vec<String>> {
    let mut paths = vec![root.to_owned()];
    // How many of `paths` have been asked for, and the replies that are under way.
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

/// A subtree in zkCli's order: the children of a node by name, then the children of the first of them, and so on.
#[derive(Debug)]
pub struct DepthFirst {
    client: Client,
    /// What is still to be asked, the next on top. Those near the top are asked for in advance.
    stack: Vec<(String, Option<Reply<Vec<String>>>)>,
    at_root: bool,
    /// Nodes below the root whose children must not be listed.
    denied: Vec<Error>,
}

impl DepthFirst {
    pub fn new(client: &Client, root: &str) -> DepthFirst {
        let stack = vec![(root.to_owned(), None)];
        DepthFirst { client: client.clone(), stack, at_root: true, denied: Vec::new() }
    }

    /// What was met since the last call and must not be read.
    pub fn take_denied(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.denied)
    }

    /// The paths of the children of the next node; `None` when all is done.
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

/// A node that went away meanwhile has no children. The root of the walk has to be there.
fn vanished_is_empty(
    answer: Result<Vec<String>, Error>,
    is_root: bool,
) -> Result<Vec<String>, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::NoNode && !is_root => Ok(Vec::new()),
        other => other,
    }
}
