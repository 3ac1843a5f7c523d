//! An async client for Ironkeeper and Apache ZooKeeper.
//!
//! Start with [`Client`]: it connects, and its methods are the operations. Each method queues its
//! request and returns a [`Reply`]. Awaiting the reply only waits for the server, so a caller can
//! have many requests in flight. [`Error`] states whether the request was applied, whether the
//! session has ended and whether a retry makes sense. [`Watch`] and [`Watcher`] deliver changes and
//! report every possible loss of events; [`States`] is the stream of connection states.
//!
//! The crate needs a tokio runtime and depends on no server. It never repeats a write by itself: an
//! error states that the write may have been applied, and a [`RetryPolicy`] retries on request.
//!
//! ```
//! use ironkeeper_client::{Client, CreateMode, ErrorKind};
//!
//! # #[ironkeeper_doctest::server]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect("127.0.0.1:2181").await?;
//!     match client.create("/app", "", CreateMode::Persistent).await {
//!         Err(error) if error.kind() == ErrorKind::NodeExists => {}
//!         other => drop(other?),
//!     }
//!     let (config, changed) = client.exists_and_watch("/app/config").await?;
//!     Ok(())
//! }
//! ```

//!
//! This example and all others connect to a server on `127.0.0.1:2181`: `cargo run --release` in
//! Ironkeeper's repository starts one. With `ironkeeper-testing` a test starts its own.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `tls` | `TlsTransport` and `TlsSettings`: connections over TLS, by rustls |
//!
//! `MIGRATING.md` maps the methods of Apache's Java client, of Curator and of kazoo to the methods
//! of this crate, and the search of this documentation finds their names.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![warn(unreachable_pub)]

mod builder;
mod chroot;
mod client;
mod create;
mod driver;
mod error;
mod guaranteed;
mod hosts;
mod idempotent;
mod multi;
mod parents;
mod pipe;
mod protected;
mod random;
mod reply;
mod retry;
mod session;
mod shared;
mod state;
mod transport;
mod tree_walk;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use builder::ClientBuilder;
pub use client::{Client, Identity, Node, Version};
pub use create::{CreateOptions, Created, acls};
pub use error::{Error, ErrorKind, Happened, Result};
pub use guaranteed::GuaranteedDelete;
pub use hosts::{ConnectString, DEFAULT_PORT, Host};
pub use ironkeeper_proto::path::PathError;
pub use ironkeeper_proto::watch_event::EventType;
pub use ironkeeper_proto::{Acl, CreateMode, ErrorCode, Perms, SessionId, Stat, Zxid};
pub use multi::{MultiRead, OpResult, Transaction};
pub use reply::Reply;
pub use retry::{Pauses, RetryPolicy};
pub use state::{ConnectionState, States};
pub use transport::{
    Connection, MemoryListener, MemoryTransport, Opening, TcpTransport, Transport,
};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use transport::{TlsSettings, TlsTransport};
pub use tree_walk::{TreeWalk, Visited};
pub use watch::{Watch, WatchEvent, WatchItem, WatchMode, WatchType, Watcher};

/// Locks `mutex` and ignores poisoning: no code under these locks panics, so a panic elsewhere
/// leaves the protected data consistent.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests the programs in the README with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Tests the programs in the guide for users of other clients.
#[cfg(doctest)]
#[doc = include_str!("../MIGRATING.md")]
struct Migrating;
