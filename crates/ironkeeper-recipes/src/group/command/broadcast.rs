//! A command that was sent, and its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind, Watch};

use super::Paths;
use crate::error::{RecipeError, Result};
use crate::escape::{from_name, to_name};
use crate::place::{join, patient};
use crate::reads::{children_or_none, get_or_none};

/// The result of a command at one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The listener has answered.
    Answered(Bytes),
    /// The listener has left without an answer.
    Gone,
    /// The listener has not answered in time.
    Silent,
}

/// A command that was sent. Dropping it withdraws the command and deletes the answers, in the
/// background.
#[derive(Debug)]
#[must_use = "a command that is dropped is withdrawn"]
pub struct Broadcast {
    client: Client,
    paths: Paths,
    mark: String,
    pub(super) answers: String,
    pub(super) expected: BTreeSet<String>,
    told: BTreeSet<String>,
    is_open: bool,
}

impl Broadcast {
    pub(super) fn new(client: &Client, paths: &Paths, mark: String) -> Broadcast {
        Broadcast {
            client: client.clone(),
            paths: paths.clone(),
            answers: join(&paths.answers, &mark),
            mark,
            expected: BTreeSet::new(),
            told: BTreeSet::new(),
            is_open: true,
        }
    }

    /// Returns the listeners that have to answer.
    pub fn expected(&self) -> &BTreeSet<String> {
        &self.expected
    }

    /// Waits for the next listener that has answered or has left. Returns `None` when all expected
    /// listeners have been returned. The future may be dropped at any await: no answer is lost.
    pub async fn next(&mut self) -> Result<Option<(String, Outcome)>> {
        let client = &self.client;
        loop {
            // Listeners are listed first: if one has left, an answer that it gave before is in the
            // second list.
            let listeners = watched_children(client, &self.paths.listeners).await?;
            let answers = watched_children(client, &self.answers).await?;
            let Some((answered, new_answer)) = answers else {
                return Err(RecipeError::NodeGone { path: self.answers.clone() });
            };
            for name in answered {
                let Some(id) = from_name(&name).filter(|id| !self.told.contains(id)) else {
                    continue;
                };
                if let Some(node) = get_or_none(client, &join(&self.answers, &name)).await? {
                    self.told.insert(id.clone());
                    return Ok(Some((id, Outcome::Answered(node.data))));
                }
            }
            let missing: Vec<&String> = self.expected.difference(&self.told).collect();
            if missing.is_empty() {
                return Ok(None);
            }
            let (listening, change) = match listeners {
                Some((names, watch)) => (names, Some(watch)),
                None => (Vec::new(), None),
            };
            let gone = missing.into_iter().find(|id| !listening.contains(&to_name(id)));
            if let Some(id) = gone.cloned() {
                self.told.insert(id.clone());
                return Ok(Some((id, Outcome::Gone)));
            }
            let changed = async {
                match change {
                    Some(watch) => watch.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = new_answer => { event?; }
                event = changed => { event?; }
            }
        }
    }

    /// Waits until all expected listeners have answered or left, or until `patience` has passed;
    /// then closes the broadcast.
    pub async fn collect_within(mut self, patience: Duration) -> Result<BTreeMap<String, Outcome>> {
        let silent = |id: &String| (id.clone(), Outcome::Silent);
        let mut outcomes: BTreeMap<String, Outcome> = self.expected.iter().map(silent).collect();
        let collecting = async {
            while let Some((id, outcome)) = self.next().await? {
                outcomes.insert(id, outcome);
            }
            Ok::<_, RecipeError>(())
        };
        if let Ok(collected) = tokio::time::timeout(patience, collecting).await {
            collected?;
        }
        self.close().await?;
        Ok(outcomes)
    }

    /// Withdraws the command, deletes the answers, and waits until both are done.
    pub async fn close(mut self) -> Result<()> {
        withdraw(&self.client, &self.paths, &self.mark).await?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        if !self.is_open || self.client.state().is_final() {
            return;
        }
        let (client, paths) = (self.client.clone(), self.paths.clone());
        let mark = std::mem::take(&mut self.mark);
        self.client.runtime().spawn(async move {
            let withdrawn = async {
                // After a reconnect the new server may not have applied the create yet.
                client.retry(&patient(), || client.sync(&paths.commands)).await?;
                withdraw(&client, &paths, &mark).await
            };
            match withdrawn.await {
                Err(error) if !error.is_session_over() => {
                    tracing::warn!(
                        path = paths.commands,
                        mark,
                        %error,
                        "withdrawn command not deleted"
                    );
                }
                _ => {}
            }
        });
    }
}

/// Deletes the command, then the box: without the command, no answer can be created in the box.
async fn withdraw(client: &Client, paths: &Paths, mark: &str) -> Result<()> {
    for name in children_or_none(client, &paths.commands).await? {
        if name.starts_with(mark) {
            delete_all(client, &join(&paths.commands, &name)).await?;
        }
    }
    delete_all(client, &join(&paths.answers, mark)).await
}

async fn watched_children(client: &Client, path: &str) -> Result<Option<(Vec<String>, Watch)>> {
    match client.retry(&patient(), || client.children_and_watch(path)).await {
        Ok((names, _, watch)) => Ok(Some((names, watch))),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes a node and everything below it, if it exists.
pub(super) async fn delete_all(client: &Client, path: &str) -> Result<()> {
    match client.retry(&patient(), || client.delete_recursive(path)).await {
        Err(error) if error.kind() != ErrorKind::NoNode => Err(error.into()),
        _ => Ok(()),
    }
}
