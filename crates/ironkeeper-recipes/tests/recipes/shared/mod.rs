//! Shared values, counts and atomic numbers, each against a real server, with and without faults.

mod atomic;
mod map;
mod value;
