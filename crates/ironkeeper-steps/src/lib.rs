//! What a run of many checks consists of: [`stages`] of steps, [`count`]s, commands with a
//! [`limited`] time, [`slots`] that bound concurrent work, [`builds`] of this workspace and its
//! [`test_binaries`].
//!
//! It never depends on a crate of the product, so that `cargo xtask` starts without compiling one.
//!
//! Start from [`stages::Step`] and [`count::Count`].

pub mod builds;
pub mod cargo;
pub mod count;
pub mod limited;
pub mod process;
pub mod repo;
pub mod slots;
pub mod stages;
pub mod tally;
pub mod test_binaries;
