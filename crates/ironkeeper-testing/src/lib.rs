//! A ZooKeeper server inside your tests, started in one line; an ensemble of servers; and a proxy
//! that breaks connections on purpose.
//!
//! [`TestServer`] is a complete server in this process with its own port and directory; dropping it
//! stops the server. It can be stopped and restarted with the same data, it can expire a session,
//! and it can close every connection. [`TestCluster`] is an ensemble of such servers, whose members
//! can be stopped, restarted and separated from each other by a partition. [`FaultyProxy`] forwards
//! between a client and any server, and cuts, delays, stalls, refuses or resets connections.
//!
//! All three work in blocking and in async code: they have their own threads, need no runtime, and
//! no call waits longer than the server needs for the operation. None depends on a client: use the
//! client that you are testing with.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use ironkeeper_testing::TestServer;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = TestServer::start()?;
//!
//!     let mut stream = TcpStream::connect(server.connect_string())?;
//!     stream.write_all(b"ruok")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     assert_eq!(answer, "imok");
//!     Ok(())
//! }
//! ```

#![deny(missing_docs)]
#![warn(unreachable_pub)]

mod builder;
mod cluster;
mod cluster_builder;
mod error;
mod faulty_proxy;
mod port;
mod role;
mod server;

pub use builder::Builder;
pub use cluster::TestCluster;
pub use cluster_builder::ClusterBuilder;
pub use error::Error;
pub use faulty_proxy::{Direction, FaultyProxy};
pub use ironkeeper_proto::SessionId;
pub use port::HeldPort;
pub use role::Role;
pub use server::TestServer;
