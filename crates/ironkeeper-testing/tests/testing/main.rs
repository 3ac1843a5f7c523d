//! The server, the cluster and the proxy as a user's test uses them.

mod faulty_proxy;
mod panics;
mod session;
mod test_cluster;
mod test_server;
