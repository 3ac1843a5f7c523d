//! Small requests that cause much work.

use anyhow::Result;
use ironkeeper_proto::{Acl, CreateMode, OpCode, Perms};

use super::{
    chain, client_with_identities, clients, create_all, distinct_entries, repeat, repeat_with,
};
use crate::hostile::attack::{Attack, Strike, attack, strike};
use crate::hostile::client::Client;
use crate::hostile::op::Op;
use crate::hostile::target::Target;

pub const ALL: &[Attack] = &[
    attack("auth entries", "10,000 entries `auth` on a connection with 200 identities.", auth)
        .leaves(64),
    attack("auth entries: frame", "As many entries `auth` as fit, 200 identities.", auth_frame)
        .leaves(64),
    attack("refused reads", "Reads of a list of 40,000 entries, 1,000 identities.", refused),
    attack("deep creates", "Nodes created and deleted below 10,000 levels.", deep_creates),
    attack("deep events", "Events below 10,000 levels, twenty recursive watchers.", deep_events),
    attack("deep watches", "A recursive watch on each of 10,000 levels, and events.", deep_watches),
    attack("deep events: long names", "Recursive watches, levels of long names.", long_names),
    attack("watched by 500", "500 connections watch one node that is written.", watchers),
];

/// Connects a client whose identities are in no entry of the ACL of the node `/acl`.
pub fn reader_of_large_acl(port: u16, entries: usize, identities: usize) -> Result<Client> {
    let mut client = client_with_identities(port, identities)?;
    let (entries, mode) = (distinct_entries(entries), CreateMode::Persistent);
    client.ask(&Op::create_as(OpCode::Create, "/acl", b"", mode, &entries))?;
    Ok(client)
}

fn auth(target: &Target) -> Result<Strike> {
    auth_entries(target, 10_000)
}

fn auth_frame(target: &Target) -> Result<Strike> {
    auth_entries(target, target.count(48_000))
}

fn auth_entries(target: &Target, count: usize) -> Result<Strike> {
    let mut client = client_with_identities(target.port(), 200)?;
    // The ids have no meaning; they only make the entries distinct.
    let entry = |at: usize| Acl::new(Perms::ALL, "auth", &at.to_string());
    let entries: Vec<Acl> = (0..count).map(entry).collect();
    Ok(repeat_with(move |turn| {
        let (path, mode) = (format!("/auth{turn}"), CreateMode::Persistent);
        let _ = client.ask(&Op::create_as(OpCode::Create, &path, b"", mode, &entries));
        let _ = client.ask(&Op::delete(&path));
    }))
}

fn refused(target: &Target) -> Result<Strike> {
    let port = target.port();
    let client = reader_of_large_acl(port, 40_000, 1_000)?;
    Ok(repeat(client, port, vec![Op::get_data("/acl"); 20]))
}

fn deep_creates(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    let bottom = dig(&mut client, target)?;
    let child = format!("{bottom}/child");
    Ok(repeat(client, port, vec![Op::create(&child, b""), Op::delete(&child)]))
}

/// Creates a chain of nodes and returns the path of the last one.
fn dig(client: &mut Client, target: &Target) -> Result<String> {
    let paths = chain("/deep", target.count(10_000));
    // Paths of a deep chain are long: few fit into a frame.
    for paths in paths.chunks(40) {
        create_all(client, paths)?;
    }
    Ok(paths.last().cloned().unwrap_or_default())
}

fn deep_events(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    let bottom = dig(&mut client, target)?;
    let mut watchers = clients(port, 20)?;
    for watcher in &mut watchers {
        watcher.ask(&Op::watch_below("/"))?;
    }
    write_while(watchers, client, port, &bottom)
}

fn deep_watches(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    let bottom = dig(&mut client, target)?;
    let mut watcher = Client::connect(port)?;
    let watches: Vec<Op> =
        chain("/deep", target.count(10_000)).iter().map(|path| Op::watch_below(path)).collect();
    watcher.ask_all(&watches)?;
    write_while(vec![watcher], client, port, &bottom)
}

fn long_names(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    let (mut path, mut watcher) = (String::new(), Client::connect(port)?);
    for _ in 0..target.count(100) {
        path = format!("{path}/{}", "x".repeat(5_000));
        client.ask(&Op::create(&path, b""))?;
        watcher.ask(&Op::watch_below(&path))?;
    }
    write_while(vec![watcher], client, port, &path)
}

fn watchers(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    client.ask(&Op::create("/watched", b""))?;
    let mut watchers = clients(port, target.count(500))?;
    for watcher in &mut watchers {
        watcher.ask(&Op::numbered(OpCode::AddWatch, "/watched", 0))?;
    }
    write_while(watchers, client, port, "/watched")
}

/// Writes to a node while the watchers stay connected and do not read.
fn write_while(watchers: Vec<Client>, client: Client, port: u16, path: &str) -> Result<Strike> {
    let writes = repeat(client, port, vec![Op::set_data(path, b"x")]);
    Ok(strike(move |until| {
        let _ = writes.run(until);
        drop(watchers);
    }))
}
