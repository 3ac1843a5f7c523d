//! Rogue peers on the election port.

use anyhow::Result;
use bytes::Bytes;
use ironkeeper_peers::connection::framed;
use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::election::{Notification, Opening, PeerState};
use ironkeeper_proto::{Epoch, Put, ServerId, Zxid};

use super::repeat_with;
use crate::hostile::attack::{Attack, Strike, attack, hold, strike};
use crate::hostile::non_member::NonMember;
use crate::hostile::target::Target;

const PLACES: usize = 600;

pub const ALL: &[Attack] = &[
    attack("election port: filled", "600 connections that send nothing.", filled).on_ensemble(),
    attack("election port: names", "A non-member opens with the members' numbers.", names)
        .on_ensemble(),
    attack("election port: crowd", "Ten thousand servers that want to be dialled.", many_servers)
        .on_ensemble(),
    attack("election port: votes", "Better votes of a member, without end.", votes).on_ensemble(),
    attack("election port: configuration", "Votes with a newer configuration.", configuration)
        .on_ensemble(),
    attack("election port: garbage", "Random bytes on new connections.", garbage).on_ensemble(),
    attack("election port: oversize", "Frames that announce two gigabytes.", oversize)
        .on_ensemble(),
    attack("election port: announced", "300 frames of half a megabyte, not sent.", half_frames)
        .on_ensemble(),
];

fn filled(target: &Target) -> Result<Strike> {
    let port = target.leader_ports()?.election;
    Ok(strike(move |until| {
        let held: Vec<NonMember> = (0..PLACES).filter_map(|_| NonMember::dial(port).ok()).collect();
        hold(until, held);
    }))
}

/// Dials and sends repeatedly; servers do not reply to an opening.
fn sent_in_a_loop(
    target: &Target,
    mut bytes: impl FnMut(u64) -> Vec<u8> + Send + 'static,
) -> Result<Strike> {
    let port = target.leader_ports()?.election;
    Ok(repeat_with(move |turn| {
        if let Ok(mut non_member) = NonMember::dial(port) {
            non_member.send_raw(&bytes(turn));
        }
    }))
}

/// Returns the first bytes of a server with this id.
pub fn opening(id: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // No server listens there.
    let addresses = vec!["127.0.0.66:1".to_owned()];
    Opening { from: ServerId(id), addresses }.encode(&mut bytes);
    bytes
}

fn vote(state: PeerState, round: i64, config: &'static [u8]) -> Vec<u8> {
    let notification = Notification {
        state,
        leader: ServerId(3),
        zxid: Zxid(i64::MAX),
        round,
        peer_epoch: Epoch(1 << 30),
        format: Notification::FORMAT,
        config: Bytes::from_static(config),
    };
    let mut bytes = Vec::new();
    notification.encode(&mut bytes);
    framed(&bytes)
}

fn names(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |turn| opening(1 + turn as i64 % 3))
}

fn many_servers(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |turn| opening(10 + turn as i64 % 10_000))
}

/// Opens connections with the ids of members and with larger ids, and votes.
fn votes_with(target: &Target, config: &'static [u8]) -> Result<Strike> {
    let states =
        [PeerState::Looking, PeerState::Following, PeerState::Leading, PeerState::Observing];
    sent_in_a_loop(target, move |turn| {
        let mut bytes = opening([1, 2, 3, 9][turn as usize % 4]);
        for state in states {
            bytes.put_raw(&vote(state, turn as i64 * 1_000, config));
        }
        bytes
    })
}

fn votes(target: &Target) -> Result<Strike> {
    votes_with(target, b"")
}

fn configuration(target: &Target) -> Result<Strike> {
    votes_with(target, b"server.1=127.0.0.66:1:2:participant\nversion=7fffffff")
}

fn garbage(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |turn| {
        let mut rng = Rng::new(turn);
        let mut bytes = if rng.percent(50) { opening(9) } else { Vec::new() };
        let len = 20 + rng.below(2_000);
        bytes.extend(rng.bytes(len));
        bytes
    })
}

fn oversize(target: &Target) -> Result<Strike> {
    sent_in_a_loop(target, |_| {
        let mut bytes = opening(9);
        bytes.put_i32(i32::MAX);
        bytes
    })
}

fn half_frames(target: &Target) -> Result<Strike> {
    let port = target.leader_ports()?.election;
    Ok(strike(move |until| {
        let mut held = Vec::new();
        for at in 0..300 {
            if let Ok(mut non_member) = NonMember::dial(port) {
                let mut bytes = opening(10 + at);
                bytes.put_i32(500_000);
                bytes.resize(250_000, 0);
                non_member.send_raw(&bytes);
                held.push(non_member);
            }
        }
        hold(until, held);
    }))
}
