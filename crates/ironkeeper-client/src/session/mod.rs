//! The session, without sockets and clocks.
//!
//! [`machine::Machine`] receives packets and the time; its outputs are the bytes to send, the
//! server to connect to and the replies of each caller. [`frames::Frames`] splits incoming bytes
//! into frames, and [`watches::WatchTable`] stores the watchers of each node. The driver owns the
//! transport.

pub(crate) mod frames;
pub(crate) mod machine;
pub(crate) mod watches;

#[cfg(test)]
mod machine_properties;
#[cfg(test)]
mod machine_transcripts;
