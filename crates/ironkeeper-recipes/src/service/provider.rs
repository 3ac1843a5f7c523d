//! The choice of one instance of a service, among those that are usable, by a rule. Curator's
//! `ServiceProvider`.
//!
//! # On the tree
//! The nodes of [`ServiceDiscovery`]; the provider creates none, unless the rule is
//! [`LeastConnections`](super::balance::LeastConnections).
//!
//! # Steps
//! 1. Take the instances of a [`ServiceCache`].
//! 2. Skip the instances that are disabled, that a filter rejects, or that are down: with enough
//!    calls of [`ServiceProvider::note_error`], see [`DownInstancePolicy`].
//! 3. Choose one by the rule, see [`balance`](super::balance).
//!
//! # Guarantees
//! Choosing makes no request and never waits. The chosen instance was registered at the last update
//! of the cache; it may have been removed since, and then the connection to it fails: the caller
//! notes the error and chooses again. If all instances are down, none is chosen, as in Curator.
//!
//! # When things break
//! As in [`ServiceCache`]: the last known instances stay, also after the end of the session.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::error::Result;
use crate::service::balance::{Balance, RoundRobin};
use crate::service::cache::ServiceCache;
use crate::service::discovery::ServiceDiscovery;
use crate::service::down::{DownInstancePolicy, DownInstances};
use crate::service::instance::ServiceInstance;

type Filter = Box<dyn Fn(&ServiceInstance) -> bool + Send + Sync>;

/// The settings of a [`ServiceProvider`].
#[must_use = "nothing is followed before the provider is opened"]
pub struct ServiceProviderBuilder {
    discovery: ServiceDiscovery,
    name: String,
    rule: Arc<dyn Balance>,
    filters: Vec<Filter>,
    policy: DownInstancePolicy,
}

impl fmt::Debug for ServiceProviderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProviderBuilder")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .field("filters", &self.filters.len())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl ServiceProviderBuilder {
    pub(super) fn new(discovery: ServiceDiscovery, name: String) -> ServiceProviderBuilder {
        ServiceProviderBuilder {
            discovery,
            name,
            rule: Arc::new(RoundRobin::default()),
            filters: Vec::new(),
            policy: DownInstancePolicy::default(),
        }
    }

    /// Sets the rule. The default is [`RoundRobin`].
    #[doc(alias = "providerStrategy")]
    pub fn rule(mut self, rule: impl Balance + 'static) -> ServiceProviderBuilder {
        self.rule = Arc::new(rule);
        self
    }

    /// Adds a filter: only instances for which all filters return `true` are candidates.
    pub fn filter(
        mut self,
        is_wanted: impl Fn(&ServiceInstance) -> bool + Send + Sync + 'static,
    ) -> ServiceProviderBuilder {
        self.filters.push(Box::new(is_wanted));
        self
    }

    /// Sets the policy for instances with errors.
    pub fn down_policy(mut self, policy: DownInstancePolicy) -> ServiceProviderBuilder {
        self.policy = policy;
        self
    }

    /// Starts to follow the service, and waits until its instances are read.
    pub async fn open(self) -> Result<ServiceProvider> {
        Ok(ServiceProvider {
            cache: self.discovery.cache(&self.name).await?,
            rule: self.rule,
            filters: self.filters,
            down: Mutex::new(DownInstances::new(self.policy)),
        })
    }
}

/// A handle that chooses among the instances of a service.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::service::balance::SourceHash;
/// use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let discovery = ServiceDiscovery::new(&client, "/services");
///     let _one = discovery.register(ServiceInstance::new("web").with_port(8001)).await?;
///     let _two = discovery.register(ServiceInstance::new("web").with_port(8002)).await?;
///
///     let web = discovery
///         .provider("web")
///         .rule(SourceHash)
///         .filter(|instance| instance.port.is_some())
///         .open()
///         .await?;
///     let chosen = web.choose_for("user 7").unwrap();
///     assert_eq!(web.choose_for("user 7"), Some(chosen.clone()));
///     web.note_error(&chosen);
///     web.note_error(&chosen); // down: the other one steps in
///     assert_ne!(web.choose_for("user 7"), Some(chosen));
///     Ok(())
/// }
/// ```
pub struct ServiceProvider {
    cache: ServiceCache,
    rule: Arc<dyn Balance>,
    filters: Vec<Filter>,
    down: Mutex<DownInstances>,
}

impl fmt::Debug for ServiceProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProvider")
            .field("cache", &self.cache)
            .field("rule", &self.rule)
            .field("filters", &self.filters.len())
            .field("down", &self.down)
            .finish()
    }
}

impl ServiceProvider {
    /// Returns one instance, if there is a candidate.
    #[doc(alias = "getInstance")]
    pub fn choose(&self) -> Option<Arc<ServiceInstance>> {
        self.choose_for("")
    }

    /// Returns one instance for a source, such as a user or an address. Only some rules use the
    /// source.
    pub fn choose_for(&self, source: &str) -> Option<Arc<ServiceInstance>> {
        let candidates = self.candidates();
        if candidates.is_empty() { None } else { self.rule.choose(&candidates, source) }
    }

    /// Returns all candidates: the instances that may be chosen.
    #[doc(alias = "getAllInstances")]
    pub fn candidates(&self) -> Vec<Arc<ServiceInstance>> {
        let (now, down) = (Instant::now(), self.down());
        let is_wanted = |instance: &&Arc<ServiceInstance>| {
            instance.enabled
                && !down.is_down(now, &instance.key())
                && self.filters.iter().all(|is_wanted| is_wanted(instance))
        };
        self.cache.instances().iter().filter(is_wanted).cloned().collect()
    }

    /// Notes that an instance could not be used. After a number of errors it is down for a while,
    /// see [`DownInstancePolicy`].
    #[doc(alias = "noteError")]
    pub fn note_error(&self, instance: &ServiceInstance) {
        self.down().note(Instant::now(), instance.key());
    }

    /// Returns the cache of all instances, including those that are not candidates.
    pub fn cache(&self) -> &ServiceCache {
        &self.cache
    }

    fn down(&self) -> MutexGuard<'_, DownInstances> {
        // A panic under this lock leaves no partial change.
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
