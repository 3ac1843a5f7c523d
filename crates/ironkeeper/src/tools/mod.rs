//! Looking into files, Apache's and ours alike, with the readers of the server itself.

pub mod log;
mod notation;
pub mod snapshot;

use std::io;

/// Whether the reader of our output has gone away, as `head` does. Not an error of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
