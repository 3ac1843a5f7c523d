//! Queues, each against a real server, with and without faults.

mod blocking;
mod ordered;
mod sharded;
mod simple;
mod work;
