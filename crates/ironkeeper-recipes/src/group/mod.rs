//! Who is there: groups that are joined and left, and seen by their members and from outside.

pub mod member;
pub mod party;

#[doc(inline)]
pub use member::{Group, GroupEvent, GroupEvents, GroupMember};
#[doc(inline)]
pub use party::Party;
