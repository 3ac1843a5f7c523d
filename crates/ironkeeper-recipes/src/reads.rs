//! Reads for which a node that is not there is an answer, repeated until there is one.

use ironkeeper_client::{Client, ErrorKind, Node};

use crate::error::Result;
use crate::place::{join, patient};

/// How many reads are under way at once.
const BATCH: usize = 64;

/// The node; `None` if it is not there.
pub(crate) async fn get_or_none(client: &Client, path: &str) -> Result<Option<Node>> {
    match client.retry(&patient(), || client.get(path)).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
        node => Ok(Some(node?)),
    }
}

/// The names of a node's children; none if it is not there.
pub(crate) async fn children_or_none(client: &Client, path: &str) -> Result<Vec<String>> {
    match client.retry(&patient(), || client.children(path)).await {
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(Vec::new()),
        names => Ok(names?),
    }
}

/// Children of a node in the order of their names given; `None` for those that are gone. The reads of
/// one batch travel together.
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
