//! The encodings of ZooKeeper's protocols and files.
//!
//! This crate defines jute primitives, client requests and replies, transactions, the records of
//! log and snapshot files, and the packets between the servers of an ensemble. Everything is
//! decoded in place (strings and buffers borrow from the input) and encoded directly into the
//! caller's buffer.
//!
//! The crate does no I/O, keeps no state and reads no clock. Every length in the input is checked
//! against the bytes that are present before memory is allocated for it.
//!
//! Start with [`jute::Reader`] and [`jute::Put`] (primitives), [`request::Request`] (requests of
//! clients), [`reply`] (replies), [`txn::Txn`] (transactions: proposed, logged and applied),
//! [`quorum_packet::Packet`] and [`election::Notification`] (packets between servers).
//!
//! ```
//! use ironkeeper_proto::jute::{Put, Reader};
//!
//! let mut bytes = Vec::new();
//! bytes.put_str("/app");
//! bytes.put_i32(7);
//! let mut reader = Reader::new(&bytes);
//! assert_eq!(reader.str().unwrap(), "/app");
//! assert_eq!(reader.i32().unwrap(), 7);
//! ```

#![deny(missing_docs)]
#![warn(unreachable_pub)]

pub mod acl;
pub mod connect;
pub mod election;
pub mod error_code;
pub mod four_letter;
pub mod ids;
mod ip_range;
pub mod jute;
pub mod log_record;
pub mod membership;
pub mod op;
pub mod path;
pub mod quorum_packet;
pub mod reply;
pub mod request;
pub mod snapshot_record;
pub mod stat;
pub mod txn;
pub mod watch_event;

pub use acl::{Acl, AclVec, Perms};
pub use election::Notification;
pub use error_code::ErrorCode;
pub use ids::{Epoch, ServerId, SessionId, Xid, Zxid};
pub use ip_range::IpRange;
pub use jute::{DecodeError, Put, Reader};
pub use membership::Membership;
pub use op::{CreateMode, OpClass, OpCode};
pub use quorum_packet::Packet;
pub use request::Request;
pub use stat::Stat;
pub use txn::{Txn, TxnHeader};
