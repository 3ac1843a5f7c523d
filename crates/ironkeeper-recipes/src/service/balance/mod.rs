//! Rules by which one of many instances is chosen.
//!
//! | rule | chooses | remembers |
//! | --- | --- | --- |
//! | [`RoundRobin`] | one after the other | the last one |
//! | [`Random`] | any | nothing |
//! | [`SourceHash`] | the same one for the same source, in every process | nothing |
//! | [`WeightedRoundRobin`] | in turn, as often as the weight says, evenly mixed | a number per instance |
//! | [`WeightedRandom`] | any, as often as the weight says | nothing |
//! | [`LeastConnections`] | the one with the fewest connections of all clients together | counts, on the tree |
//! | [`Sticky`] | the same one as long as it is there | that one |
//!
//! All but [`LeastConnections`] know of their own process only. None of them waits or makes a request
//! when it chooses.

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

/// A rule by which one of many instances is chosen.
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
    /// Chooses one of the instances, which come in the order of their nodes' names, for somebody in
    /// particular. `None` if there is none that may be chosen.
    fn choose(&self, among: &[Arc<ServiceInstance>], source: &str) -> Option<Arc<ServiceInstance>>;
}
