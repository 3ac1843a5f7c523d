//! A node that heals itself: whenever it is gone, it is created again. Curator's `PersistentNode`.
//!
//! # On the tree
//! ```text
//! /workers                                     container, if it was not there
//!   anna                                       the node, of any mode
//!   _c_<uuid>-anna-0000000003                  the node, if its mode is sequential
//! ```
//!
//! # Steps
//! 1. Read and watch the node. If it is not there, create it, and begin again.
//! 2. If it was there before, write our data to it.
//! 3. When the watch fires, begin again, whatever the event says.
//!
//! A sequential node gets its number once; afterwards it is created again under the same name.
//!
//! # Guarantees
//! As long as the session lives and the server allows it, the node is there, but for the moment between
//! its deletion and our answer to it. An ephemeral node counts as ours only if it is owned by our
//! session: one that another session has left on the path is waited for, until it goes. Data that
//! others write later is left as it is. One watch event per change of the node.
//!
//! # When things break
//! - No server at the start: the node is created when there is one.
//! - Disconnected: if the node is gone after the reconnect, it is created again.
//! - A lost reply leaves one node, never two.
//! - Session over: the node ends with an error, which [`PersistentNode::created`] and
//!   [`Creations`] tell. Start another one with a new client.
//! - Dropped or closed: the node is deleted, in the background if it was dropped.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{
    Acl, Client, CreateMode, CreateOptions, ErrorKind, Stat, Version, Watch, Zxid,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{RecipeError, Result};
use crate::place::{Meant, create_containers, patient};

/// What a node is to be.
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
    /// What the node holds. Nothing, unless it is said.
    pub fn data(mut self, data: impl Into<Bytes>) -> PersistentNodeBuilder {
        self.data = data.into();
        self
    }

    /// Of what mode the node is. Ephemeral, unless it is said.
    pub fn mode(mut self, mode: CreateMode) -> PersistentNodeBuilder {
        self.mode = mode;
        self
    }

    /// Who may do what with it.
    pub fn acl(mut self, acl: Vec<Acl>) -> PersistentNodeBuilder {
        self.acl = Some(acl);
        self
    }

    /// How long it lives without being written, for the modes that need it.
    pub fn ttl(mut self, ttl: Duration) -> PersistentNodeBuilder {
        self.ttl = Some(ttl);
        self
    }

    /// Leaves the node where it is at the end.
    pub fn left_behind(mut self) -> PersistentNodeBuilder {
        self.stays = true;
        self
    }

    /// If a node of another session is there at the start, it is replaced instead of waited for, in one
    /// transaction. One that comes later is waited for: two keepers of one name do not fight. Not for
    /// sequential nodes, which have a name of their own.
    pub fn taking_over(mut self) -> PersistentNodeBuilder {
        self.takes_over = true;
        self
    }

    /// Begins to keep the node in the background.
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
    /// Grows with every change of the data.
    number: u64,
    ends: bool,
}

#[derive(Clone, Debug, Default)]
struct Status {
    /// The node, while it is there as far as we know.
    node: Option<(String, Zxid)>,
    /// Which of the wanted data has been written.
    written: u64,
    over: Option<RecipeError>,
}

/// A node that is kept.
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
    /// Not stopped when this is dropped: it has the node to delete, and ends then.
    task: Option<JoinHandle<()>>,
}

impl PersistentNode {
    /// A node on `path`, ephemeral and empty unless the builder is told otherwise. Makes no request.
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

    /// The client that keeps it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The path it was asked for. A sequential node has another one, see
    /// [`PersistentNode::created`].
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits until the node is there, and tells its path. An error if that will never be.
    pub async fn created(&self) -> Result<String> {
        self.creations().next().await
    }

    /// The node as it was last seen, if it was there.
    pub fn current(&self) -> Option<String> {
        self.status.borrow().node.as_ref().map(|(path, _)| path.clone())
    }

    /// Every creation of the node, the present one first.
    pub fn creations(&self) -> Creations {
        Creations { status: self.status.clone(), base: self.path.clone(), told: None }
    }

    /// What the node is to hold.
    pub fn data(&self) -> Bytes {
        self.wanted.borrow().data.clone()
    }

    /// Changes what the node is to hold, and waits until it does.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.want_data(data);
        self.written().await
    }

    /// Waits until the node holds what was wanted last.
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

    /// Changes what the node is to hold, and does not wait until it does.
    pub(crate) fn want_data(&self, data: impl Into<Bytes>) {
        self.wanted.send_modify(|wanted| {
            wanted.data = data.into();
            wanted.number += 1;
        });
    }

    /// Ends it: deletes the node, if it is ours, and waits until it is gone.
    pub async fn close(mut self) -> Result<()> {
        self.wanted.send_modify(|wanted| wanted.ends = true);
        if let Some(task) = self.task.take() {
            // Its outcome is in the status.
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
    /// Waits until the node is there, for the first time or again, and tells its path. An error when
    /// it is kept no more.
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

/// The mode by which a node is created again under the name it has.
fn without_number(mode: CreateMode) -> CreateMode {
    match mode {
        CreateMode::PersistentSequential => CreateMode::Persistent,
        CreateMode::EphemeralSequential => CreateMode::Ephemeral,
        CreateMode::PersistentSequentialWithTtl => CreateMode::PersistentWithTtl,
        other => other,
    }
}

/// The task. It is never stopped in the middle of a request, so that it knows what there is to delete.
struct Keeper {
    plan: PersistentNodeBuilder,
    wanted: watch::Receiver<Wanted>,
    status: watch::Sender<Status>,
    /// Unknown before a sequential node has its number.
    path: Option<String>,
    /// Whether there may be a node of ours.
    is_there: bool,
}

impl Keeper {
    async fn keep(mut self) {
        let over = match self.run().await {
            Ok(()) => RecipeError::Closed { path: self.plan.path.clone() },
            Err(why) => {
                tracing::debug!(path = self.plan.path, %why, "node is not kept any more");
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
                // Something else is wanted, or the owner is gone.
                _ = self.wanted.changed() => {}
                event = watch => match event {
                    Err(error) if error.is_session_over() => return Err(error.into()),
                    // An event, or a watch that somebody removed: either way it is looked again.
                    _ => {}
                },
            }
        }
    }

    /// Sees to it that the node is there with our data, or, if it is not ours, waits. Ends with a
    /// watch that tells when it is time to look again.
    async fn ensure(&mut self, wanted: &Wanted) -> Result<Watch> {
        let client = self.plan.client.clone();
        let session = client.session_id().0;
        loop {
            let Some(path) = self.path.clone() else {
                self.create_with_number(wanted).await?;
                continue;
            };
            match client.retry(&patient(), || client.get_and_watch(&path)).await {
                Ok((node, watch)) => {
                    let owner = node.stat.ephemeral_owner;
                    let is_ours = self.is_ours(&node.stat);
                    self.is_there = is_ours;
                    // Whatever comes of it is looked at; a lost reply has its next try there.
                    if !is_ours && self.plan.takes_over {
                        self.take_over(&path, &node.stat, wanted).await?;
                        continue;
                    }
                    self.plan.takes_over = false;
                    if !is_ours {
                        tracing::debug!(path, owner, session, "the node is another one; waiting");
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
            // Containers and nodes with a time to live carry that in the owner.
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

    /// One try; the caller looks what came of it.
    async fn create(&mut self, path: &str, wanted: &Wanted) -> Result<()> {
        let (client, options) = (&self.plan.client, self.options(without_number(self.plan.mode)));
        match client.create_with(path, &wanted.data, &options).await {
            Ok(_) => {
                self.wrote(wanted);
                Ok(())
            }
            // By somebody else, or by an earlier try whose answer was lost: our data goes there.
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

    /// One try to put our node in the place of another one; the caller looks what came of it.
    async fn take_over(&mut self, path: &str, found: &Stat, wanted: &Wanted) -> Result<()> {
        let (client, options) = (&self.plan.client, self.options(without_number(self.plan.mode)));
        let both = client.transaction().delete(path, found.version);
        match both.create(path, &wanted.data, options).commit().await {
            Ok(_) => {
                self.wrote(wanted);
                Ok(())
            }
            // It was changed or deleted meanwhile.
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
        // Our own, and not the one of whoever keeps the same node after us.
        Meant::Creation(czxid).delete(client, &path).await?;
        Ok(())
    }
}
