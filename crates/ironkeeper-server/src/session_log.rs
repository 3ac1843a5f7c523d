//! Log lines about the end of sessions.
//!
//! Ten thousand sessions may end at the same time, when a client program or a part of the network
//! fails. The first lines of a second identify some of them; the others are counted.

use std::time::{Duration, Instant};

use ironkeeper_engine::io::SessionEnd;

use crate::rate_limited::RateLimit;

const LINES_PER_SECOND: u32 = 100;

#[derive(Debug)]
pub struct SessionLog {
    limit: RateLimit,
}

impl Default for SessionLog {
    fn default() -> SessionLog {
        SessionLog { limit: RateLimit::new(LINES_PER_SECOND, Duration::from_secs(1)) }
    }
}

impl SessionLog {
    pub fn ended(&self, end: &SessionEnd) {
        self.flush();
        if !self.limit.admits(Instant::now()) {
            return;
        }
        let session = end.session;
        let client = end.client.map(canonical).map(tracing::field::display);
        let (timeout_ms, ephemerals) = (end.timeout_ms, end.ephemerals);
        match end.expired {
            true => tracing::info!(%session, client, timeout_ms, ephemerals, "session expired"),
            false => tracing::info!(%session, client, timeout_ms, ephemerals, "session closed"),
        }
    }

    /// Logs how many lines were suppressed. To be called from time to time.
    pub fn flush(&self) {
        if let Some(sessions) = self.limit.suppressed(Instant::now()) {
            tracing::info!(sessions, "further sessions ended");
        }
    }
}

/// Returns the address in the form that operators know: an IPv4 client is not shown as IPv6.
pub fn canonical(address: std::net::SocketAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address.ip().to_canonical(), address.port())
}
