//! The client against a real server: the one of `ironkeeper-testing`, one for each test, or, if
//! `IRONKEEPER_TEST_SERVER=host:port` is set, that one for all of them.
//!
//! A server that is not ours is restarted by whoever started it: tests connect to
//! `IRONKEEPER_TEST_CONTROL=host:port`, send `restart` and a newline, and wait for a line back. They have
//! to run one at a time then: `--test-threads 1`.

mod cuts;
mod dropped;
mod operations;
mod place;
mod reconnects;
mod scale;
mod sessions;
mod subtrees;
mod testing_readme;
mod watches;
