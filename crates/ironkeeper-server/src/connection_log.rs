//! Log lines about client connections that the server closes.
//!
//! Every line is caused by a client, so the number for each reason is bounded; the others are
//! counted, and logged with level debug.

use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::conn::{CloseReason, Conn};
use tracing::Level;

use crate::rate_limited::RateLimit;
use crate::session_log::canonical;

/// The maximum number of lines for one reason in a period.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// The field `reason` for a client that requested a session and did not get one in time.
const NO_SESSION: &str = "no session could be opened in time";

#[derive(Debug)]
pub struct ConnectionLog {
    /// By kind of reason, with the first reason of that kind as an example.
    reasons: Mutex<Vec<(Discriminant<CloseReason>, CloseReason, RateLimit)>>,
    no_session: RateLimit,
}

impl Default for ConnectionLog {
    fn default() -> ConnectionLog {
        ConnectionLog { reasons: Mutex::default(), no_session: RateLimit::new(LINES_MAX, PERIOD) }
    }
}

impl ConnectionLog {
    /// Logs that the server has closed a connection.
    pub fn closed(&self, conn: &Conn, reason: CloseReason) {
        let client = canonical(conn.peer);
        let session = conn.session();
        let has_session = conn.has_session();
        let protocol = match reason {
            CloseReason::FrameLength(len, _) if !has_session => foreign_protocol(len),
            _ => None,
        };
        let level = level(reason);
        if level == Level::DEBUG || !self.admits(reason) {
            return tracing::debug!(
                %session,
                %client,
                protocol,
                %reason,
                "client connection closed"
            );
        }
        let session = has_session.then(|| tracing::field::display(session));
        let users = conn.user_names();
        let users = (!users.is_empty()).then(|| users.join(", "));
        match level {
            Level::WARN => {
                tracing::warn!(
                    session,
                    %client,
                    users,
                    protocol,
                    %reason,
                    "client connection closed"
                );
            }
            _ => {
                tracing::info!(
                    session,
                    %client,
                    users,
                    protocol,
                    %reason,
                    "client connection closed"
                );
            }
        }
    }

    /// Logs that a client requested a session and did not get one in time.
    pub fn without_session(&self, conn: &Conn) {
        if self.no_session.admits(Instant::now()) {
            let client = canonical(conn.peer);
            tracing::warn!(%client, reason = NO_SESSION, "client connection closed");
        }
    }

    fn admits(&self, reason: CloseReason) -> bool {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = discriminant(&reason);
        let index = reasons.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            reasons.push((kind, reason, RateLimit::new(LINES_MAX, PERIOD)));
            reasons.len() - 1
        });
        reasons[index].2.admits(Instant::now())
    }

    /// Logs how many lines were suppressed. To be called from time to time.
    pub fn flush(&self) {
        let now = Instant::now();
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, example, limit) in reasons.iter() {
            if let Some(connections) = limit.suppressed(now) {
                tracing::warn!(connections, reason = %example, "further client connections closed");
            }
        }
        if let Some(connections) = self.no_session.suppressed(now) {
            tracing::warn!(connections, reason = NO_SESSION, "further client connections closed");
        }
    }
}

/// Returns the log level for the reason of a closed connection.
fn level(reason: CloseReason) -> Level {
    match reason {
        // The first two are logged with their session; the others were requested.
        CloseReason::SessionClosed
        | CloseReason::SessionExpired
        | CloseReason::Asked
        | CloseReason::Shutdown => Level::DEBUG,
        CloseReason::SessionRefused
        | CloseReason::SessionMoved
        | CloseReason::ClientAhead(..)
        | CloseReason::NotServing
        | CloseReason::OnlyReads
        | CloseReason::RoleChanged => Level::INFO,
        _ => Level::WARN,
    }
}

/// Returns the protocol of a client on the wrong port, by the bytes in place of the frame length.
fn foreign_protocol(len: i64) -> Option<&'static str> {
    let head = u32::try_from(len).ok()?.to_be_bytes();
    match &head {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"DELE" | b"OPTI" | b"PRI " => Some("HTTP"),
        [0x16, 0x03, ..] => Some("TLS"),
        b"SSH-" => Some("SSH"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_of_other_ports_are_recognised() {
        let of = |head: &[u8; 4]| foreign_protocol(i64::from(i32::from_be_bytes(*head)));
        assert_eq!(of(b"GET "), Some("HTTP"));
        assert_eq!(of(&[0x16, 0x03, 0x01, 0x02]), Some("TLS"));
        assert_eq!(of(&[0, 0, 0, 45]), None);
        assert_eq!(of(&[0xff; 4]), None);
    }

    #[test]
    fn lines_for_one_reason_are_few_and_do_not_take_those_of_another() {
        let log = ConnectionLog::default();
        let admitted = |reason| (0..100).filter(|_| log.admits(reason)).count();
        assert_eq!(admitted(CloseReason::FrameLength(1, 0)), LINES_MAX as usize);
        assert_eq!(admitted(CloseReason::FrameLength(2, 0)), 0);
        assert_eq!(admitted(CloseReason::NoHeader), LINES_MAX as usize);
    }
}
