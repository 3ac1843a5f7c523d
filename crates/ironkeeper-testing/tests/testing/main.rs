//! The server and the proxy as users' tests meet them.

mod faulty_proxy;
mod session;
mod test_server;
