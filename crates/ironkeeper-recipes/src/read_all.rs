//! Many nodes read together, a bounded number at a time.

use ironkeeper_client::{Client, ErrorKind, Node};

use crate::error::Result;
use crate::place::{join, patient};

/// Reads under way at a time.
const WINDOW: usize = 64;

/// The children of a path; none if there is no such node.
pub(crate) async fn names_below(client: &Client, path: &str) -> Result<Vec<String>> {
    match client.retry(&patient(), || client.children(path)).await {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Reads children of a path, in the order given. Those that are gone are `None`.
pub(crate) async fn read_all(
    client: &Client,
    parent: &str,
    names: impl IntoIterator<Item = &str>,
) -> Result<Vec<Option<Node>>> {
    let paths: Vec<String> = names.into_iter().map(|name| join(parent, name)).collect();
    let mut nodes = Vec::with_capacity(paths.len());
    for batch in paths.chunks(WINDOW) {
        let reads: Vec<_> = batch.iter().map(|path| client.get(path)).collect();
        for (path, read) in batch.iter().zip(reads) {
            let node = match read.await {
                Err(error) if error.is_retriable() => {
                    client.retry(&patient(), || client.get(path)).await
                }
                other => other,
            };
            nodes.push(match node {
                Ok(node) => Some(node),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) => return Err(error.into()),
            });
        }
    }
    Ok(nodes)
}
