//! Clusters of whole servers with their clients: the product's engine, ZAB and store, on a
//! simulated network, simulated disks and simulated clocks.
//!
//! ```text
//! client ── bytes ── front: Conn ── engine ── log work: LogWriter, DurableSteps ── SimDisk
//!                                     │
//!                              links: bytes of packets and snapshots ── the other servers
//! ```
//! Everything except threads and sockets is the product's code: connections, the preparation of
//! requests, ZAB, the log with its syncs, snapshots, recovery, and the bytes between all of them.
//!
//! | file | idea |
//! | --- | --- |
//! | `world`, `plan` | the queue of events; the parameters that the seed determines |
//! | `node`, `perform`, `files` | a server, the outputs of its engine, its disk operations |
//! | `links`, `front` | connections of servers and of clients |
//! | `client`, `requests`, `load`, `answers` | clients: their requests, and checks of the replies |
//! | `guests` | network ends for external clients, such as the product's own client |
//! | `read_only` | clients at servers in read-only mode |
//! | `history`, `agreement`, `judgement`, `early_ends` | the rules |
//! | `trouble` | fault injection |

mod agreement;
mod answers;
mod client;
mod early_ends;
mod files;
mod front;
mod guests;
mod history;
mod judgement;
mod links;
mod load;
mod node;
mod perform;
mod plan;
mod read_only;
mod requests;
mod trouble;
mod world;

pub use client::Client;
pub use guests::Told;
pub use node::Node;
pub use plan::{ClientBug, Plan};
pub use requests::Request;
pub use world::{Phase, Stop, World};

use crate::outcome::{Failure, Report};

/// Runs one seed.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Report, Failure> {
    World::new(seed, Plan::from_seed(seed), verbose).run()
}
