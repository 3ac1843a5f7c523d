//! The I/O threads: sockets, frames in, replies out.
//!
//! Each thread runs a single-threaded tokio runtime; a connection stays on its thread. A small
//! request costs two or three system calls, so this module minimises their number: one read
//! receives as many requests as there are, one write sends their replies, and the engine wakes a
//! thread once for all its connections.
//!
//! | file | idea |
//! | --- | --- |
//! | `handle` | the interface of a thread for other threads: ready connections, new connections |
//! | `slots` | the connections of a thread by their tag |
//! | `thread` | the main loop of a thread, and its end |
//! | `connection` | the task of a connection |
//!
//! [`OutboxSender`] sends a connection's output, from its task or from another thread.

mod connection;
mod handle;
mod slots;
mod thread;

use std::io::{self, IoSlice};

use ironkeeper_engine::outbox_sender::{ByteSink, OutboxSender};

use crate::wire::Writer;

pub use handle::{IoHandle, NewConnection};
pub use thread::run;

/// The sender of a client connection.
type ConnSender = OutboxSender<Writer>;

impl ByteSink for Writer {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Writer::try_write(self, bytes)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Writer::try_write_vectored(self, slices)
    }
}
