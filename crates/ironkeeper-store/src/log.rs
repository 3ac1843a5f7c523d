//! Transaction logs.
//!
//! ```text
//! log.<zxid of the first record>
//! | ZKLG 2 0 | checksum, length, body, 'B' | ... | zeroes up to the preallocated length |
//! ```
//! A file is written by one process only. A later process never appends to it.

pub mod catch_up;
pub mod range;
pub mod reader;
mod renew;
pub mod stream;
mod tail;
mod truncate;
pub mod writer;
