//! Services: registration, discovery by name, and load balancing among the instances.

pub mod balance;
pub mod cache;
pub mod discovery;
mod down;
pub mod instance;
pub mod provider;
pub mod uri_spec;

#[doc(inline)]
pub use cache::{ServiceCache, ServiceChanges};
#[doc(inline)]
pub use discovery::{Registration, ServiceDiscovery};
pub use down::DownInstancePolicy;
#[doc(inline)]
pub use instance::{ServiceInstance, ServiceType};
#[doc(inline)]
pub use provider::{ServiceProvider, ServiceProviderBuilder};
#[doc(inline)]
pub use uri_spec::UriSpec;
