//! Configuration, against a real server, with and without faults.

mod faults;
mod history;
mod publish;
