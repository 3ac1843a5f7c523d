//! Configuration that is published by some and followed by many: typed values, several changed at once,
//! with a history.
//!
//! # On the tree
//! ```text
//! /config/shop                                 persistent: the number of the revision: `7`
//!   values
//!     limit.max                                persistent: a value; what a path may not contain in a key
//!     mode                                     is escaped
//!   history
//!     0000000006                               persistent: what a revision has changed, by whom, and why
//!     0000000007
//! /config/shop.receipts                        one ephemeral node per writer, by which a repeated write
//!                                              is told from one whose reply was lost
//! ```
//!
//! # Steps
//! 1. [`Config::publish`]: read everything; then in one transaction write the number of the revision from
//!    the version that was read, all values, and what has changed into the history. The oldest entry of
//!    the history goes with it when there are too many.
//! 2. [`Config::open`]: read everything, and watch the node with the number (push). When it fires, read
//!    everything again (pull).
//! 3. All values are read by one request, which the server answers at one moment.
//!
//! # Guarantees
//! What is published together is seen together: no [`Snapshot`] holds one half of an update. Snapshots
//! never go back. Of two who publish at once one is refused by the server and builds upon the other. Each
//! update is published once, also when replies are lost. One watch event per subscriber and update, however
//! many values it changes; less, if updates come faster than they are read.
//!
//! What is written to the values without this recipe is seen with the next update, or by
//! [`Config::pull`].
//!
//! # When things break
//! - Disconnected: the last known values stay, and [`Config::is_fresh`] says no. What was published
//!   meanwhile is told after the reconnect.
//! - Session over: the last known values stay; the changes end; publishing fails.
//! - A value of another type than is asked for: [`RecipeError::Malformed`](crate::RecipeError::Malformed)
//!   with its path. [`TypedValue`] keeps the last good one.
//! - The whole configuration larger than a reply may be: an error of the read. Split it.
//! - The future of a publication dropped: it took place or not, all of it or nothing.

mod history;
mod read;
mod snapshot;
mod store;
mod typed;
mod update;

pub use history::{Revision, ValueChange};
pub use snapshot::Snapshot;
pub use store::{Config, ConfigChanges};
pub use typed::TypedValue;
pub use update::Update;
