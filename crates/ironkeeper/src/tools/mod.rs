//! Tools that print the files of Ironkeeper and Apache ZooKeeper, with the readers of the server
//! itself.

pub mod log;
mod notation;
pub mod snapshot;

use std::io;

/// Returns whether the reader of the output has closed it, as `head` does. This is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
