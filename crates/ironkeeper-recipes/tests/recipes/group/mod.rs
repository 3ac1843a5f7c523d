//! Groups, against a real server, with and without faults.

mod command;
mod heartbeat;
mod member;
mod partition;
mod party;
mod progress;
