//! Rules that choose one of several instances.
//!
//! | rule | chooses | state |
//! | --- | --- | --- |
//! | [`RoundRobin`] | the next one by id | the last one |
//! | [`Random`] | a random one | none |
//! | [`SourceHash`] | the same one for the same source, in every process | none |
//! | [`WeightedRoundRobin`] | the next one, by weight, interleaved | a number per instance |
//! | [`WeightedRandom`] | a random one, by weight | none |
//! | [`LeastConnections`] | the one with fewest connections of all clients | nodes on the tree |
//! | [`Sticky`] | the same one as long as it is a candidate | that one |
//!
//! All rules except [`LeastConnections`] use the state of their own process only. No rule waits or
//! makes a request when it chooses.

pub mod connections;
mod dice;
mod plain;
mod source_hash;
mod sticky;
mod weighted;

use std::fmt;
use std::sync::Arc;

#[doc(inline)]
pub use connections::{Connection, LeastConnections};
pub use plain::{Random, RoundRobin};
pub use source_hash::SourceHash;
pub use sticky::Sticky;
pub use weighted::{WeightedRandom, WeightedRoundRobin};

use crate::service::instance::ServiceInstance;

/// A rule that chooses one of several instances.
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::Balance;
///
/// /// Whoever has been there longest.
/// #[derive(Debug)]
/// struct Eldest;
///
/// impl Balance for Eldest {
///     fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
///         among.iter().min_by_key(|instance| instance.registration_time_utc).cloned()
///     }
/// }
/// ```
#[doc(alias = "ProviderStrategy")]
#[doc(alias = "load balancing")]
pub trait Balance: fmt::Debug + Send + Sync {
    /// Chooses one of the instances, which are sorted by the names of their nodes, for a source
    /// such as a user or an address. Returns `None` if no instance may be chosen.
    fn choose(&self, among: &[Arc<ServiceInstance>], source: &str) -> Option<Arc<ServiceInstance>>;
}
