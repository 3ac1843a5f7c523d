//! The tests of all recipes, each against a real server, with and without faults. They are one
//! binary, because most of the build time is the server and the client that each binary links.

mod world;

mod barrier;
mod cache;
mod config;
mod election;
mod group;
mod lock;
mod master_worker;
mod model;
mod naming;
mod node;
mod promises;
mod queue;
mod service;
mod shared;
mod stm;
