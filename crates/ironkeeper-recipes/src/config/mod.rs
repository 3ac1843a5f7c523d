//! A configuration that some clients publish and many follow: typed values, updates of several
//! values at once, and a history.
//!
//! # On the tree
//! ```text
//! /config/shop                         persistent: the number of the revision: `7`
//!   values
//!     limit.max                        persistent: a value; characters of the key that a path may
//!     mode                             not contain are escaped
//!   history
//!     0000000006                       persistent: the changes of a revision, author and reason
//!     0000000007
//! /config/shop.receipts                ephemeral receipts, one per concurrent write; they show
//!                                      whether a write with a lost reply was applied
//! ```
//!
//! # Steps
//! 1. [`Config::publish`]: read everything; then in one transaction write the number of the
//!    revision with the version that was read, all changed values, and an entry of the history. The
//!    same transaction deletes the oldest entries of the history if there are too many.
//! 2. [`Config::open`]: read everything, and watch the node with the number. When the watch fires
//!    (push), read everything again (pull).
//! 3. All values are read by one request, which the server executes at one zxid.
//!
//! # Guarantees
//! Updates are atomic: no [`Snapshot`] contains a part of an update. Snapshots never go back. If
//! two clients publish at the same time, the server rejects one of them, and that client applies
//! its update to the new revision. Each update is published once, also when replies are lost. Each
//! subscriber receives one watch event per update, regardless of the number of changed values;
//! fewer if updates arrive faster than the subscriber reads.
//!
//! Values that are written without this recipe become visible with the next update or by
//! [`Config::pull`].
//!
//! # When things break
//! - The connection is lost: the last known values stay, and [`Config::is_fresh`] returns `false`.
//!   After the reconnect the subscribers receive what was published meanwhile.
//! - The session has ended: the last known values stay; the changes end; publishing fails.
//! - A value is not of the requested type:
//!   [`RecipeError::Malformed`](crate::RecipeError::Malformed) with its path. [`TypedValue`] keeps
//!   the last good value.
//! - The whole configuration exceeds the maximum size of a reply: the read fails. Split the
//!   configuration.
//! - The future of a publication is dropped: the whole update was applied, or none of it.

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
