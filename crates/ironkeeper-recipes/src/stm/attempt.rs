//! One run of a transaction's body: its reads, and its pending writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{RecipeError, Result};
use crate::place::{join, patient, refuse_bad_name};
use crate::reads::children_or_none;
use crate::shared::write::refuse_wild_version;

/// A cell as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) data: Bytes,
    pub(super) version: i32,
}

/// The reads and the pending writes, by path; `None` for a cell that does not exist or is to be
/// deleted.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    pub(super) reads: BTreeMap<String, Option<Cell>>,
    pub(super) writes: BTreeMap<String, Option<Bytes>>,
    /// The children of the cells that were listed.
    lists: BTreeMap<String, BTreeSet<String>>,
    is_over: bool,
}

/// The handle by which the body of a transaction reads and writes. Clones are the same attempt.
///
/// Reads of one attempt may be of different moments. If they are inconsistent, the attempt is
/// discarded; the body must not have effects outside of the memory that cannot be discarded.
#[derive(Clone, Debug)]
pub struct Attempt {
    client: Client,
    root: Arc<str>,
    footprint: Arc<Mutex<Footprint>>,
}

impl Attempt {
    pub(super) fn new(client: &Client, root: &Arc<str>) -> Attempt {
        Attempt { client: client.clone(), root: root.clone(), footprint: Arc::default() }
    }

    fn footprint(&self) -> MutexGuard<'_, Footprint> {
        // A panic under this lock leaves no partial change.
        self.footprint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the attempt, and returns its reads and pending writes.
    pub(super) fn finish(&self) -> Footprint {
        let over = Footprint { is_over: true, ..Footprint::default() };
        std::mem::replace(&mut self.footprint(), over)
    }

    /// Returns the data of a cell; `None` if it does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>> {
        let path = self.inside(path)?;
        if let Some(written) = self.footprint().writes.get(path) {
            return Ok(written.clone());
        }
        Ok(self.read(path).await?.map(|cell| cell.data))
    }

    /// Returns the value of a cell, decoded from JSON. Returns an error if it cannot be decoded.
    pub async fn get_as<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(data) = self.get(path).await? else { return Ok(None) };
        match serde_json::from_slice(&data) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                Err(RecipeError::Malformed { path: path.to_owned(), why: error.to_string() })
            }
        }
    }

    /// Writes data to a cell. The cell and its parents are created if they do not exist.
    pub async fn put(&self, path: &str, data: impl Into<Bytes>) -> Result<()> {
        let path = self.inside(path)?;
        self.read(path).await?;
        let mut missing = Vec::new();
        let mut above = self.parent(path);
        while let Some(parent) = above {
            if self.get(parent).await?.is_some() {
                break;
            }
            missing.push(parent);
            above = self.parent(parent);
        }
        let mut footprint = self.footprint();
        for parent in missing {
            footprint.writes.insert(parent.to_owned(), Some(Bytes::new()));
        }
        footprint.writes.insert(path.to_owned(), Some(data.into()));
        Ok(())
    }

    /// Writes a value to a cell, as JSON.
    pub async fn put_as<T: Serialize>(&self, path: &str, value: &T) -> Result<()> {
        match serde_json::to_vec(value) {
            Ok(json) => self.put(path, json).await,
            Err(error) => Err(RecipeError::Misuse(format!("{path}: {error}"))),
        }
    }

    /// Deletes a cell. Returns whether it existed. The commit fails if the cell has children then.
    pub async fn delete(&self, path: &str) -> Result<bool> {
        let path = self.inside(path)?;
        if path == &*self.root {
            return Err(RecipeError::Misuse(format!("{path}: the root of a memory stays")));
        }
        let was_there = self.get(path).await?.is_some();
        self.footprint().writes.insert(path.to_owned(), None);
        Ok(was_there)
    }

    /// Returns the names of a cell's children, sorted; none if the cell does not exist.
    pub async fn children(&self, path: &str) -> Result<Vec<String>> {
        let path = self.inside(path)?;
        let is_there = self.read(path).await?.is_some();
        let known = self.footprint().lists.get(path).cloned();
        let mut names = match known {
            Some(names) => names,
            None if is_there => {
                let names: BTreeSet<String> =
                    children_or_none(&self.client, path).await?.into_iter().collect();
                self.footprint().lists.insert(path.to_owned(), names.clone());
                names
            }
            None => BTreeSet::new(),
        };
        for (written, data) in &self.footprint().writes {
            if self.parent(written) != Some(path) {
                continue;
            }
            let (_, name) = written.rsplit_once('/').unwrap_or_default();
            match data {
                Some(_) => names.insert(name.to_owned()),
                None => names.remove(name),
            };
        }
        Ok(names.into_iter().collect())
    }

    /// Reads a cell and all cells above it, because its existence depends on them.
    async fn read(&self, path: &str) -> Result<Option<Cell>> {
        let mut line = vec![path];
        while let Some(parent) = line.last().and_then(|path| self.parent(path)) {
            line.push(parent);
        }
        let mut cell = None;
        for path in line.into_iter().rev() {
            cell = self.read_one(path).await?;
            if cell.is_none() {
                break;
            }
        }
        Ok(cell)
    }

    async fn read_one(&self, path: &str) -> Result<Option<Cell>> {
        {
            let footprint = self.footprint();
            if footprint.is_over {
                let why = format!("{path}: used after the end of its transaction");
                return Err(RecipeError::Misuse(why));
            }
            if let Some(cell) = footprint.reads.get(path) {
                return Ok(cell.clone());
            }
        }
        let cell = match self.client.retry(&patient(), || self.client.get(path)).await {
            Ok(node) => {
                refuse_wild_version(path, node.stat.version)?;
                Some(Cell { data: node.data, version: node.stat.version })
            }
            Err(error) if error.kind() == ErrorKind::NoNode => None,
            Err(error) => return Err(error.into()),
        };
        // Another task of the body may have read the cell first; then that result is used.
        let mut footprint = self.footprint();
        Ok(footprint.reads.entry(path.to_owned()).or_insert(cell).clone())
    }

    /// Returns the path if it belongs to the memory, else an error.
    fn inside<'p>(&self, path: &'p str) -> Result<&'p str> {
        let is_root = path == &*self.root;
        let rest = path.strip_prefix(&*join(&self.root, ""));
        match rest {
            _ if is_root => Ok(path),
            Some(rest) => {
                rest.split('/').try_for_each(|name| refuse_bad_name(path, name))?;
                Ok(path)
            }
            None => Err(RecipeError::Misuse(format!("{path}: not below {}", self.root))),
        }
    }

    /// Returns the parent cell, if it belongs to the memory.
    fn parent<'p>(&self, path: &'p str) -> Option<&'p str> {
        if path == &*self.root {
            return None;
        }
        path.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent })
    }
}
