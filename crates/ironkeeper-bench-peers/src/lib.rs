//! Benchmarks beside peers: servers ([`bench`]), clients ([`bench_clients`]) and locks
//! ([`bench_handovers`]), measured in turns on one machine.
//!
//! The crate generates no load itself: `ironkeeper bench`, etcd's generator and small client
//! programs do.
//!
//! Start from [`bench::run`].

pub mod bench;
pub mod bench_clients;
pub mod bench_handovers;
mod contenders;
mod measured;
