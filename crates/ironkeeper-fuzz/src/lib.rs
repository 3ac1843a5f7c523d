//! Fuzz targets as functions: every decoder that reads bytes from a peer or a file.
//!
//! A target takes any bytes and panics if a decoder panics, or if a value does not survive being
//! encoded and decoded again. [`TARGETS`] lists them by name. Two callers run them: the programs in
//! `fuzz/` for libFuzzer, which measures coverage and needs a nightly compiler, and a test of this
//! crate, which runs the corpus in `fuzz/corpus` and seeded mutations of it on stable Rust.
//!
//! A target must be fast, deterministic, and must not allocate in proportion to a number that it
//! reads from its input.

mod client;
mod election;
mod files;
mod link;
mod memory_disk;
mod mutate;
mod packet;
mod request;
mod text;
mod tree;
mod txn;

pub use mutate::Mutator;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the program in `fuzz/fuzz_targets` and of the folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs the target on one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "client_session", run: client::client_session },
    Target { name: "connect", run: request::connect },
    Target { name: "credentials", run: text::credentials },
    Target { name: "election", run: election::election },
    Target { name: "link", run: link::link },
    Target { name: "log_file", run: files::log_file },
    Target { name: "membership", run: text::membership },
    Target { name: "packets_of_leader", run: packet::packets_of_leader },
    Target { name: "packets_of_learner", run: packet::packets_of_learner },
    Target { name: "request", run: request::request },
    Target { name: "snapshot_file", run: files::snapshot_file },
    Target { name: "tree", run: tree::tree },
    Target { name: "txn", run: txn::txn },
    Target { name: "zoo_cfg", run: text::zoo_cfg },
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target with this name.
///
/// # Panics
/// If there is no such target, or if it finds an error.
pub fn run(name: &str, bytes: &[u8]) {
    let target = target(name).expect("the name is that of a target");
    (target.run)(bytes);
}
