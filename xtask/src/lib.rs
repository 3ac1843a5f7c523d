//! Chores of the repository, written in Rust so that they run on every platform that builds the
//! product.
//!
//! It never depends on a crate of the product: the suites that do are a program of their own
//! (`ironkeeper-suites`), which [`suites`] builds and runs.

#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod known_bugs;
#[cfg(test)]
mod one_build;
pub mod permutations;
pub mod sim;
pub mod suites;
pub mod test;
pub mod tidy;
