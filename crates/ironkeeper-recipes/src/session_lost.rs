//! What to do when the session is lost. A page of documentation; there is no code in this module.
//!
//! A [`Client`](ironkeeper_client::Client) is one session. The server expires the session when it
//! has received nothing from the client for the session timeout: the process was suspended, the
//! network was down, or no server was running. Then the server deletes all ephemeral nodes of the
//! session: its locks, leaderships and registrations have ended, and other clients may hold them
//! already. A lost session never comes back, and no recipe continues with another one on its own.
//!
//! # A broken connection is not a lost session
//!
//! While the connection is broken ([`ConnectionState::Suspended`]) the session stays open, and the
//! client reconnects by itself. Recipes wait, and nothing has to be created again. Meanwhile the
//! program should pause work that only a holder or a leader may do: [`Guard::is_valid`] and
//! [`LeaderLatch::has_leadership`] return `false`.
//!
//! # How a program learns of it
//!
//! | where | what it gets |
//! | --- | --- |
//! | any request of the client | an error with [`is_session_over`](ironkeeper_client::Error::is_session_over) |
//! | any method of a recipe | an error with [`is_session_over`](crate::RecipeError::is_session_over) |
//! | a guard | [`Guard::lost`] resolves with [`Lost::SessionEnded`] |
//! | a leader | [`LeaderLatch::over`] resolves; [`LeaderLatch::leading`] returns an error |
//! | a registered service | [`Registration::ended`](crate::service::Registration::ended) resolves |
//! | a configuration, cache or group | the stream of changes ends with `None`; the values stay |
//! | a watch | an error, or [`WatchItem::SessionEnded`](ironkeeper_client::WatchItem::SessionEnded) |
//! | the state of the connection | [`ConnectionState::Lost`] |
//!
//! # What to do
//!
//! 1. Stop the work that requires the lock or the leadership. In a `select!` with [`Guard::lost`]
//!    or [`LeaderLatch::over`] the work is dropped.
//! 2. Drop the client and every recipe that was created with it.
//! 3. Wait, longer after each failure, and connect with a **new** client.
//! 4. Create the recipes again with the new client.
//!
//! Therefore create everything that belongs to a session in one function, and call that function in
//! a loop.
//!
//! Requests that the old holder has sent to another system, for instance a database, may arrive
//! after the next holder has begun. Send the [fencing token] with them, and let the receiver reject
//! a token that is smaller than the largest it has received. For writes to the tree the server
//! itself can do that: [`Guard::fence`].
//!
//! # The loop
//!
//! This is `examples/leader.rs`. Run it in several terminals and kill the leader.
//!
#![doc = "```no_run,standalone_crate"]
#![doc = include_str!("../examples/leader.rs")]
#![doc = "```"]
//!
//! [`ConnectionState::Suspended`]: ironkeeper_client::ConnectionState::Suspended
//! [`ConnectionState::Lost`]: ironkeeper_client::ConnectionState::Lost
//! [`Guard::is_valid`]: crate::Guard::is_valid
//! [`Guard::lost`]: crate::Guard::lost
//! [`Guard::fence`]: crate::Guard::fence
//! [fencing token]: crate::Guard::fencing_token
//! [`Lost::SessionEnded`]: crate::Lost::SessionEnded
//! [`LeaderLatch::has_leadership`]: crate::election::LeaderLatch::has_leadership
//! [`LeaderLatch::over`]: crate::election::LeaderLatch::over
//! [`LeaderLatch::leading`]: crate::election::LeaderLatch::leading
