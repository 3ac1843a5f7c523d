//! Connections that never open a session, or that use other protocols.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::OpCode;

use super::{chain, clients, repeat_with};
use crate::hostile::attack::{Attack, Strike, attack, hold, is_over, strike};
use crate::hostile::client::Client;
use crate::hostile::op::Op;
use crate::hostile::target::Target;

pub const ALL: &[Attack] = &[
    attack("announced frames", "300 connections announce a megabyte and send nothing.", announced),
    attack("half-sent frames", "300 connections send half of a megabyte, no session.", half_sent),
    attack("half-sent requests", "100 sessions send half of a megabyte each.", half_requests),
    attack("10,000 connections", "Opened and closed, from four threads.", open_and_close),
    attack("idle connections", "2,000 connections that send nothing.", idle),
    attack("slow loris", "300 connections send a byte every 50 ms.", slow_loris),
    attack("garbage", "Random bytes on new connections.", garbage),
    attack("garbage in sessions", "Random frames behind a good handshake.", garbage_frames)
        .leaves(64),
    attack("oversize frames", "Lengths that no frame may have, in sessions.", oversize).leaves(64),
    attack("HTTP", "Requests for a web page.", http),
    attack("TLS", "The hello of a TLS client.", tls),
    attack("a million watches", "Ten connections with 100,000 watches each.", watches),
    attack("resets", "Connections closed with an answer on its way.", resets).leaves(64),
];

fn dial(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
    Some(stream)
}

/// Opens many connections that send the same bytes and stay open.
fn sent_and_held(target: &Target, count: usize, bytes: Vec<u8>) -> Strike {
    let port = target.port();
    strike(move |until| {
        let mut held = Vec::new();
        for _ in 0..count {
            if let Some(mut stream) = dial(port) {
                let _ = stream.write_all(&bytes);
                held.push(stream);
            }
        }
        hold(until, held);
    })
}

/// Repeatedly dials, sends bytes, and reads until the server closes the connection or the read
/// times out.
fn sent_in_a_loop(
    target: &Target,
    mut bytes: impl FnMut(u64) -> Vec<u8> + Send + 'static,
) -> Strike {
    let port = target.port();
    repeat_with(move |turn| {
        if let Some(mut stream) = dial(port) {
            let _ = stream.write_all(&bytes(turn));
            let _ = stream.read(&mut [0; 1024]);
        }
    })
}

fn announced(target: &Target) -> Result<Strike> {
    Ok(sent_and_held(target, 300, 1_000_000_i32.to_be_bytes().to_vec()))
}

/// Returns the length of a frame of a megabyte, and half of the frame.
fn half_frame() -> Vec<u8> {
    let mut bytes = 1_000_000_i32.to_be_bytes().to_vec();
    bytes.resize(500_000, 0);
    bytes
}

fn half_sent(target: &Target) -> Result<Strike> {
    Ok(sent_and_held(target, 300, half_frame()))
}

fn half_requests(target: &Target) -> Result<Strike> {
    let mut clients = clients(target.port(), 100)?;
    Ok(strike(move |until| {
        let half = half_frame();
        for client in &mut clients {
            client.send_raw(&half);
        }
        hold(until, clients);
    }))
}

fn open_and_close(target: &Target) -> Result<Strike> {
    let (port, each) = (target.port(), target.count(10_000) / 4);
    Ok(strike(move |until| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    (0..each).take_while(|_| !is_over(until)).for_each(|_| drop(dial(port)));
                });
            }
        });
    }))
}

fn idle(target: &Target) -> Result<Strike> {
    Ok(sent_and_held(target, target.count(2_000), Vec::new()))
}

fn slow_loris(target: &Target) -> Result<Strike> {
    let port = target.port();
    Ok(strike(move |until| {
        let mut streams: Vec<TcpStream> = (0..300).filter_map(|_| dial(port)).collect();
        for byte in [0, 0, 0, 45].into_iter().chain([0; 40]).cycle() {
            if is_over(until) {
                break;
            }
            streams.retain_mut(|stream| stream.write_all(&[byte]).is_ok());
            thread::sleep(Duration::from_millis(50));
        }
    }))
}

fn garbage(target: &Target) -> Result<Strike> {
    Ok(sent_in_a_loop(target, |turn| {
        let mut rng = Rng::new(turn);
        let len = rng.below(2_000);
        rng.bytes(len)
    }))
}

/// Sends bytes in a session; the client opens a new session when the server closes the connection.
fn in_sessions(target: &Target, mut bytes: impl FnMut(u64) -> Vec<u8> + Send + 'static) -> Strike {
    let port = target.port();
    repeat_with(move |turn| {
        if let Ok(mut client) = Client::connect_for(port, 1) {
            client.send_raw(&bytes(turn));
            let _ = client.stream().set_read_timeout(Some(Duration::from_millis(100)));
            let mut stream = client.stream();
            let _ = stream.read(&mut [0; 1024]);
        }
    })
}

fn garbage_frames(target: &Target) -> Result<Strike> {
    Ok(in_sessions(target, |turn| {
        let mut rng = Rng::new(turn);
        let len = rng.below(200);
        ironkeeper_peers::connection::framed(&rng.bytes(len))
    }))
}

fn oversize(target: &Target) -> Result<Strike> {
    Ok(in_sessions(target, |turn| {
        let lengths = [i32::MAX, -1, i32::MIN, 0x10_0000];
        lengths[turn as usize % lengths.len()].to_be_bytes().to_vec()
    }))
}

fn http(target: &Target) -> Result<Strike> {
    let request = b"GET /commands/ruok HTTP/1.1\r\nHost: zookeeper\r\n\r\n";
    Ok(sent_in_a_loop(target, |_| request.to_vec()))
}

fn tls(target: &Target) -> Result<Strike> {
    // A TLS handshake record: type 22, version 3.1, length 200, a ClientHello.
    let mut hello = vec![22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    hello.resize(205, 0);
    Ok(sent_in_a_loop(target, move |_| hello.clone()))
}

fn watches(target: &Target) -> Result<Strike> {
    let mut clients = clients(target.port(), 10)?;
    let each = target.count(100_000);
    Ok(strike(move |until| {
        for (at, client) in clients.iter_mut().enumerate() {
            let paths: Vec<String> = (0..each).map(|n| format!("/{at}/{n}")).collect();
            for paths in paths.chunks(20_000).take_while(|_| !is_over(until)) {
                let _ = client.ask(&Op::set_watches(OpCode::SetWatches, i64::MAX, paths));
            }
        }
        hold(until, clients);
    }))
}

fn resets(target: &Target) -> Result<Strike> {
    let port = target.port();
    let deep = chain("/r", 50).pop().unwrap_or_default();
    let op = Op::create(&deep, b"");
    Ok(repeat_with(move |_| {
        if let Ok(mut client) = Client::connect_for(port, 1) {
            for _ in 0..50 {
                client.send(&op);
            }
        }
    }))
}
