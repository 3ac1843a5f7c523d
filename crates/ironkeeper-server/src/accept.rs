//! Taking in connections.
//!
//! Every I/O thread listens, so that a new connection needs no thread of its own to be noticed, and
//! gives it to the thread that has the fewest, which is mostly itself.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use crate::config::Config;
use crate::io::{Accepted, IoHandle};
use crate::limits::Full;
use crate::shared::Shared;

/// The wait after a failed accept, such as one for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The least time between two messages about refused connections.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// Takes in connections for as long as the runtime lives. `listener` does not block.
pub async fn run(listener: std::net::TcpListener, own: IoHandle, shared: Arc<Shared>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return shared.core.shutdown.fail(format!("cannot wait for connections: {error}"));
        }
    };
    let mut refusals = Refusals::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(stream, peer, &own, &shared, &mut refusals),
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    own: &IoHandle,
    shared: &Arc<Shared>,
    refusals: &mut Refusals,
) {
    let permit = match shared.limits.admit(peer.ip()) {
        Ok(permit) => permit,
        Err(full) => {
            shared.core.db.stats.connections_rejected.fetch_add(1, Relaxed);
            return refusals.note(peer, full);
        }
    };
    keep_alive(&stream, &shared.config);
    let idlest = shared.core.io.iter().min_by_key(|handle| handle.load());
    match idlest.filter(|idlest| idlest.load() < own.load()) {
        None => own.start(stream, peer, permit, shared),
        // A socket that cannot be taken from one runtime to another is of no use to either.
        Some(other) => {
            if let Ok(stream) = stream.into_std() {
                other.hand_over(Accepted { stream, peer, permit });
            }
        }
    }
}

/// Has the system look for clients that vanished without a word, if that is wanted. Sessions are
/// watched anyway, so it may fail.
pub(crate) fn keep_alive(stream: &impl AsFd, config: &Config) {
    if config.client_tcp_keep_alive {
        let _ = socket2::SockRef::from(stream).set_keepalive(true);
    }
}

/// Tells the operator of refused connections, but not of each: who tries in a loop must not fill
/// the log.
#[derive(Default)]
struct Refusals {
    told: Option<Instant>,
    untold: u64,
}

impl Refusals {
    fn note(&mut self, peer: SocketAddr, full: Full) {
        if self.told.is_some_and(|told| told.elapsed() < REFUSAL_PAUSE) {
            self.untold += 1;
            return;
        }
        let untold = std::mem::take(&mut self.untold);
        self.told = Some(Instant::now());
        let client = peer.ip().to_canonical();
        let others = (untold > 0).then_some(untold);
        tracing::warn!(%client, others, "refused a connection: {full}");
    }
}
