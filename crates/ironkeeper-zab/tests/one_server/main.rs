//! Tests of one server of an ensemble whose peers are simulated by the test. Most of the cases once
//! made ZooKeeper lose data or stop.

mod choices;
mod joining;
mod promises;
mod server;
mod strangers;
mod syncs;
mod transcripts;
mod transitions;
