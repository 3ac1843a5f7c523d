//! Registration of the instances of services, and their discovery by the name of the service.
//! Curator's `ServiceDiscovery`.
//!
//! # On the tree
//! ```text
//! /services                                    container, created if it is missing
//!   web                                        container: a service
//!     53345f98-9423-4e0c-a7b5-9f819e3ec2e1     ephemeral: an instance, its JSON as data
//!     backup                                   persistent: a static instance
//! ```
//! The JSON is Curator's, so that Java programs and this recipe find each other's instances.
//!
//! # Steps
//! 1. Create the node of the instance, ephemeral if it is dynamic. A node with the same id is taken
//!    for a remnant of an ended process, and replaced in one transaction.
//! 2. Maintain it as [`PersistentNode`] does: create it again if another client deletes it.
//! 3. To unregister, delete it.
//!
//! # Guarantees
//! An instance is registered once, even if replies are lost. The last session that registers an id
//! owns it; the previous owner, if it is still running, waits and registers again when the node is
//! deleted, so that two owners do not replace each other's node. Services without instances are
//! deleted by the server, because they are containers. An instance that is added or removed costs
//! one watch event at every [`ServiceCache`] of its service.
//!
//! # When things break
//! - Disconnected: the registration lasts as long as the session. A node that was deleted meanwhile
//!   is created again after the reconnect, however late that is.
//! - Session ended: dynamic instances are removed, and [`Registration::ended`] resolves. Register
//!   again with a new client.
//! - A registration is dropped: a dynamic instance is removed in the background; a static one
//!   stays.
//! - The future of [`ServiceDiscovery::register`] is dropped: the same.

use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};

use crate::error::{RecipeError, Result};
use crate::node::PersistentNode;
use crate::place::{join, patient, refuse_bad_name};
use crate::reads::{children_or_none, get_children};
use crate::service::cache::ServiceCache;
use crate::service::instance::{ServiceInstance, ServiceType};
use crate::service::provider::ServiceProviderBuilder;

/// The services below a path.
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
///     let instance = ServiceInstance::new("web").with_address("10.0.0.1").with_port(8080);
///     let registration = discovery.register(instance).await?;
///
///     assert_eq!(discovery.names().await?, ["web"]);
///     assert_eq!(discovery.instances("web").await?[0].port, Some(8080));
///     registration.unregister().await?;
///     assert!(discovery.instances("web").await?.is_empty());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ServiceDiscoveryBuilder")]
#[doc(alias = "service registry")]
pub struct ServiceDiscovery {
    client: Client,
    path: String,
}

impl ServiceDiscovery {
    /// Creates a handle for the services below `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> ServiceDiscovery {
        ServiceDiscovery { client: client.clone(), path: path.into() }
    }

    /// Returns the path of the services.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the client that sends the requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Registers an instance, and waits until its node is created.
    #[doc(alias = "registerService")]
    pub async fn register(&self, instance: ServiceInstance) -> Result<Registration> {
        refuse_bad_name(&self.path, &instance.name)?;
        refuse_bad_name(&self.path, &instance.id)?;
        let path = join(&join(&self.path, &instance.name), &instance.id);
        let mode = match instance.service_type {
            ServiceType::Dynamic => CreateMode::Ephemeral,
            ServiceType::DynamicSequential => CreateMode::EphemeralSequential,
            ServiceType::Static | ServiceType::Permanent => CreateMode::Persistent,
        };
        let mut plan = PersistentNode::builder(&self.client, path)
            .data(instance.encode()?)
            .mode(mode)
            .taking_over();
        if !instance.service_type.is_dynamic() {
            plan = plan.left_behind();
        }
        let registration = Registration { instance, node: plan.start() };
        registration.node.created().await?;
        Ok(registration)
    }

    /// Deletes the node of an instance that any process registered: for static instances, whose
    /// process may have ended long ago. Returns whether the node existed.
    #[doc(alias = "unregisterService")]
    pub async fn unregister(&self, name: &str, id: &str) -> Result<bool> {
        let path = join(&join(&self.path, name), id);
        delete(&self.client, &path).await
    }

    /// Returns the names of all services, sorted.
    #[doc(alias = "queryForNames")]
    pub async fn names(&self) -> Result<Vec<String>> {
        let mut names = children_or_none(&self.client, &self.path).await?;
        names.sort();
        Ok(names)
    }

    /// Returns all instances of a service, sorted by the names of their nodes. A node that is not
    /// an instance is skipped and logged.
    #[doc(alias = "queryForInstances")]
    pub async fn instances(&self, name: &str) -> Result<Vec<Arc<ServiceInstance>>> {
        let path = join(&self.path, name);
        let mut names = children_or_none(&self.client, &path).await?;
        names.sort();
        let nodes = get_children(&self.client, &path, names.iter().map(|name| &**name)).await?;
        let mut instances = Vec::with_capacity(nodes.len());
        for (name, node) in names.iter().zip(nodes) {
            let Some(node) = node else { continue };
            match ServiceInstance::decode(&join(&path, name), &node.data) {
                Ok(instance) => instances.push(Arc::new(instance)),
                Err(error) => tracing::warn!(path, %error, "malformed service instance ignored"),
            }
        }
        Ok(instances)
    }

    /// Returns the instance with this id, if it exists. Returns an error if its node is not an
    /// instance.
    pub async fn instance(&self, name: &str, id: &str) -> Result<Option<ServiceInstance>> {
        let path = join(&join(&self.path, name), id);
        match self.client.retry(&patient(), || self.client.get(&path)).await {
            Ok(node) => ServiceInstance::decode(&path, &node.data).map(Some),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a cache of the instances of a service, which need not exist, and waits until they are
    /// read.
    pub async fn cache(&self, name: &str) -> Result<ServiceCache> {
        refuse_bad_name(&self.path, name)?;
        ServiceCache::open(&self.client, join(&self.path, name)).await
    }

    /// Returns a builder of a [`ServiceProvider`](super::ServiceProvider), which chooses among the
    /// instances of a service.
    #[doc(alias = "serviceProviderBuilder")]
    pub fn provider(&self, name: impl Into<String>) -> ServiceProviderBuilder {
        ServiceProviderBuilder::new(self.clone(), name.into())
    }
}

/// Deletes a node. Returns whether it existed.
async fn delete(client: &Client, path: &str) -> Result<bool> {
    match client.delete_idempotent(path, Version::Any, &patient()).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A registered instance. A dynamic instance is removed when this value is dropped or the session
/// ends.
#[derive(Debug)]
#[must_use = "a registration that is dropped takes a dynamic instance away again"]
pub struct Registration {
    instance: ServiceInstance,
    node: PersistentNode,
}

impl Registration {
    /// Returns the registered instance.
    pub fn instance(&self) -> &ServiceInstance {
        &self.instance
    }

    /// Returns the path of the instance's node, if it existed at the last read.
    pub fn node(&self) -> Option<String> {
        self.node.current()
    }

    /// Changes other fields of the instance, for example its payload or whether it is enabled, and
    /// waits until they are written. Name, id and type must stay the same.
    #[doc(alias = "updateService")]
    pub async fn update(&mut self, instance: ServiceInstance) -> Result<()> {
        let same = |instance: &ServiceInstance| {
            (instance.name.clone(), instance.id.clone(), instance.service_type)
        };
        if same(&instance) != same(&self.instance) {
            let path = self.node.path();
            let why = format!("{path}: an update keeps name, id and type of the instance");
            return Err(RecipeError::Misuse(why));
        }
        self.node.set_data(instance.encode()?).await?;
        self.instance = instance;
        Ok(())
    }

    /// Waits until the instance is not maintained any more, and returns the reason: the session has
    /// ended, or the server rejects the requests.
    pub async fn ended(&self) -> RecipeError {
        let mut creations = self.node.creations();
        loop {
            if let Err(why) = creations.next().await {
                return why;
            }
        }
    }

    /// Removes the instance, of any type, and waits until its node is deleted.
    #[doc(alias = "unregisterService")]
    pub async fn unregister(self) -> Result<()> {
        let (client, path) = (self.node.client().clone(), self.node.path().to_owned());
        let is_dynamic = self.instance.service_type.is_dynamic();
        self.node.close().await?;
        if !is_dynamic {
            delete(&client, &path).await?;
        }
        Ok(())
    }
}
