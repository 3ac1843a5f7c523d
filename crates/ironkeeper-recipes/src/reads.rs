//! Reads that return `None` for a missing node, and are retried after a lost connection.

use ironkeeper_client::{Client, ErrorKind, Node};

use crate::error::Result;
use crate::place::{join, patient};

/// The maximum number of reads in flight.
const BATCH: usize = 64;

/// Returns the node; `None` if it does not exist.
pub(crate) async fn get_or_none(client: &Client, path: &str) -> Result<Option<Node>> {
    match client.retry(&patient(), || client.get(path)).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
        node => Ok(Some(node?)),
    }
}

/// Returns the names of a node's children; none if the node does not exist.
pub(crate) async fn children_or_none(client: &Client, path: &str) -> Result<Vec<String>> {
    match client.retry(&patient(), || client.children(path)).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(Vec::new()),
        names => Ok(names?),
    }
}

/// Returns children of a node in the order of the given names; `None` for a child that does not
/// exist. The reads of one batch are sent together.
pub(crate) async fn get_children<'a>(
    client: &Client,
    parent: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Option<Node>>> {
    let paths: Vec<String> = names.into_iter().map(|name| join(parent, name)).collect();
    let mut nodes = Vec::with_capacity(paths.len());
    for batch in paths.chunks(BATCH) {
        let reads: Vec<_> = batch.iter().map(|path| client.get(path)).collect();
        for (path, read) in batch.iter().zip(reads) {
            nodes.push(match read.await {
                Ok(node) => Some(node),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) if error.is_retriable() => get_or_none(client, path).await?,
                Err(error) => return Err(error.into()),
            });
        }
    }
    Ok(nodes)
}
