//! A node that is created again whenever it is deleted. Curator's `PersistentNode`.
//!
//! # On the tree
//! ```text
//! /workers                                     container, created if it is missing
//!   anna                                       the node, of any mode
//!   _c_<uuid>-anna-0000000003                  the node, if its mode is sequential
//! ```
//!
//! # Steps
//! 1. Read and watch the node. If it does not exist, create it, and start over.
//! 2. If it existed before, write the wanted data to it.
//! 3. When the watch fires, start over, whatever the event is.
//!
//! A sequential node gets its number once; later it is created again with the same name.
//!
//! # Guarantees
//! As long as the session is open and the server accepts the requests, the node exists, except
//! between its deletion and its re-creation. An ephemeral node counts as ours only if its owner is
//! our session: if a node of another session exists on the path, the keeper waits until it is
//! deleted. Data that other clients write later is not overwritten. One watch event per change of
//! the node.
//!
//! # When things break
//! - No server is reachable at the start: the node is created after the first connection.
//! - The connection is lost: if the node does not exist after the reconnect, it is created again.
//! - A reply is lost: there is one node, never two.
//! - The session has ended: the keeper stops with an error, which [`PersistentNode::created`] and
//!   [`Creations`] return. Start another one with a new client.
//! - The `PersistentNode` is dropped or closed: the node is deleted, in the background after a
//!   drop.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{
    Acl, Client, CreateMode, CreateOptions, ErrorKind, SessionId, Stat, Version, Watch, Zxid,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{RecipeError, Result};
use crate::place::{Meant, create_containers, patient};

/// The settings of a [`PersistentNode`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before the node is started"]
pub struct PersistentNodeBuilder {
    client: Client,
    path: String,
    data: Bytes,
    mode: CreateMode,
    acl: Option<Vec<Acl>>,
    ttl: Option<Duration>,
    stays: bool,
    takes_over: bool,
}

impl PersistentNodeBuilder {
    /// Sets the data of the node. The default is empty.
    pub fn data(mut self, data: impl Into<Bytes>) -> PersistentNodeBuilder {
        self.data = data.into();
        self
    }

    /// Sets the mode of the node. The default is ephemeral.
    pub fn mode(mut self, mode: CreateMode) -> PersistentNodeBuilder {
        self.mode = mode;
        self
    }

    /// Sets the ACL of the node.
    pub fn acl(mut self, acl: Vec<Acl>) -> PersistentNodeBuilder {
        self.acl = Some(acl);
        self
    }

    /// Sets the TTL, for the modes that require it.
    pub fn ttl(mut self, ttl: Duration) -> PersistentNodeBuilder {
        self.ttl = Some(ttl);
        self
    }

    /// Does not delete the node at the end.
    pub fn left_behind(mut self) -> PersistentNodeBuilder {
        self.stays = true;
        self
    }

    /// Replaces a node of another session that exists at the start, in one transaction, instead of
    /// waiting for its deletion. A node that another session creates later is not replaced, so that
    /// two keepers of one name do not replace each other's node. Has no effect on sequential nodes,
    /// whose names are unique.
    pub fn taking_over(mut self) -> PersistentNodeBuilder {
        self.takes_over = true;
        self
    }

    /// Starts to maintain the node in the background.
    pub fn start(self) -> PersistentNode {
        let wanted = watch::Sender::new(Wanted { data: self.data.clone(), number: 1, ends: false });
        let status = watch::Sender::new(Status::default());
        let keeper = Keeper {
            wanted: wanted.subscribe(),
            status: status.clone(),
            path: (!is_sequential(self.mode)).then(|| self.path.clone()),
            is_there: false,
            plan: self,
        };
        let path = keeper.plan.path.clone();
        let client = keeper.plan.client.clone();
        let task = tokio::spawn(keeper.keep());
        PersistentNode { client, path, wanted, status: status.subscribe(), task: Some(task) }
    }
}

#[derive(Clone, Debug)]
struct Wanted {
    data: Bytes,
    /// Incremented with every change of the data.
    number: u64,
    ends: bool,
}

#[derive(Clone, Debug, Default)]
struct Status {
    /// The last known path and czxid of the node, `None` if it does not exist.
    node: Option<(String, Zxid)>,
    /// The number of the wanted data that was written last.
    written: u64,
    over: Option<RecipeError>,
}

/// A node that a background task, the keeper, maintains.
///
/// ```
/// use ironkeeper_client::{Client, Version};
/// use ironkeeper_recipes::node::PersistentNode;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let node = PersistentNode::builder(&client, "/workers/anna").data("idle").start();
///     node.created().await?;
///     let mut creations = node.creations();
///     assert_eq!(creations.next().await?, "/workers/anna");
///
///     client.delete("/workers/anna", Version::Any).await?; // by mistake
///     assert_eq!(creations.next().await?, "/workers/anna");
///     node.set_data("busy").await?;
///     node.close().await?;
///     assert!(client.exists("/workers/anna").await?.is_none());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "PersistentEphemeralNode")]
pub struct PersistentNode {
    client: Client,
    path: String,
    wanted: watch::Sender<Wanted>,
    status: watch::Receiver<Status>,
    /// Not aborted on drop: the task deletes the node, and ends then.
    task: Option<JoinHandle<()>>,
}

impl PersistentNode {
    /// Returns a builder for a node on `path`. The defaults are ephemeral and empty. Makes no
    /// request.
    pub fn builder(client: &Client, path: impl Into<String>) -> PersistentNodeBuilder {
        PersistentNodeBuilder {
            client: client.clone(),
            path: path.into(),
            data: Bytes::new(),
            mode: CreateMode::Ephemeral,
            acl: None,
            ttl: None,
            stays: false,
            takes_over: false,
        }
    }

    /// Returns the client that maintains the node.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the path that was requested. A sequential node has another path, see
    /// [`PersistentNode::created`].
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits until the node exists, and returns its path. Returns an error if it cannot be created.
    pub async fn created(&self) -> Result<String> {
        self.creations().next().await
    }

    /// Returns the path of the node, if it existed at the last read.
    pub fn current(&self) -> Option<String> {
        self.status.borrow().node.as_ref().map(|(path, _)| path.clone())
    }

    /// Returns all creations of the node, beginning with the present one.
    pub fn creations(&self) -> Creations {
        Creations { status: self.status.clone(), base: self.path.clone(), told: None }
    }

    /// Returns the wanted data of the node.
    pub fn data(&self) -> Bytes {
        self.wanted.borrow().data.clone()
    }

    /// Changes the data of the node, and waits until it is written.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.want_data(data);
        self.written().await
    }

    /// Waits until the last wanted data is written.
    pub(crate) async fn written(&self) -> Result<()> {
        let number = self.wanted.borrow().number;
        let mut status = self.status.clone();
        let reached = status.wait_for(|s| s.written >= number || s.over.is_some()).await;
        match reached {
            Ok(status) if status.written >= number => Ok(()),
            Ok(status) => Err(status.over.clone().unwrap_or_else(|| self.closed())),
            Err(_) => Err(self.closed()),
        }
    }

    /// Changes the wanted data of the node without waiting for the write.
    pub(crate) fn want_data(&self, data: impl Into<Bytes>) {
        self.wanted.send_modify(|wanted| {
            wanted.data = data.into();
            wanted.number += 1;
        });
    }

    /// Deletes the node, if it is ours, and waits for the reply.
    pub async fn close(mut self) -> Result<()> {
        self.wanted.send_modify(|wanted| wanted.ends = true);
        if let Some(task) = self.task.take() {
            // The result is in `status`.
            let _ = task.await;
        }
        match self.status.borrow().over.clone() {
            None | Some(RecipeError::Closed { .. }) => Ok(()),
            Some(why) => Err(why),
        }
    }

    fn closed(&self) -> RecipeError {
        RecipeError::Closed { path: self.path.clone() }
    }
}

/// The creations of a [`PersistentNode`].
#[derive(Debug)]
pub struct Creations {
    status: watch::Receiver<Status>,
    base: String,
    told: Option<Zxid>,
}

impl Creations {
    /// Waits until the node is created, for the first time or again, and returns its path. Returns
    /// an error when the keeper has stopped.
    pub async fn next(&mut self) -> Result<String> {
        let told = self.told;
        let is_news = |s: &Status| s.node.as_ref().is_some_and(|(_, czxid)| Some(*czxid) != told);
        let reached = self.status.wait_for(|s| is_news(s) || s.over.is_some()).await;
        let closed = || RecipeError::Closed { path: self.base.clone() };
        let Ok(status) = reached else { return Err(closed()) };
        match &status.node {
            Some((path, czxid)) if Some(*czxid) != told => {
                self.told = Some(*czxid);
                Ok(path.clone())
            }
            _ => Err(status.over.clone().unwrap_or_else(closed)),
        }
    }
}

fn is_sequential(mode: CreateMode) -> bool {
    use CreateMode::*;
    matches!(mode, PersistentSequential | EphemeralSequential | PersistentSequentialWithTtl)
}

/// Returns the mode that creates a node again under its existing name.
fn without_number(mode: CreateMode) -> CreateMode {
    match mode {
        CreateMode::PersistentSequential => CreateMode::Persistent,
        CreateMode::EphemeralSequential => CreateMode::Ephemeral,
        CreateMode::PersistentSequentialWithTtl => CreateMode::PersistentWithTtl,
        other => other,
    }
}

/// The background task. It is never aborted during a request, so that it knows what it has to
/// delete.
struct Keeper {
    plan: PersistentNodeBuilder,
    wanted: watch::Receiver<Wanted>,
    status: watch::Sender<Status>,
    /// `None` until a sequential node has its number.
    path: Option<String>,
    /// Whether a node of ours may exist.
    is_there: bool,
}

impl Keeper {
    async fn keep(mut self) {
        let over = match self.run().await {
            Ok(()) => RecipeError::Closed { path: self.plan.path.clone() },
            Err(why) => {
                tracing::debug!(path = self.plan.path, error = %why, "node no longer kept");
                why
            }
        };
        self.status.send_modify(|status| {
            status.node = None;
            status.over = Some(over);
        });
    }

    async fn run(&mut self) -> Result<()> {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if wanted.ends || self.wanted.has_changed().is_err() {
                return self.withdraw().await;
            }
            let watch = self.ensure(&wanted).await?;
            tokio::select! {
                biased;
                // The wanted data has changed, or the `PersistentNode` was dropped.
                _ = self.wanted.changed() => {}
                event = watch => match event {
                    Err(error) if error.is_session_over() => return Err(error.into()),
                    // An event, or the watch was removed: read the node again in both cases.
                    _ => {}
                },
            }
        }
    }

    /// Ensures that the node exists with the wanted data, unless a node that is not ours is in its
    /// place. Returns a watch that fires when the node has to be read again.
    async fn ensure(&mut self, wanted: &Wanted) -> Result<Watch> {
        let client = self.plan.client.clone();
        loop {
            let Some(path) = self.path.clone() else {
                self.create_with_number(wanted).await?;
                continue;
            };
            match client.retry(&patient(), || client.get_and_watch(&path)).await {
                Ok((node, watch)) => {
                    let is_ours = self.is_ours(&node.stat);
                    self.is_there = is_ours;
                    // The next iteration reads the result, and tries again if the reply was lost.
                    if !is_ours && self.plan.takes_over {
                        self.take_over(&path, &node.stat, wanted).await?;
                        continue;
                    }
                    self.plan.takes_over = false;
                    if !is_ours {
                        let session = client.session_id();
                        let owner = SessionId(node.stat.ephemeral_owner);
                        tracing::debug!(path, %session, %owner, "node of another owner, waiting");
                        self.status.send_modify(|status| status.node = None);
                        return Ok(watch);
                    }
                    if self.status.borrow().written < wanted.number {
                        let set = || client.set(&path, &wanted.data, Version::Any);
                        match client.retry(&patient(), set).await {
                            Ok(_) => self.wrote(wanted),
                            Err(error) if error.kind() == ErrorKind::NoNode => {}
                            Err(error) => return Err(error.into()),
                        }
                        continue;
                    }
                    let seen = Some((path, node.stat.czxid));
                    self.status.send_if_modified(|status| {
                        let is_news = status.node != seen;
                        status.node = seen;
                        is_news
                    });
                    return Ok(watch);
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    self.create(&path, wanted).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_ours(&self, stat: &Stat) -> bool {
        match without_number(self.plan.mode) {
            CreateMode::Ephemeral => stat.ephemeral_owner == self.plan.client.session_id().0,
            // The server stores the TTL and the container flag in `ephemeral_owner`.
            CreateMode::Persistent => stat.ephemeral_owner == 0,
            _ => true,
        }
    }

    fn wrote(&self, wanted: &Wanted) {
        self.status.send_modify(|status| status.written = wanted.number);
    }

    fn options(&self, mode: CreateMode) -> CreateOptions {
        let mut options = CreateOptions::new(mode);
        if let Some(acl) = &self.plan.acl {
            options = options.acl(acl.clone());
        }
        if let Some(ttl) = self.plan.ttl {
            options = options.ttl(ttl);
        }
        options
    }

    async fn create_with_number(&mut self, wanted: &Wanted) -> Result<()> {
        let (client, options) = (&self.plan.client, self.options(self.plan.mode));
        let created = loop {
            let path = &self.plan.path;
            match client.create_protected(path, &wanted.data, options.clone(), &patient()).await {
                Ok(created) => break created,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    create_containers(client, path).await?;
                }
                Err(error) => return Err(error.into()),
            }
        };
        self.path = Some(created.path);
        self.is_there = true;
        self.wrote(wanted);
        Ok(())
    }

    /// Tries once to create the node; the caller reads the result.
    async fn create(&mut self, path: &str, wanted: &Wanted) -> Result<()> {
        let (client, options) = (&self.plan.client, self.options(without_number(self.plan.mode)));
        match client.create_with(path, &wanted.data, &options).await {
            Ok(_) => {
                self.wrote(wanted);
                Ok(())
            }
            // Another client, or an earlier try whose reply was lost, created it: write the data
            // later.
            Err(error) if error.kind() == ErrorKind::NodeExists => {
                self.status.send_modify(|status| status.written = 0);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                create_containers(client, path).await
            }
            Err(error) if error.is_retriable() => {
                client.retry(&patient(), || client.sync(path)).await.map_err(Into::into)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tries once to replace a node that is not ours; the caller reads the result.
    async fn take_over(&mut self, path: &str, found: &Stat, wanted: &Wanted) -> Result<()> {
        let (client, options) = (&self.plan.client, self.options(without_number(self.plan.mode)));
        let both = client.transaction().delete(path, found.version);
        match both.create(path, &wanted.data, options).commit().await {
            Ok(_) => {
                self.wrote(wanted);
                Ok(())
            }
            // The node was changed or deleted meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode) => {
                Ok(())
            }
            Err(error) if error.is_retriable() => {
                client.retry(&patient(), || client.sync(path)).await.map_err(Into::into)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn withdraw(&mut self) -> Result<()> {
        let Some(path) = self.path.take_if(|_| self.is_there && !self.plan.stays) else {
            return Ok(());
        };
        let client = &self.plan.client;
        let seen = self.status.borrow().node.as_ref().map(|(_, czxid)| *czxid);
        let czxid = match seen {
            Some(czxid) => czxid,
            None => match client.retry(&patient(), || client.exists(&path)).await? {
                Some(stat) if self.is_ours(&stat) => stat.czxid,
                _ => return Ok(()),
            },
        };
        // Delete only the node of this creation, not that of a later keeper of the same path.
        Meant::Creation(czxid).delete(client, &path).await?;
        Ok(())
    }
}
