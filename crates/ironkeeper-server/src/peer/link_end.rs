//! The end of a link: the last bytes, and the log line for the operator.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ironkeeper_zab::{Hangup, Port};
use tokio::time::timeout;

use super::link::{End, Link};
use super::outbox::Sent;
use super::port_name;
use super::registry::Registry;
use crate::rate_limited::Admitted;

/// The maximum time for sending the last bytes after ZAB has closed the link.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why the task of a link has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// ZAB has closed the link.
    HungUp(Hangup),
    Lost(Loss),
}

/// The reason why a link was lost.
#[derive(Debug)]
pub(super) enum Loss {
    ClosedByPeer,
    Failed(String),
}

impl Ended {
    pub(super) fn failed(why: impl Into<String>) -> Ended {
        Ended::Lost(Loss::Failed(why.into()))
    }
}

impl From<Loss> for Ended {
    fn from(loss: Loss) -> Ended {
        Ended::Lost(loss)
    }
}

impl From<End> for Ended {
    fn from(end: End) -> Ended {
        match end {
            End::HungUp(reason) => Ended::HungUp(reason),
            End::TooSlow => Ended::failed("the peer does not read"),
            End::Broken(error) => Ended::failed(error.to_string()),
            End::Evicted => Ended::failed("closed to make room for other connections"),
            End::CutOff => Ended::failed("cut off by a test"),
        }
    }
}

/// Sends the last packets and closes a link that ZAB has closed. `snapshot_cut`: a snapshot is sent
/// in part, so no packet can follow.
pub(super) async fn close_as_requested(
    registry: &Registry,
    link: &Link,
    reason: Hangup,
    snapshot_cut: bool,
) {
    log_hangup(registry, link, reason);
    if !snapshot_cut {
        let _ = timeout(CLOSING_TIMEOUT, send_rest(link)).await;
    }
    link.close();
}

/// Closes a link that was lost.
pub(super) fn close_lost(registry: &Registry, link: &Link, loss: &Loss) {
    match loss {
        Loss::Failed(error) => log_lost(registry, link, error),
        Loss::ClosedByPeer if link.port == Port::Quorum && link.peer_id().is_some() => {
            log_lost(registry, link, "closed by the peer");
        }
        Loss::ClosedByPeer => {
            let (addr, port) = (link.peer, port_name(link.port));
            tracing::debug!(%addr, port, "peer link closed by the peer");
        }
    }
    link.close();
}

/// Sends the rest of the outbox, up to a snapshot, which is not needed any more.
async fn send_rest(link: &Link) {
    loop {
        let sent = link.send(&mut link.state());
        if sent != Some(Sent::Blocked) || link.writer.writable().await.is_err() {
            return;
        }
    }
}

/// Logs a lost connection. Any server can open one and have it fail, so such lines are limited.
fn log_lost(registry: &Registry, link: &Link, error: &str) {
    let (peer, addr, port) = (peer(link), ip(link), port_name(link.port));
    let line = format!("lost {peer:?} at {addr}, {port}: {error}");
    let is_member = link.peer_id().is_some_and(|id| registry.is_member(id));
    let limit = &registry.line_limit;
    // Members are few, so each has its own limit.
    let admitted = match is_member {
        true => limit.admit(line, Instant::now()),
        false => limit.admit_kind("lost", line, Instant::now()),
    };
    if let Some(Admitted { suppressed }) = admitted {
        tracing::info!(peer, %addr, port, error, suppressed, "peer link lost");
    }
}

/// Logs that ZAB has closed the link: a warning if the peer is misconfigured.
fn log_hangup(registry: &Registry, link: &Link, reason: Hangup) {
    let (peer, addr, port) = (peer(link), ip(link), port_name(link.port));
    let Some(text) = misconfiguration(reason) else {
        return tracing::debug!(peer, %addr, port, ?reason, "peer link closed");
    };
    let line = format!("closed {peer:?} at {addr}: {text}");
    let admitted = registry.line_limit.admit_kind(kind(reason), line, Instant::now());
    if let Some(Admitted { suppressed }) = admitted {
        tracing::warn!(peer, %addr, port, reason = text, suppressed, "peer rejected");
    }
}

/// Returns the id of the peer, if it is known.
fn peer(link: &Link) -> Option<i64> {
    link.peer_id().map(|id| id.0)
}

/// Returns the address of the peer without the port, which changes with each connection.
pub(super) fn ip(link: &Link) -> IpAddr {
    link.peer.ip().to_canonical()
}

/// Returns the reason for the operator when we close a link because the peer is misconfigured.
fn misconfiguration(reason: Hangup) -> Option<String> {
    Some(match reason {
        Hangup::OwnId => "the id of this server, a duplicate myid".to_owned(),
        Hangup::NewerConfig => "a newer membership than the one in force here".to_owned(),
        Hangup::LearnerAhead => "transactions that this server does not have".to_owned(),
        Hangup::Connected => "a connected peer has this id, possibly a duplicate myid".to_owned(),
        Hangup::OtherAddress => {
            "a member with this id is connected from another address, possibly a duplicate myid"
                .to_owned()
        }
        Hangup::Protocol(what) => format!("protocol violation: {what}"),
        Hangup::Silent => "timed out: no packets or no acknowledgements".to_owned(),
        _ => return None,
    })
}

/// Returns the kind of a closed link; warnings of one kind share a limit.
fn kind(reason: Hangup) -> &'static str {
    match reason {
        Hangup::OwnId => "own id",
        Hangup::NewerConfig => "newer configuration",
        Hangup::LearnerAhead => "learner ahead",
        Hangup::Connected => "connected already",
        Hangup::OtherAddress => "other address",
        Hangup::Silent => "silent",
        _ => "protocol",
    }
}
