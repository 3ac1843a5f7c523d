//! The instances of one service, read without requests. Curator's `ServiceCache`.
//!
//! # On the tree
//! The nodes of [`ServiceDiscovery`](super::ServiceDiscovery); the cache creates none.
//!
//! # Steps
//! Follow the children of the service's node as [`ChildrenCache`](crate::cache::ChildrenCache)
//! does, and decode their JSON once, when they are created or changed.
//!
//! # Guarantees
//! All caches converge to the same instances, but not at the same moment. A node that is not an
//! instance is skipped and logged; the other instances are not affected. One watch event per
//! instance that is added, changed or removed, at every cache.
//!
//! # When things break
//! - Disconnected: the last known instances stay. Changes are delivered after the reconnect.
//! - The service's node is deleted and created again: the instances are removed and added again.
//! - Session ended: the last known instances stay, because a caller can still try them;
//!   [`ServiceChanges`] end, and [`ServiceCache::is_followed`] returns `false`.

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::{Decoded, DecodedChanges};
use crate::error::Result;
use crate::service::instance::ServiceInstance;

/// All instances of a service at one moment, sorted by the names of their nodes.
pub type Instances = Arc<[Arc<ServiceInstance>]>;

/// A cache of the instances of one service.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let discovery = ServiceDiscovery::new(&client, "/services");
///     let web = discovery.cache("web").await?;
///     let mut changes = web.changes();
///     assert!(web.instances().is_empty());
///
///     let here = discovery.register(ServiceInstance::new("web").with_port(80)).await?;
///     assert_eq!(changes.next().await.unwrap()[0].port, Some(80));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ServiceCache {
    decoded: Decoded<ServiceInstance>,
}

impl ServiceCache {
    pub(super) async fn open(client: &Client, path: String) -> Result<ServiceCache> {
        let decoded = Decoded::open(client, path, ServiceInstance::decode).await?;
        Ok(ServiceCache { decoded })
    }

    /// Returns the path of the service.
    pub fn path(&self) -> &str {
        self.decoded.path()
    }

    /// Returns the last known instances. Makes no request.
    pub fn instances(&self) -> Instances {
        self.decoded.values().good.into_values().collect()
    }

    /// Returns the instance with this id. Makes no request.
    pub fn instance(&self, id: &str) -> Option<Arc<ServiceInstance>> {
        self.instances().iter().find(|instance| instance.id == id).cloned()
    }

    /// Returns whether the instances are still updated: not after the end of the session.
    pub fn is_followed(&self) -> bool {
        self.decoded.is_followed()
    }

    /// Returns all changes from now on; only the latest one if changes come faster than they are
    /// taken.
    pub fn changes(&self) -> ServiceChanges {
        let changes = self.decoded.changes();
        ServiceChanges { changes, told: self.instances() }
    }
}

/// The changes of a [`ServiceCache`].
#[derive(Debug)]
pub struct ServiceChanges {
    changes: DecodedChanges<ServiceInstance>,
    told: Instances,
}

impl ServiceChanges {
    /// Returns the instances after the next change; `None` when they are not updated any more: the
    /// session has ended, or the cache was dropped.
    pub async fn next(&mut self) -> Option<Instances> {
        loop {
            let instances: Instances = self.changes.next().await?.good.into_values().collect();
            // Changes of nodes that are not instances are not reported.
            if instances != self.told {
                self.told = instances.clone();
                return Some(instances);
            }
        }
    }
}
