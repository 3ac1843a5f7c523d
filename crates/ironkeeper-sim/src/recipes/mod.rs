//! Programs on a cluster of whole servers: the product's own client and recipes, against servers to which
//! everything happens that can happen.
//!
//! ```text
//! programs: recipes ── client ── wires ── guests of the world: bytes, latency, cuts ── servers
//!     │                                                                                 │
//!     └── ledger: what they did and believe ── holdings: held against the newest leader's tree
//! ```
//! One thread, one clock, one seed. Nothing of the client or the recipes is replaced but the transport, which
//! the client lets its users choose.
//!
//! | file | idea |
//! | --- | --- |
//! | `theatre` | programs and world on one clock |
//! | `plan` | what a seed decides |
//! | `wire` | the client's transport |
//! | `program` | a process with a session, which dies and comes back |
//! | `ledger`, `holdings` | what programs did, what they believe to hold, and the rules for that |
//! | `plays` | what programs do together, a file for each family of recipes |

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

/// Runs one seed from beginning to end.
pub fn run_seed(seed: u64, verbose: bool) -> Result<Report, Failure> {
    run(seed, Plan::from_seed(seed), verbose)
}
