//! Services, against a real server, with and without faults.

mod connections;
mod discovery;
mod provider;
