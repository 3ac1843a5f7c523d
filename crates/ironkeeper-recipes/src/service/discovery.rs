//! Services register where they are, and are found by name. Curator's `ServiceDiscovery`.
//!
//! # On the tree
//! ```text
//! /services                                    container, if it was not there
//!   web                                        container: a service
//!     53345f98-9423-4e0c-a7b5-9f819e3ec2e1     ephemeral: an instance, its JSON as data
//!     backup                                   persistent: a static instance
//! ```
//! The JSON is Curator's, so that Java programs find our instances and we find theirs.
//!
//! # Steps
//! 1. Create the node of the instance, ephemeral if it is dynamic. If a node of that id is there, it
//!    is what a dead process left behind: it is replaced in one transaction.
//! 2. Keep it as [`PersistentNode`] does: create it again if somebody deletes it.
//! 3. Unregister by deleting it.
//!
//! # Guarantees
//! An instance is registered once, whatever replies are lost. The last one to register an id has it; the
//! one before, if it lives, waits and takes the id back when it is free: two never fight. Services
//! without instances go away, since they are containers. An instance that comes or goes costs one watch
//! event at every [`ServiceCache`] of its service.
//!
//! # When things break
//! - Disconnected: the registration stays as long as the session. What was deleted meanwhile is
//!   created again after the reconnect, however long that takes.
//! - Session over: dynamic instances are gone, and [`Registration::ended`] resolves. Register again
//!   with a new client.
//! - A registration dropped: dynamic instances go, in the background; static ones stay.
//! - The future of [`ServiceDiscovery::register`] dropped: the same.

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
    /// The services below `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> ServiceDiscovery {
        ServiceDiscovery { client: client.clone(), path: path.into() }
    }

    /// The path below which the services are.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The client it is used by.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Registers an instance, and waits until everybody can see it.
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

    /// Deletes the node of an instance, whoever registered it: for static ones, whose process may be
    /// long gone. Says whether it was there.
    #[doc(alias = "unregisterService")]
    pub async fn unregister(&self, name: &str, id: &str) -> Result<bool> {
        let path = join(&join(&self.path, name), id);
        delete(&self.client, &path).await
    }

    /// The names of all services, sorted.
    #[doc(alias = "queryForNames")]
    pub async fn names(&self) -> Result<Vec<String>> {
        let mut names = children_or_none(&self.client, &self.path).await?;
        names.sort();
        Ok(names)
    }

    /// All instances of a service, in the order of their nodes' names. What is no instance is left out
    /// and logged.
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
                Err(error) => tracing::warn!(%error, "left out of a service's instances"),
            }
        }
        Ok(instances)
    }

    /// One instance by its id, if it is there. An error if its node holds something else.
    pub async fn instance(&self, name: &str, id: &str) -> Result<Option<ServiceInstance>> {
        let path = join(&join(&self.path, name), id);
        match self.client.retry(&patient(), || self.client.get(&path)).await {
            Ok(node) => ServiceInstance::decode(&path, &node.data).map(Some),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Follows the instances of a service, which need not be there.
    pub async fn cache(&self, name: &str) -> Result<ServiceCache> {
        refuse_bad_name(&self.path, name)?;
        ServiceCache::open(&self.client, join(&self.path, name)).await
    }

    /// Chooses among the instances of a service. See
    /// [`ServiceProvider`](super::ServiceProvider).
    #[doc(alias = "serviceProviderBuilder")]
    pub fn provider(&self, name: impl Into<String>) -> ServiceProviderBuilder {
        ServiceProviderBuilder::new(self.clone(), name.into())
    }
}

/// Deletes a node, and says whether it was there.
async fn delete(client: &Client, path: &str) -> Result<bool> {
    match client.delete_idempotent(path, Version::Any, &patient()).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An instance that is registered, until this is dropped or the session is over.
#[derive(Debug)]
#[must_use = "a registration that is dropped takes a dynamic instance away again"]
pub struct Registration {
    instance: ServiceInstance,
    node: PersistentNode,
}

impl Registration {
    /// What is registered.
    pub fn instance(&self) -> &ServiceInstance {
        &self.instance
    }

    /// The node of the instance, while it is there as far as is known.
    pub fn node(&self) -> Option<String> {
        self.node.current()
    }

    /// Registers something else about the same instance: another payload, say, or that it is disabled.
    /// Waits until everybody can see it. Name, id and type stay.
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

    /// Resolves when the instance is not kept any more, with the reason: the session is over, or the
    /// server refuses.
    pub async fn ended(&self) -> RecipeError {
        let mut creations = self.node.creations();
        loop {
            if let Err(why) = creations.next().await {
                return why;
            }
        }
    }

    /// Takes the instance away, of whatever type it is, and waits until that is done.
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
