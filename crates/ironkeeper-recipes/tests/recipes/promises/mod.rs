//! The guarantees of the crate, tested for each recipe: no data is lost and no node is left when a
//! connection is cut at any byte, when a rival acts first, or when a future is dropped; no client
//! is woken in vain; misuse returns an error.
//!
//! A recipe is not tested here if its own tests show the guarantee.

mod dropped_futures;
mod every_cut;
mod examples;
mod misuse;
mod rivals;
mod variants;
mod watch_events;
