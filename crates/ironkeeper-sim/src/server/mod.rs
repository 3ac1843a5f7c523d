//! Clusters of whole servers with their clients: the product's engine, ZAB and store, on a simulated
//! network, simulated disks and simulated clocks.
//!
//! ```text
//! client ── bytes ── front: Conn ── engine ── log work: LogWriter, DurableSteps ── SimDisk
//!                                     │
//!                              links: bytes of packets and trees ── the other servers
//! ```
//! Everything but the threads and sockets is what the product runs: connections, judging, broadcast, the
//! log with its syncs, snapshots, recovery, and the bytes between all of them.
//!
//! | file | idea |
//! | --- | --- |
//! | `world`, `plan` | the queue of events; what a seed decides |
//! | `node`, `perform`, `files` | a server, what its engine wants, what it does to its disk |
//! | `links`, `front` | connections of servers and of clients |
//! | `client`, `requests`, `load`, `answers` | clients: what they ask, and what they are told |
//! | `guests` | places for clients that run beside the world, as the product's own does |
//! | `read_only` | clients at servers that have no leader |
//! | `history`, `agreement`, `judgement`, `early_ends` | the rules |
//! | `trouble` | what happens to servers |

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
pub use plan::{Misconduct, Plan};
pub use requests::Request;
pub use world::{Phase, Stop, World};

use crate::outcome::{Failure, Report};

/// Runs one seed from beginning to end.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Report, Failure> {
    World::new(seed, Plan::from_seed(seed), verbose).run()
}
