//! Values that many clients read and change: followed values, atomic values, maps and sets.

pub mod atomic_number;
pub mod atomic_value;
pub mod cached_counter;
pub mod count;
pub mod map;
pub mod set;
pub mod value;
pub(crate) mod write;

#[doc(inline)]
pub use atomic_number::{AtomicInteger, AtomicLong, AtomicNumber, Number};
#[doc(inline)]
pub use atomic_value::{AtomicStats, AtomicValue, Change};
#[doc(inline)]
pub use cached_counter::CachedCounter;
#[doc(inline)]
pub use count::{CountChanges, SharedCount};
#[doc(inline)]
pub use map::Map;
#[doc(inline)]
pub use set::Set;
#[doc(inline)]
pub use value::{SharedValue, ValueChanges, VersionedValue};
