//! The store from the outside: Apache's files in, our files out, and every way to break them.

mod apache;
mod crash;
mod damage;
mod empty;
mod epochs;
mod failed_sync;
mod files;
mod format;
mod install;
mod log_tail;
mod log_writer;
mod purge;
mod recorder;
mod truncate;
