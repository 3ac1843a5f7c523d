//! The comparison with Apache ZooKeeper.
//!
//! [`differential`] sends the same requests to Apache ZooKeeper and to Ironkeeper and compares
//! every reply and event; [`interop`] runs third-party software, unchanged, against either server.
//!
//! It never decides what is right: the expectation is what Apache does, or an entry in a list of
//! intended differences with its reason.
//!
//! Start from [`differential::run`] and [`interop::run`].

pub mod differential;
pub mod interop;
