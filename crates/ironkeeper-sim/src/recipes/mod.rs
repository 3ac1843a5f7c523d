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
//! | `theatre` | the runner: programs and world on one clock |
//! | `plan` | the parameters that the seed determines |
//! | `wire` | the client's transport |
//! | `program` | a process with a session, which ends and is restarted |
//! | `ledger`, `holdings` | operations of programs, the holds they claim, and the rules for them |
//! | `plays` | the workloads of programs, one file for each family of recipes |

mod holdings;
mod ledger;
mod plan;
mod plays;
mod program;
mod theatre;
mod wire;

pub use plan::{Misconduct, Plan};
pub use plays::Play;
pub use theatre::run;

use crate::outcome::{Failure, Report};

/// Runs one seed.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Report, Failure> {
    run(seed, Plan::from_seed(seed), verbose)
}
