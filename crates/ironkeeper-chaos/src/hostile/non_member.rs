//! A rogue peer: a connection to a quorum port or election port, from an address that no member
//! has.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION, Sender, packet_len};
use ironkeeper_proto::{Epoch, Packet, Put, ServerId, Zxid};
use socket2::{Domain, Socket, Type};

/// Members have the address 127.0.0.1.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const PATIENCE: Duration = Duration::from_millis(500);
const DIAL_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct NonMember {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl NonMember {
    pub fn dial(port: u16) -> Result<NonMember> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((ADDRESS, 0)).into())?;
        socket.connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into(), DIAL_MAX)?;
        let stream = TcpStream::from(socket);
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(NonMember { stream, unread: Vec::new() })
    }

    /// Sends bytes; returns `false` if the server has closed the connection or does not read.
    pub fn send_raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn send(&mut self, packet: &Packet) -> bool {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        self.send_raw(&bytes)
    }

    /// Returns the next packet of a leader; `None` if the leader closes the connection, times out
    /// or sends a snapshot.
    pub fn receive(&mut self) -> Option<Packet> {
        loop {
            if let Some(len) = packet_len(&self.unread, 4 * MAX_BUFFER_DEFAULT).ok()? {
                let rest = self.unread.split_off(len);
                let packet = Bytes::from(std::mem::replace(&mut self.unread, rest));
                return Packet::decode(&packet, Sender::Leader).ok();
            }
            let mut chunk = [0; 4096];
            let len = self.stream.read(&mut chunk).ok().filter(|len| *len > 0)?;
            self.unread.extend_from_slice(&chunk[..len]);
        }
    }

    /// Waits until the server closes the connection or a read times out.
    pub fn wait_for_end(&mut self) {
        while self.stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
    }

    /// Sends FOLLOWERINFO or OBSERVERINFO and returns the leader's epoch.
    pub fn greet(&mut self, greeting: &Packet) -> Option<Epoch> {
        self.send(greeting);
        match self.receive()? {
            Packet::LeaderInfo { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// Performs the handshake of a learner up to the acknowledgement of NEWLEADER.
    pub fn join(&mut self, greeting: &Packet) -> Result<Epoch> {
        let epoch = self.greet(greeting).context("no LEADERINFO")?;
        self.send(&Packet::AckEpoch { last: Zxid::ZERO, current: Some(Epoch(0)) });
        self.send(&Packet::Ack { zxid: Zxid::new(epoch, 0) });
        Ok(epoch)
    }
}

/// Returns the first packet of a follower.
pub fn follower(id: i64, accepted: Epoch) -> Packet {
    Packet::FollowerInfo { accepted, info: info(id) }
}

/// Returns the first packet of an observer.
pub fn observer(id: i64) -> Packet {
    Packet::ObserverInfo { accepted: Epoch(0), info: info(id) }
}

fn info(id: i64) -> LearnerInfo {
    LearnerInfo { server: Some(ServerId(id)), protocol: PROTOCOL_VERSION, config_version: 0 }
}

/// Returns a packet header that announces this much data.
pub fn announced(kind: i32, len: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_i32(kind);
    bytes.put_i64(0);
    bytes.put_i32(len);
    bytes
}
