//! The byte stream under a client connection or a peer link.
//!
//! ```text
//! accept, dial ──► Stream ──split──► Reader: the task of the connection
//!                                └─► Writer: any thread, one at a time
//! ```
//! A [`Stream`] is made where a socket is accepted (`accept`, `peer::listen`) or dialled
//! (`peer::dial`). The other code depends on the guarantees below and not on the transport, which
//! is TCP; each transport is one variant of the enums in this module.
//!
//! - Reading: [`Reader`] implements [`tokio::io::AsyncRead`]. One call makes at most one system
//!   call while the socket has bytes, and none after a short read until new bytes arrive.
//! - Writing: [`Writer::try_write`] does not wait, so a thread may call it while it holds a lock.
//!   It returns the number of bytes accepted, 0 if there is no room at present. The next call
//!   passes the rest of the same bytes, perhaps followed by others; a transport that encodes bytes
//!   may therefore encode them once and report them as accepted when their encoded form is sent.
//! - Order: the owner of the writer makes the calls one after another, in the order of the bytes.
//!   Nothing else in the process writes to the stream, except what a transport sends by itself.
//! - The end: dropping the [`Writer`] ends the sending direction, so that the peer receives
//!   everything that was accepted; dropping both halves closes the socket.
//!
//! A transport with a handshake (TLS) performs it on the [`Stream`], before it is split: the
//! dialling task within its timeout, the task of an accepted connection within the time in which
//! its first message must arrive, and with its permit, so that handshakes count as connections.
//! There the first bytes tell the transport of a shared port, and what the handshake proved about
//! the peer is read from the stream. The halves share the state of such a transport under a lock of
//! their own, which is taken last and held only while bytes are encoded or decoded.

mod reader;
mod stream;
mod writer;

pub(crate) use reader::Reader;
pub(crate) use stream::{Detached, Stream};
pub(crate) use writer::Writer;

#[cfg(test)]
mod tests;
