//! What the crate promises of every recipe, recipe by recipe: nothing is lost or left over when a
//! connection breaks at any byte, when somebody is quicker, or when a future is dropped; nobody is woken for
//! nothing; and what makes no sense is refused.
//!
//! Recipes whose own tests show one of these are not in here.

mod dropped_futures;
mod every_cut;
mod examples;
mod misuse;
mod rivals;
mod variants;
mod watch_events;
