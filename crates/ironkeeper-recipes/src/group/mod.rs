//! Who is there, and what they have to say to each other: groups that are joined and left, sets shared
//! out among members, heartbeats, progress reports, commands to all.

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
