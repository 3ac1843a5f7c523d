//! A ZooKeeper server inside your tests, started in one line, or an ensemble of them, and a proxy that
//! breaks connections on purpose.
//!
//! [`TestServer`] is a whole server in this process, on a port and in a directory of its own; it is
//! gone when it is dropped. It can be stopped and restarted on the same data, end a session as if its
//! client had been silent for too long, and drop every connection. [`TestCluster`] is an ensemble of
//! such servers, whose members can be stopped, restarted and cut off from each other. [`FaultyProxy`] stands between a
//! client and any server, this one or another, and cuts, delays, stalls, refuses or resets.
//!
//! All work from blocking and from async code alike: they have threads of their own, need no
//! runtime, and no call waits for longer than the server takes to do what it was asked. None
//! depends on a client: use the one you are testing with.
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
