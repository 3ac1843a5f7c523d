//! Ensembles of real servers in one process: sockets, threads and files.

mod catch_up;
mod members;
mod starts;
mod support;
mod words;
