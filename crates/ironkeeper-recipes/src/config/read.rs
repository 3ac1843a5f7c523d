//! Consistent reads of a whole configuration.

use std::collections::BTreeMap;

use ironkeeper_client::{Client, ErrorKind, Node, OpResult};

use crate::config::snapshot::Snapshot;
use crate::error::{RecipeError, Result};
use crate::escape::{from_name, to_name};
use crate::place::{join, patient};
use crate::reads::children_or_none;

/// The paths of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    pub(super) root: String,
    pub(super) values: String,
    pub(super) history: String,
}

impl Paths {
    pub(super) fn new(root: String) -> Paths {
        Paths { values: join(&root, "values"), history: join(&root, "history"), root }
    }

    pub(super) fn value(&self, key: &str) -> String {
        join(&self.values, &to_name(key))
    }

    /// Returns the path of a revision in the history. The names sort as the numbers do.
    pub(super) fn revision(&self, number: u64) -> String {
        join(&self.history, &format!("{number:010}"))
    }
}

/// Reads everything. Returns `None` if the configuration does not exist.
///
/// The names are listed first, because the request for the values contains them. That request lists
/// the names again; if they have changed, the read starts over.
pub(super) async fn read(client: &Client, paths: &Paths) -> Result<Option<Snapshot>> {
    loop {
        let names = children_or_none(client, &paths.values).await?;
        let reading = || {
            let all = client.multi_read().get(&paths.root).children(&paths.values);
            names.iter().fold(all, |all, name| all.get(&join(&paths.values, name))).send()
        };
        let mut results = client.retry(&patient(), reading).await?.into_iter();
        let root = match results.next() {
            Some(Ok(OpResult::Node(node))) => node,
            Some(Err(error)) if error.kind() == ErrorKind::NoNode => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
            _ => return Err(unanswered(paths)),
        };
        let present = match results.next() {
            Some(Ok(OpResult::Children(present))) => present,
            // The configuration is being created.
            Some(Err(error)) if error.kind() == ErrorKind::NoNode => Vec::new(),
            Some(Err(error)) => return Err(error.into()),
            _ => return Err(unanswered(paths)),
        };
        if present.len() != names.len() || present.iter().any(|name| !names.contains(name)) {
            continue;
        }
        let mut values = BTreeMap::new();
        for (name, result) in names.iter().zip(results) {
            let node = match result {
                Ok(OpResult::Node(node)) => node,
                Err(error) => return Err(error.into()),
                Ok(_) => return Err(unanswered(paths)),
            };
            // A name that `to_name` cannot produce was not created by this recipe.
            if let Some(key) = from_name(name) {
                values.insert(key, node.data);
            }
        }
        let revision = revision_of(&root, paths)?;
        let (zxid, version) = (root.stat.mzxid, root.stat.version);
        return Ok(Some(Snapshot { paths: paths.clone(), revision, zxid, version, values }));
    }
}

fn revision_of(root: &Node, paths: &Paths) -> Result<u64> {
    // An existing empty node is used as a new configuration.
    if root.data.is_empty() {
        return Ok(0);
    }
    let number = std::str::from_utf8(&root.data).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| RecipeError::Malformed {
        path: paths.root.clone(),
        why: "not a configuration: its data is not the number of a revision".to_owned(),
    })
}

fn unanswered(paths: &Paths) -> RecipeError {
    RecipeError::Malformed {
        path: paths.root.clone(),
        why: "the server has answered something else than it was asked for".to_owned(),
    }
}
