//! What ZooKeeper's bytes mean.
//!
//! This crate is the wire and disk vocabulary of Ironkeeper: jute primitives, client requests and
//! replies, transactions, the records of log and snapshot files, and what servers of an ensemble say to
//! each other. Everything is decoded in place
//! (strings and buffers borrow from the input) and encoded straight into the caller's buffer.
//!
//! It never does IO, keeps no state and reads no clock. Every length that comes from outside is
//! checked against what is really there before anything is allocated.
//!
//! Start with [`jute::Reader`] and [`jute::Put`] (primitives), [`request::Request`] (what clients
//! ask), [`reply`] (what they get), [`txn::Txn`] (what is agreed on, logged and applied),
//! [`quorum_packet::Packet`] and [`election::Notification`] (how servers come to agree).
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
pub use op::{CreateMode, OpCode};
pub use quorum_packet::Packet;
pub use request::Request;
pub use stat::Stat;
pub use txn::{Txn, TxnHeader};
