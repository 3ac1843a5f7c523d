//! The session, free of sockets and clocks.
//!
//! [`machine::Machine`] is told what arrives and what time it is, and says what to send, whom to
//! connect to and who gets which answer. [`frames::Frames`] cuts incoming bytes into frames and
//! [`watches::WatchTable`] knows who waits for which node. The driver outside owns the transport.

pub(crate) mod frames;
pub(crate) mod machine;
pub(crate) mod watches;

#[cfg(test)]
mod machine_properties;
#[cfg(test)]
mod machine_transcripts;
