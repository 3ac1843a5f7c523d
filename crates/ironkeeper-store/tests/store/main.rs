//! Tests of the store's public API: reading Apache's files, writing files, and damage of every
//! kind.

mod apache;
mod crash;
mod damage;
mod empty;
mod epochs;
mod failed_sync;
#[expect(clippy::disallowed_methods, reason = "the tests of the real disk read its files")]
mod files;
mod format;
mod install;
mod log_range;
mod log_tail;
mod log_writer;
mod purge;
mod recorder;
mod set_aside;
mod truncate;
