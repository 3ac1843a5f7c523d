//! Clients that request much data, or receive many events, and do not read.

use std::io::Read;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use ironkeeper_proto::OpCode;

use super::{create_all, repeat_with, wide};
use crate::hostile::attack::{Attack, Strike, attack, hold, is_over, strike};
use crate::hostile::client::Client;
use crate::hostile::op::Op;
use crate::hostile::target::Target;

/// The number of attacking connections.
const CONNECTIONS: usize = 20;

pub const ALL: &[Attack] = &[
    attack("unread multiRead", "Twenty connections ask for 60 MB and do not read.", multi_read),
    attack("unread getData", "Twenty connections ask for 60 times a megabyte.", get_data),
    attack("unread getChildren", "Twenty connections ask for long lists.", get_children),
    attack("unread getACL", "Twenty connections ask for long ACLs.", get_acl),
    attack("unread events", "Twenty recursive watchers do not read.", events),
    attack("slow reader", "Twenty connections read a byte every 10 ms.", slow_reader),
];

/// Sends the requests on every connection and reads nothing.
fn unread(target: &Target, ops: &[Op]) -> Result<Strike> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::mute(target.port())?);
    }
    let ops = ops.to_vec();
    Ok(strike(move |until| {
        for client in &mut clients {
            for op in &ops {
                if is_over(until) || !client.send(op) {
                    break;
                }
            }
        }
        hold(until, clients);
    }))
}

fn with_large_node(target: &Target) -> Result<()> {
    Client::connect(target.port())?.ask(&Op::create("/large", &[7; 1_000_000])).map(drop)
}

fn multi_read(target: &Target) -> Result<Strike> {
    with_large_node(target)?;
    let reads = vec![Op::get_data("/large"); 60];
    unread(target, &[Op::many(OpCode::MultiRead, &reads)])
}

fn get_data(target: &Target) -> Result<Strike> {
    with_large_node(target)?;
    unread(target, &vec![Op::get_data("/large"); 60])
}

fn get_children(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    create_all(&mut client, &wide("/wide", target.count(50_000), 100))?;
    unread(target, &vec![Op::read(OpCode::GetChildren, "/wide", false); 20])
}

fn get_acl(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    let mut entries = super::distinct_entries(40_000);
    entries.push(ironkeeper_proto::acl::open().remove(0));
    let mode = ironkeeper_proto::CreateMode::Persistent;
    client.ask(&Op::create_as(OpCode::Create, "/acl", b"", mode, &entries))?;
    unread(target, &vec![Op::on_path(OpCode::GetAcl, "/acl"); 60])
}

fn events(target: &Target) -> Result<Strike> {
    let mut writer = Client::connect(target.port())?;
    let long = format!("/{}", "x".repeat(100_000));
    writer.ask(&Op::create(&long, b""))?;
    let mut watchers = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut watcher = Client::mute(target.port())?;
        watcher.ask(&Op::watch_below("/"))?;
        watchers.push(watcher);
    }
    let mut left = target.count(1_000);
    let write = repeat_with(move |_| {
        if left == 0 || writer.ask(&Op::set_data(&long, b"x")).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        left = left.saturating_sub(1);
    });
    Ok(strike(move |until| {
        let _ = write.run(until);
        drop(watchers);
    }))
}

fn slow_reader(target: &Target) -> Result<Strike> {
    with_large_node(target)?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::mute(target.port())?);
    }
    Ok(strike(move |until| {
        for client in &mut clients {
            for _ in 0..20 {
                client.send(&Op::get_data("/large"));
            }
        }
        while !is_over(until) {
            for client in &clients {
                let mut stream = client.stream();
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = stream.read(&mut [0]);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }))
}
