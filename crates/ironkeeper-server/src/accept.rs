//! Acceptance of client connections.
//!
//! Every I/O thread listens, so that no separate thread is needed to accept a connection; the
//! accepting thread passes the connection to the thread that has the fewest, which is mostly
//! itself.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use ironkeeper_config::Config;

use crate::io::{IoHandle, NewConnection};
use crate::limits::Full;
use crate::shared::Shared;
use crate::wire::Stream;

/// The wait after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The minimum time between two messages about rejected connections.
const REJECTION_PAUSE: Duration = Duration::from_secs(1);

/// Accepts connections until the runtime ends. `listener` does not block.
pub async fn run(listener: std::net::TcpListener, own: IoHandle, shared: Arc<Shared>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return shared.core.shutdown.fail(format!("cannot wait for connections: {error}"));
        }
    };
    let mut rejections = Rejections::default();
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                admit(Stream::accepted(socket, peer), &own, &shared, &mut rejections);
            }
            Err(error) => {
                tracing::warn!(%error, "client connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: Stream, own: &IoHandle, shared: &Arc<Shared>, rejections: &mut Rejections) {
    let peer = stream.peer();
    let permit = match shared.limits.admit(peer.ip()) {
        Ok(permit) => permit,
        Err(full) => {
            shared.core.db.stats.connections_rejected.fetch_add(1, Relaxed);
            return rejections.log(peer, full);
        }
    };
    keep_alive(&stream, &shared.config);
    let idlest = shared.core.io.iter().min_by_key(|handle| handle.load());
    match idlest.filter(|idlest| idlest.load() < own.load()) {
        None => own.start(stream, permit, shared),
        // If the socket cannot be moved to another runtime, the connection is dropped.
        Some(other) => {
            if let Ok(stream) = stream.detach() {
                other.pass(NewConnection { stream, permit });
            }
        }
    }
}

/// Enables TCP keep-alive if it is configured. Errors are ignored, because session expiry detects
/// lost clients as well.
pub(crate) fn keep_alive(stream: &impl AsFd, config: &Config) {
    if config.client_tcp_keep_alive {
        let _ = socket2::SockRef::from(stream).set_keepalive(true);
    }
}

/// Rate-limited log messages about rejected connections: a client that retries in a loop must not
/// fill the log.
#[derive(Default)]
struct Rejections {
    logged_at: Option<Instant>,
    suppressed: u64,
}

impl Rejections {
    fn log(&mut self, peer: SocketAddr, full: Full) {
        if self.logged_at.is_some_and(|at| at.elapsed() < REJECTION_PAUSE) {
            self.suppressed += 1;
            return;
        }
        let suppressed = std::mem::take(&mut self.suppressed);
        self.logged_at = Some(Instant::now());
        let client = peer.ip().to_canonical();
        let suppressed = (suppressed > 0).then_some(suppressed);
        tracing::warn!(%client, reason = %full, suppressed, "client connection rejected");
    }
}
