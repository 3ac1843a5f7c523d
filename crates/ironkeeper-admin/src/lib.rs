//! What a server tells its administrators: plain data, and renderers.
//!
//! Each administrative answer is a struct: [`ServerState`], [`Configuration`], [`Connection`],
//! [`Dump`], [`Watcher`], [`Monitor`]. `ironkeeper-server` collects them; the renderers in [`text`]
//! print them as four-letter words. Another form, such as JSON over HTTP, is another renderer of
//! the same data.
//!
//! This crate opens no sockets and files, reads no clock and no environment, and does not depend on
//! the server, so that a console can use the data as well.

mod configuration;
mod connection;
mod dump;
mod monitor;
mod server;
pub mod text;
mod version;
mod watches;

pub use configuration::{Configuration, DirSizes, MemberConfiguration};
pub use connection::{Connection, SessionState};
pub use dump::{Dump, EndingConnection, Schedule};
pub use monitor::Monitor;
pub use server::{Mode, ProposalSizes, ServerState, Service};
pub use version::{ZOOKEEPER_VERSION, version};
pub use watches::Watcher;

/// The environment of the process: keys and values in the order in which they are shown.
pub type Environment = Vec<(&'static str, String)>;
