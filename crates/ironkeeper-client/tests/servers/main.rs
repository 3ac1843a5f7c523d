//! The client against a real server: a `TestServer` for each test or, if
//! `IRONKEEPER_TEST_SERVER=host:port` is set, that server for all tests.
//!
//! The process that started an external server also restarts it: the tests connect to
//! `IRONKEEPER_TEST_CONTROL=host:port`, send `restart` and a newline, and wait for a line as the
//! reply. They must run one at a time: `--test-threads 1`.

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
