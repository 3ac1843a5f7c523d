//! The instances of one service, at hand without a request. Curator's `ServiceCache`.
//!
//! # On the tree
//! That of [`ServiceDiscovery`](super::ServiceDiscovery); nothing of its own.
//!
//! # Steps
//! Follow the children of the service's node as [`ChildrenCache`] does, and read their JSON once, when
//! they come or change.
//!
//! # Guarantees
//! Everybody comes to see the same instances, but not at the same moment. A node that is no instance is
//! left out and logged; it hides no other one. One watch event per instance that comes, changes or goes,
//! at everybody who looks on.
//!
//! # When things break
//! - Disconnected: the instances last known stay. What has changed is told after the reconnect.
//! - The service's node deleted and created again: the instances go and come.
//! - Session over: the instances last known stay, for it is better to try one than to have none;
//!   [`ServiceChanges`] end, and [`ServiceCache::is_followed`] says no.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironkeeper_client::Client;
use tokio::sync::watch;

use crate::cache::{CacheEvent, CacheEvents, CachedNode, ChildrenCache, Task};
use crate::error::{RecipeError, Result};
use crate::service::instance::ServiceInstance;

/// All instances of a service at one moment, in the order of their nodes' names.
pub type Instances = Arc<[Arc<ServiceInstance>]>;

/// A cache of the instances of one service.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let running = ironkeeper_testing::TestServer::start()?;
/// # let server = running.connect_string();
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};
///
/// let client = Client::connect(&server).await?;
/// let discovery = ServiceDiscovery::new(&client, "/services");
/// let web = discovery.cache("web").await?;
/// let mut changes = web.changes();
/// assert!(web.instances().is_empty());
///
/// let here = discovery.register(ServiceInstance::new("web").with_port(80)).await?;
/// assert_eq!(changes.next().await.unwrap()[0].port, Some(80));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ServiceCache {
    cache: ChildrenCache,
    latest: watch::Receiver<Latest>,
    _reader: Task,
}

#[derive(Clone, Debug)]
struct Latest {
    instances: Instances,
    is_ready: bool,
    over: Option<RecipeError>,
}

impl ServiceCache {
    pub(super) async fn open(client: &Client, path: String) -> Result<ServiceCache> {
        let cache = ChildrenCache::start(client, path);
        let (told, latest) =
            watch::channel(Latest { instances: Arc::default(), is_ready: false, over: None });
        let reader = Task::spawn(read(cache.events(), told));
        let cache = ServiceCache { cache, latest, _reader: reader };
        cache.initialized().await?;
        Ok(cache)
    }

    async fn initialized(&self) -> Result<()> {
        let mut latest = self.latest.clone();
        let closed = || RecipeError::Closed { path: self.path().to_owned() };
        let reached = latest.wait_for(|latest| latest.is_ready || latest.over.is_some()).await;
        match reached.as_deref() {
            Ok(latest) if latest.is_ready => Ok(()),
            Ok(latest) => Err(latest.over.clone().unwrap_or_else(closed)),
            Err(_) => Err(closed()),
        }
    }

    /// The path of the service.
    pub fn path(&self) -> &str {
        self.cache.path()
    }

    /// The instances last known. Makes no request.
    pub fn instances(&self) -> Instances {
        self.latest.borrow().instances.clone()
    }

    /// An instance by its id.
    pub fn instance(&self, id: &str) -> Option<Arc<ServiceInstance>> {
        self.instances().iter().find(|instance| instance.id == id).cloned()
    }

    /// Whether changes are still heard of: not after the end of the session.
    pub fn is_followed(&self) -> bool {
        self.latest.borrow().over.is_none()
    }

    /// All changes from now on; the latest only, if they come faster than they are taken.
    pub fn changes(&self) -> ServiceChanges {
        let mut latest = self.latest.clone();
        latest.mark_unchanged();
        ServiceChanges { latest }
    }
}

/// The changes of a [`ServiceCache`].
#[derive(Debug)]
pub struct ServiceChanges {
    latest: watch::Receiver<Latest>,
}

impl ServiceChanges {
    /// The instances after the next change; `None` when they are not followed any more: the session is
    /// over, or the cache was dropped.
    pub async fn next(&mut self) -> Option<Instances> {
        self.latest.changed().await.ok()?;
        let latest = self.latest.borrow_and_update();
        latest.over.is_none().then(|| latest.instances.clone())
    }
}

async fn read(mut events: CacheEvents, told: watch::Sender<Latest>) {
    let mut known: BTreeMap<String, Arc<ServiceInstance>> = BTreeMap::new();
    let mut is_ready = false;
    while let Some(event) = events.next().await {
        let (mut has_changed, mut over) = (true, None);
        match event {
            CacheEvent::Created(node) | CacheEvent::Changed { after: node, .. } => {
                has_changed = put(&mut known, &node);
            }
            CacheEvent::Deleted(node) => has_changed = known.remove(&node.path).is_some(),
            CacheEvent::Reset => {
                known.clear();
                is_ready = false;
            }
            CacheEvent::Initialized => is_ready = true,
            CacheEvent::Ended(why) => over = Some(why),
        }
        // What is not complete is not told, neither at the start nor after a reset.
        if over.is_some() || (is_ready && has_changed) {
            told.send_modify(|latest| {
                latest.is_ready |= is_ready;
                if is_ready {
                    latest.instances = known.values().cloned().collect();
                }
                latest.over = over;
            });
        }
    }
}

/// Says whether anything is different now.
fn put(known: &mut BTreeMap<String, Arc<ServiceInstance>>, node: &CachedNode) -> bool {
    match ServiceInstance::decode(&node.path, &node.data) {
        Ok(instance) => {
            known.insert(node.path.clone(), Arc::new(instance));
            true
        }
        Err(error) => {
            tracing::warn!(%error, "left out of a service's instances");
            known.remove(&node.path).is_some()
        }
    }
}
