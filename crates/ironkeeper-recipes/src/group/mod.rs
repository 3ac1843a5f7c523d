//! Membership and messages between members: groups, sets that are divided among members,
//! heartbeats, progress reports, and commands to all members.

pub mod command;
pub mod heartbeat;
pub mod member;
pub mod partition;
pub mod party;
pub mod progress;
mod roster;

#[doc(inline)]
pub use command::{Broadcast, Command, CommandListener, Console, Outcome};
#[doc(inline)]
pub use heartbeat::{Health, Heartbeat, HeartbeatMonitor, Pulse};
#[doc(inline)]
pub use member::{Group, GroupEvent, GroupEvents, GroupMember};
#[doc(inline)]
pub use partition::{Partition, PartitionState, SetPartitioner};
#[doc(inline)]
pub use party::Party;
#[doc(inline)]
pub use progress::{
    NoReport, Part, PartChanges, ProgressBoard, ProgressReporter, Report, ReportState,
};
