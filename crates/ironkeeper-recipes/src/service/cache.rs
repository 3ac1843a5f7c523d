//! The instances of one service, at hand without a request. Curator's `ServiceCache`.
//!
//! # On the tree
//! That of [`ServiceDiscovery`](super::ServiceDiscovery); nothing of its own.
//!
//! # Steps
//! Follow the children of the service's node as [`ChildrenCache`](crate::cache::ChildrenCache) does, and read their JSON once, when
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

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::{Decoded, DecodedChanges};
use crate::error::Result;
use crate::service::instance::ServiceInstance;

/// All instances of a service at one moment, in the order of their nodes' names.
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

    /// The path of the service.
    pub fn path(&self) -> &str {
        self.decoded.path()
    }

    /// The instances last known. Makes no request.
    pub fn instances(&self) -> Instances {
        self.decoded.values().good.into_values().collect()
    }

    /// An instance by its id.
    pub fn instance(&self, id: &str) -> Option<Arc<ServiceInstance>> {
        self.instances().iter().find(|instance| instance.id == id).cloned()
    }

    /// Whether changes are still heard of: not after the end of the session.
    pub fn is_followed(&self) -> bool {
        self.decoded.is_followed()
    }

    /// All changes from now on; the latest only, if they come faster than they are taken.
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
    /// The instances after the next change; `None` when they are not followed any more: the session is
    /// over, or the cache was dropped.
    pub async fn next(&mut self) -> Option<Instances> {
        loop {
            let instances: Instances = self.changes.next().await?.good.into_values().collect();
            // Nodes that are no instances come and go, too.
            if instances != self.told {
                self.told = instances.clone();
                return Some(instances);
            }
        }
    }
}
