//! Rogue peers on the quorum port of the leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, LearnerMessage, Touches};
use ironkeeper_proto::{Epoch, OpCode, Packet, SessionId, Zxid};

use super::{repeat, repeat_with};
use crate::hostile::attack::{Attack, Strike, attack, hold, is_over, strike};
use crate::hostile::client::Client;
use crate::hostile::non_member::{NonMember, announced, follower, observer};
use crate::hostile::op::Op;
use crate::hostile::target::Target;

/// An id that no member has.
const UNLISTED: i64 = 9;
/// More connections than the limit of a port.
const PLACES: usize = 600;
const REQUEST: i32 = 1;

pub const ALL: &[Attack] = &[
    attack("later promise", "A non-member is a member with a later promise.", later_promise)
        .on_ensemble(),
    attack("quorum port: filled", "600 connections, then followers are displaced.", filled)
        .on_ensemble(),
    attack("quorum port: displaced", "A non-member has a follower's number.", displaced)
        .on_ensemble(),
    // Each of three members keeps 64 MiB of its latest transactions for learners, and its allocator
    // keeps some 40 MB of freed memory.
    attack("quorum port: unread", "Twenty unlisted observers do not read.", unread)
        .on_ensemble()
        .leaves(320),
    attack("quorum port: closeSession", "An observer ends others' sessions.", close_sessions)
        .on_ensemble(),
    attack("quorum port: requests", "An observer forwards a megabyte a time.", requests)
        .on_ensemble()
        .leaves(128),
    attack("quorum port: garbage", "Random bytes on new connections.", garbage).on_ensemble(),
    attack("quorum port: oversize", "Packets that announce two gigabytes.", oversize).on_ensemble(),
    attack("quorum port: announced", "300 packets of 2 MB announced, not sent.", half_packets)
        .on_ensemble(),
    attack("quorum port: refusals", "Learners that are refused, in a loop.", refusals)
        .on_ensemble(),
    attack("quorum port: pings", "An observer that only sends session touches.", touches)
        .on_ensemble(),
];

fn later_promise(target: &Target) -> Result<Strike> {
    let (port, member) = (target.leader_ports()?.quorum, target.follower_id());
    Ok(repeat_with(move |_| {
        // Tries to replace the follower's connection first: the leader rejects another connection
        // with the id of a follower that is connected.
        let epoch = NonMember::dial(port).ok().and_then(|mut non_member| {
            let epoch = non_member.greet(&follower(member, Epoch(0)));
            drop(non_member);
            epoch
        });
        if let Ok(mut non_member) = NonMember::dial(port) {
            non_member.send(&follower(member, Epoch(epoch.map_or(1, |epoch| epoch.0) + 1)));
            non_member.wait_for_end();
        }
    }))
}

fn filled(target: &Target) -> Result<Strike> {
    let port = target.leader_ports()?.quorum;
    Ok(strike(move |until| {
        let mut held: Vec<NonMember> =
            (0..PLACES).filter_map(|_| NonMember::dial(port).ok()).collect();
        for (member, non_member) in (1..=3).zip(&mut held) {
            non_member.send(&follower(member, Epoch(0)));
        }
        hold(until, held);
    }))
}

fn displaced(target: &Target) -> Result<Strike> {
    let (port, member) = (target.leader_ports()?.quorum, target.follower_id());
    Ok(repeat_with(move |_| {
        if let Ok(mut non_member) = NonMember::dial(port) {
            non_member.greet(&follower(member, Epoch(0)));
        }
    }))
}

fn unread(target: &Target) -> Result<Strike> {
    let (port, client_port) = (target.leader_ports()?.quorum, target.port());
    let mut writer = Client::connect(client_port)?;
    writer.ask(&Op::create("/large", b""))?;
    let mut observers = Vec::new();
    for at in 0..20 {
        let mut non_member = NonMember::dial(port)?;
        // A leader may accept only some of them.
        if let Ok(epoch) = non_member.join(&observer(UNLISTED + at)) {
            observers.push((non_member, epoch));
        }
    }
    let writes = repeat(writer, client_port, vec![Op::set_data("/large", &[7; 1_000_000]); 4]);
    Ok(strike(move |until| {
        thread::scope(|scope| {
            scope.spawn(|| drop(writes.run(until)));
            while !is_over(until) {
                // Prevents the leader from closing the connections by timeout.
                for (non_member, epoch) in &mut observers {
                    let (zxid, report) = (Zxid::new(*epoch, 0), Bytes::new());
                    non_member.send(&Packet::Pong { zxid, report });
                }
                thread::sleep(Duration::from_millis(300));
            }
        });
        drop(observers);
    }))
}

/// Joins as an observer that the leader accepts.
fn joined(target: &Target) -> Result<NonMember> {
    let mut non_member = NonMember::dial(target.leader_ports()?.quorum)?;
    non_member.join(&observer(UNLISTED))?;
    Ok(non_member)
}

fn forwarded(session: SessionId, op: &Op) -> Packet {
    let body = Bytes::from(op.body.clone());
    let (cxid, op) = (1, op.code.code());
    let request = ForwardedRequest { session, cxid, op, body, auth: None };
    Packet::Learner(LearnerMessage::Request(Box::new(request)))
}

fn close_sessions(target: &Target) -> Result<Strike> {
    let mut non_member = joined(target)?;
    let client = Client::connect(target.port())?;
    let close = forwarded(client.session.session, &Op::bare(OpCode::CloseSession));
    let client = Arc::new(Mutex::new(client));
    let pinged = Arc::clone(&client);
    let closing = repeat_with(move |_| {
        non_member.send(&close);
        thread::sleep(Duration::from_millis(20));
        let mut client = pinged.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = client.ask(&Op::bare(OpCode::Ping));
    });
    Ok(closing.then_check(move || {
        let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
        let read = client.ask(&Op::get_data("/"));
        read.map(drop).context("a session was ended by a server that it is not on")
    }))
}

fn requests(target: &Target) -> Result<Strike> {
    let (mut non_member, client) = (joined(target)?, Client::connect(target.port())?);
    let session = client.session.session;
    let large = forwarded(session, &Op::set_data("/", &[7; 1_000_000]));
    Ok(repeat_with(move |_| {
        if !non_member.send(&large) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = &client;
    }))
}

/// Repeatedly dials, sends and waits until the leader closes the connection.
fn sent_in_a_loop(
    target: &Target,
    mut bytes: impl FnMut(u64) -> Vec<u8> + Send + 'static,
) -> Result<Strike> {
    let port = target.leader_ports()?.quorum;
    Ok(repeat_with(move |turn| {
        if let Ok(mut non_member) = NonMember::dial(port) {
            non_member.send_raw(&bytes(turn));
            non_member.wait_for_end();
        }
    }))
}

fn garbage(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |turn| {
        let mut rng = Rng::new(turn);
        let len = 20 + rng.below(2_000);
        rng.bytes(len)
    })
}

fn oversize(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |_| announced(REQUEST, i32::MAX))
}

fn half_packets(target: &Target) -> Result<Strike> {
    let port = target.leader_ports()?.quorum;
    Ok(strike(move |until| {
        let mut half = announced(REQUEST, 2_000_000);
        half.resize(500_000, 0);
        let mut held = Vec::new();
        for _ in 0..300 {
            if let Ok(mut non_member) = NonMember::dial(port) {
                non_member.send_raw(&half);
                held.push(non_member);
            }
        }
        hold(until, held);
    }))
}

fn refusals(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |turn| {
        let mut bytes = Vec::new();
        match turn % 3 {
            // The largest possible epoch, a wrong first packet, a packet that no learner sends.
            0 => follower(1, Epoch(i64::from(i32::MAX))).encode(&mut bytes),
            1 => Packet::Ack { zxid: Zxid(turn as i64) }.encode(&mut bytes),
            _ => Packet::UpToDate.encode(&mut bytes),
        }
        bytes
    })
}

fn touches(target: &Target) -> Result<Strike> {
    let mut non_member = joined(target)?;
    Ok(repeat_with(move |turn| {
        let session = |at| (SessionId((turn * 10_000 + at) as i64), 30_000);
        let report = Touches::new((0..10_000).map(session)).into();
        if !non_member.send(&Packet::Pong { zxid: Zxid::ZERO, report }) {
            thread::sleep(Duration::from_millis(10));
        }
    }))
}
