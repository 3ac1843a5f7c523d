//! Real processes under faults and attacks.
//!
//! [`ensemble`] runs ensembles under load while members are killed, paused, partitioned and
//! replaced, and checks the history of all replies; [`hostile`] attacks servers as clients and
//! peers, measures the effect on another client, and sends random and corrupted requests.
//!
//! It never simulates: processes, disks, sockets and clocks are those of the machine
//! (`ironkeeper-sim` is the simulator).
//!
//! Start from [`ensemble::run`] and [`hostile::run`].

pub mod ensemble;
pub mod hostile;
