//! What to do when the session is lost. A page of documentation; there is no code in this module.
//!
//! A [`Client`](ironkeeper_client::Client) is one session. The server ends it when it has heard
//! nothing of the client for the session timeout: the process stood still, the network was cut, or
//! no server was up. Then all ephemeral nodes of the session are deleted: its locks, leaderships
//! and registrations are gone, and other clients may have them already. A lost session never comes
//! back, and no recipe continues with another one on its own.
//!
//! # A broken connection is not a lost session
//!
//! While the connection is broken ([`ConnectionState::Suspended`]) the session lives on, and the
//! client connects again by itself. Recipes wait. Nothing has to be built anew. What the program
//! should do meanwhile is to pause work that only a holder or a leader may do: [`Guard::is_valid`]
//! and [`LeaderLatch::has_leadership`] return `false`.
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
//! | a configuration, a cache, a group | the stream of changes ends with `None`; the last values stay |
//! | a watch | an error, or [`WatchItem::SessionEnded`](ironkeeper_client::WatchItem::SessionEnded) |
//! | the state of the connection | [`ConnectionState::Lost`] |
//!
//! # What to do
//!
//! 1. Stop the work that needs what was held. In a `select!` beside [`Guard::lost`] or
//!    [`LeaderLatch::over`] the work is dropped.
//! 2. Drop the client and every recipe that was made with it.
//! 3. Pause, longer after each failure, and connect with a **new** client.
//! 4. Make the recipes again with the new client.
//!
//! So everything that belongs to a session is made in one function, and a loop calls that function.
//!
//! What the old holder had already sent elsewhere, to a database for instance, may arrive after the
//! next holder has begun. Send the [fencing token] with it, and let the receiver
//! refuse a token that is smaller than the largest it has seen. Writes to the tree can be rejected
//! by the server itself: [`Guard::fence`].
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
