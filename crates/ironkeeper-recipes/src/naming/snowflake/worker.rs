//! The number of a worker, and the time up to which its holder may create ids.
//!
//! The ephemeral node of a number only shows other clients that the number is in use. The
//! persistent node with the time makes the ids unique: a new holder writes that node, conditional
//! on the version it has read, before it creates an id, and uses later times only. A former holder
//! that has not noticed the loss stays below the time that it has written itself, and cannot write
//! another one.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_client::{Client, CreateMode, ErrorKind, Node, Version};

use crate::error::{RecipeError, Result};
use crate::lost::Lost;
use crate::place::{Place, create_containers, join, patient};
use crate::reads::{children_or_none, get_children, get_or_none};
use crate::shared::write::refuse_wild_version;

/// The paths of the nodes.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) root: String,
    pub(super) workers: String,
    pub(super) times: String,
}

impl Paths {
    pub(super) fn below(root: String) -> Paths {
        Paths { workers: join(&root, "workers"), times: join(&root, "times"), root }
    }
}

/// A number that this client holds.
#[derive(Debug)]
pub(super) struct Worker {
    client: Client,
    pub(super) number: u32,
    place: Place,
    /// Distinguishes our writes of the time from the writes of other holders.
    mark: String,
    time: String,
    version: i32,
    /// The latest time that an id may have.
    pub(super) reserved_ms: i64,
}

impl Worker {
    /// Takes the smallest free number whose last time is at most `ahead_max_ms` ahead of `now_ms`.
    /// Returns that last time as well: all new ids have to be later.
    pub(super) async fn lease(
        client: &Client,
        paths: &Paths,
        numbers: u32,
        now_ms: i64,
        ahead_max_ms: i64,
    ) -> Result<(Worker, i64)> {
        let mut behind_ms: Option<i64> = None;
        let taken = children_or_none(client, &paths.workers).await?;
        let taken: BTreeSet<String> = taken.into_iter().collect();
        let used = children_or_none(client, &paths.times).await?;
        let nodes = get_children(client, &paths.times, used.iter().map(String::as_str)).await?;
        let nodes: BTreeMap<&str, Option<Node>> =
            used.iter().map(String::as_str).zip(nodes).collect();
        for number in 0..numbers {
            let name = number.to_string();
            if taken.contains(&name) {
                continue;
            }
            let time = join(&paths.times, &name);
            if let Some(Some(node)) = nodes.get(name.as_str()) {
                let ahead = time_of(&node.data, &time)?.saturating_sub(now_ms);
                if ahead > ahead_max_ms {
                    behind_ms = Some(behind_ms.map_or(ahead, |least| least.min(ahead)));
                    continue;
                }
            }
            let mark = client.random_uuid();
            let path = join(&paths.workers, &name);
            let Some(place) = Place::claim(client, &path, mark.as_bytes()).await? else { continue };
            let client = client.clone();
            let (version, reserved_ms) = (0, i64::MIN);
            let mut worker = Worker { client, number, place, mark, time, version, reserved_ms };
            let last_ms = worker.take_over(now_ms).await?;
            return Ok((worker, last_ms));
        }
        let path = paths.root.clone();
        Err(match behind_ms {
            Some(behind_ms) => RecipeError::ClockBehind { path, behind_ms },
            None => RecipeError::Exhausted { path, what: "no number of a worker is free" },
        })
    }

    /// Writes the time node for the first time, and returns the time that it had before.
    async fn take_over(&mut self, now_ms: i64) -> Result<i64> {
        loop {
            let found = get_or_none(&self.client, &self.time).await?;
            let last_ms = match &found {
                Some(node) => time_of(&node.data, &self.time)?,
                None => now_ms.saturating_sub(1),
            };
            let Some(node) = found else {
                let (client, data) = (&self.client, self.data(last_ms));
                let mode = CreateMode::Persistent;
                match client.create_idempotent(&self.time, &data, mode, &patient()).await {
                    Ok(created) => {
                        self.version = created.stat.version;
                        self.reserved_ms = last_ms;
                        return Ok(last_ms);
                    }
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        create_containers(client, &self.time).await?;
                    }
                    Err(error) if error.kind() == ErrorKind::NodeExists => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            self.version = node.stat.version;
            match self.write(last_ms).await {
                Ok(()) => return Ok(last_ms),
                // The previous holder has written once more: read again.
                Err(RecipeError::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reserves the time up to `until_ms`. Returns [`RecipeError::Lost`] if the number has another
    /// holder.
    pub(super) async fn write(&mut self, until_ms: i64) -> Result<()> {
        let data = self.data(until_ms);
        loop {
            refuse_wild_version(&self.time, self.version)?;
            let client = &self.client;
            let set = || client.set(&self.time, &data, Version::Exact(self.version));
            let lost = |why| RecipeError::Lost { path: self.place.path().to_owned(), why };
            match client.retry(&patient(), set).await {
                Ok(stat) => self.version = stat.version,
                Err(error) if error.kind() == ErrorKind::BadVersion => {
                    let found = get_or_none(client, &self.time).await?;
                    let found = found.filter(|node| node.data.ends_with(self.mark.as_bytes()));
                    // The node has our mark: an earlier write whose reply was lost, or whose future
                    // was dropped.
                    let node = found.ok_or_else(|| lost(Lost::Expired))?;
                    self.version = node.stat.version;
                    if node.data != data {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    return Err(lost(Lost::NodeDeleted));
                }
                Err(error) => return Err(error.into()),
            }
            self.reserved_ms = until_ms;
            return Ok(());
        }
    }

    fn data(&self, until_ms: i64) -> String {
        format!("{until_ms} {}", self.mark)
    }

    /// Deletes the ephemeral node of the number.
    pub(super) async fn release(self) -> Result<()> {
        self.place.withdraw().await?;
        Ok(())
    }
}

fn time_of(data: &[u8], path: &str) -> Result<i64> {
    let text = std::str::from_utf8(data).ok();
    let time = text.and_then(|text| text.split(' ').next()?.parse().ok());
    time.ok_or_else(|| RecipeError::Malformed {
        path: path.to_owned(),
        why: "not the time of a worker's last id".to_owned(),
    })
}
