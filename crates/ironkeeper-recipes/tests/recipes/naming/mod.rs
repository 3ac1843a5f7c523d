//! Names and ids, against a real server, with and without faults.

mod ids;
mod names;
mod snowflake;
