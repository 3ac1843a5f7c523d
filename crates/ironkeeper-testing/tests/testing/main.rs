//! The server, the cluster and the proxy as users' tests meet them.

mod faulty_proxy;
mod panics;
mod session;
mod test_cluster;
mod test_server;
