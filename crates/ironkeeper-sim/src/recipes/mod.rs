//! Programs on a cluster of whole servers: the product's own client and recipes, on servers with
//! all kinds of faults.
//!
//! ```text
//! programs: recipes ── client ── transport ── world: bytes, latency, cuts ── servers
//!     │                                                                       │
//!     └── operations, claimed holds ── checked against the newest leader's tree
//! ```
//! There is one thread, one clock and one seed. Only the transport of the client is replaced, which
//! the client lets its users choose.
//!
//! | file | idea |
//! | --- | --- |
//! | `runner` | the runner: programs and world on one clock |
//! | `plan` | the parameters that the seed determines |
//! | `wire` | the client's transport |
//! | `program` | a process with a session, which ends and is restarted |
//! | `observations`, `claimed_holds` | operations of programs, the holds they claim, and the rules for them |
//! | `workloads` | the workloads of programs, one file for each family of recipes |

mod claimed_holds;
mod observations;
mod plan;
mod program;
mod runner;
mod wire;
mod workloads;

pub use plan::{Plan, ProgramBug};
pub use runner::run;
pub use workloads::Workload;

use crate::outcome::{Failure, Report};

/// Runs one seed.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Report, Failure> {
    run(seed, Plan::from_seed(seed), verbose)
}
