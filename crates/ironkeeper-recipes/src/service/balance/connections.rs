//! A rule that chooses the instance with the fewest connections, counted over all clients.
//!
//! # On the tree
//! ```text
//! /services.connections                        container, beside the services
//!   web                                        container: a service
//!     0b7c…e1                                  ephemeral: one client, {"instance 1": 3, …}
//!     53a9…04                                  ephemeral: another client
//! ```
//! The counts are beside the services and not below them, because every child of that path is a
//! service, for Curator as well.
//!
//! # Steps
//! 1. Keep an ephemeral node with the connection counts of this client. Changes in quick succession
//!    are written once.
//! 2. Follow the nodes of all clients; the connections of an instance are the sum. The own counts
//!    are taken from memory, where they are exact, and not from the tree.
//!
//! # Guarantees
//! The counts of other clients are as old as the watch events that deliver them; two clients that
//! choose at the same moment may choose the same instance, and the next choices compensate for it.
//! Instances with equal counts are chosen in rotation. When a client's session ends, its
//! connections are removed from the counts. A connection that begins or ends costs at most one
//! write, and one watch event at every client of the service.
//!
//! # When things break
//! - Disconnected: the last known counts stay; the own counts are written after the reconnect.
//! - Session ended: the last known counts of other clients stay; the own connections are still
//!   counted in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ironkeeper_client::Client;

use super::{Balance, RoundRobin};
use crate::cache::ChildrenCache;
use crate::error::{RecipeError, Result};
use crate::node::PersistentNode;
use crate::place::{join, name_of, refuse_bad_name};
use crate::service::instance::ServiceInstance;

/// Connections by instance id.
type Counts = BTreeMap<String, u64>;

/// A rule that chooses the instance with the fewest connections, and counts the connections of this
/// client.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::service::balance::LeastConnections;
/// use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let discovery = ServiceDiscovery::new(&client, "/services");
///     let _one = discovery.register(ServiceInstance::new("web")).await?;
///     let _two = discovery.register(ServiceInstance::new("web")).await?;
///     let least = LeastConnections::open(&client, "/services", "web").await?;
///     let web = discovery.provider("web").rule(least.clone()).open().await?;
///
///     let first = least.connect(&web.candidates()).unwrap();
///     let second = least.connect(&web.candidates()).unwrap();
///     assert_ne!(first.instance().id, second.instance().id);
///     drop(first); // not counted any more
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LeastConnections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The node with the counts of this client.
    node: PersistentNode,
    all: ChildrenCache,
    own: Mutex<Counts>,
    turns: RoundRobin,
}

impl LeastConnections {
    /// Starts to count for a service of the [`ServiceDiscovery`] on `services`, and waits until the
    /// counts of the other clients are read.
    ///
    /// [`ServiceDiscovery`]: crate::service::ServiceDiscovery
    pub async fn open(client: &Client, services: &str, name: &str) -> Result<LeastConnections> {
        refuse_bad_name(services, name)?;
        if services == "/" {
            let why = "services at the root: their connections would stand beside it".to_owned();
            return Err(RecipeError::Misuse(why));
        }
        let path = join(&format!("{services}.connections"), name);
        let node =
            PersistentNode::builder(client, join(&path, &client.random_uuid())).data("{}").start();
        node.created().await?;
        let all = ChildrenCache::start(client, path);
        all.initialized().await?;
        let shared = Shared { node, all, own: Mutex::default(), turns: RoundRobin::new() };
        Ok(LeastConnections { shared: Arc::new(shared) })
    }

    /// Returns the last known connections of all clients, by instance id.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.counts(&self.shared.own())
    }

    /// Chooses the instance with the fewest connections, and counts a connection to it. Both are
    /// one step, so that concurrent calls are spread over the instances.
    pub fn connect(&self, among: &[Arc<ServiceInstance>]) -> Option<Connection> {
        let mut own = self.shared.own();
        let instance = self.shared.least(among, &own)?;
        *own.entry(instance.id.clone()).or_default() += 1;
        self.shared.write(&own);
        Some(Connection { shared: self.shared.clone(), instance })
    }
}

impl Balance for LeastConnections {
    /// Chooses an instance without counting a connection. See [`LeastConnections::connect`].
    fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
        self.shared.least(among, &self.shared.own())
    }
}

impl Shared {
    fn own(&self) -> MutexGuard<'_, Counts> {
        // A panic under this lock leaves no partial change.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self, own: &Counts) -> Counts {
        let mut counts = own.clone();
        let ours = name_of(self.node.path());
        for node in self.all.children().iter().filter(|node| name_of(&node.path) != ours) {
            // A node that cannot be decoded counts as empty.
            for (id, count) in decode(&node.data) {
                let sum = counts.entry(id).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        counts
    }

    fn least(&self, among: &[Arc<ServiceInstance>], own: &Counts) -> Option<Arc<ServiceInstance>> {
        let counts = self.counts(own);
        let count = |instance: &ServiceInstance| counts.get(&instance.id).copied().unwrap_or(0);
        let least = among.iter().map(|instance| count(instance)).min()?;
        let equals: Vec<_> =
            among.iter().filter(|instance| count(instance) == least).cloned().collect();
        self.turns.choose(&equals, "")
    }

    /// Requests a write of the counts. The caller holds their lock, so that an older count never
    /// replaces a newer one.
    fn write(&self, own: &Counts) {
        self.node.want_data(encode(own));
    }
}

/// A connection that is counted until this value is dropped.
#[derive(Debug)]
#[must_use = "a connection that is dropped is not counted any more"]
pub struct Connection {
    shared: Arc<Shared>,
    instance: Arc<ServiceInstance>,
}

impl Connection {
    /// Returns the instance that was chosen for the connection.
    pub fn instance(&self) -> &Arc<ServiceInstance> {
        &self.instance
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut own = self.shared.own();
        if let Some(count) = own.get_mut(&self.instance.id) {
            *count = count.saturating_sub(1);
        }
        own.retain(|_, count| *count > 0);
        self.shared.write(&own);
    }
}

fn encode(counts: &Counts) -> Bytes {
    let json = serde_json::to_vec(counts);
    json.expect("a map from text to numbers has a JSON").into()
}

fn decode(data: &[u8]) -> Counts {
    serde_json::from_slice(data).unwrap_or_default()
}
