//! Tests of the links between two hosts, and between a host and a misbehaving peer.

mod hosts;

mod misbehaviour;
mod trees;
mod wire;
