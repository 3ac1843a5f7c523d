//! The tests of all recipes, each against a real server, with and without faults. One binary: most
//! of what it takes to build one of these is the server and the client that all of them link.

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
