//! Links between two hosts, and between a host and somebody who misbehaves.

mod hosts;

mod misbehaviour;
mod trees;
mod wire;
