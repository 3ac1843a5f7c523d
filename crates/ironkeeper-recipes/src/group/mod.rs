//! Who is there, and what they have to say to each other: groups that are joined and left, sets shared
//! out among members, heartbeats, progress reports, commands to all.

pub mod member;
pub mod partition;
pub mod party;

#[doc(inline)]
pub use member::{Group, GroupEvent, GroupEvents, GroupMember};
#[doc(inline)]
pub use partition::{Partition, PartitionState, SetPartitioner};
#[doc(inline)]
pub use party::Party;
