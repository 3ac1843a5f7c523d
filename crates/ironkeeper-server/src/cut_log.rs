//! Log lines about connections that the server closes or rejects.
//!
//! Every line is caused by a client, so the number for each reason is bounded; the others are
//! counted.

use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_engine::conn::{CloseReason, Conn};
use tracing::Level;

use crate::repeats::Budget;
use crate::session_log::canonical;

/// The maximum number of lines for one reason in a period.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct CutLog {
    reasons: Mutex<Vec<(Discriminant<CloseReason>, CloseReason, Budget)>>,
    late: Budget,
}

impl Default for CutLog {
    fn default() -> CutLog {
        CutLog { reasons: Mutex::default(), late: Budget::new(LINES_MAX, PERIOD) }
    }
}

impl CutLog {
    /// Logs that the server has closed a connection.
    pub fn cut(&self, conn: &Conn, reason: CloseReason) {
        let client = canonical(conn.peer);
        let session = conn.session();
        let has_session = conn.has_session();
        let what = match reason {
            CloseReason::FrameLength(len, _) if !has_session => match stranger(len) {
                Some(protocol) => format!("{protocol} on the port for ZooKeeper clients"),
                None => format!("not a ZooKeeper client: {reason}"),
            },
            _ => reason.to_string(),
        };
        let level = level(reason);
        if level == Level::DEBUG || !self.admits(reason) {
            return tracing::debug!(%client, session = %hex(session.0), "closed a connection: {what}");
        }
        let session = has_session.then(|| tracing::field::display(hex(session.0)));
        let users = conn.user_names();
        let users = (!users.is_empty()).then(|| tracing::field::debug(users));
        match level {
            Level::WARN => tracing::warn!(%client, session, users, "closed a connection: {what}"),
            _ => tracing::info!(%client, session, users, "closed a connection: {what}"),
        }
    }

    /// Logs that a client requested a session and did not get one in time.
    pub fn late(&self, conn: &Conn) {
        if self.late.admits(Instant::now()) {
            let client = canonical(conn.peer);
            tracing::warn!(%client, "closed a connection: no session could be opened in time");
        }
    }

    fn admits(&self, reason: CloseReason) -> bool {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = discriminant(&reason);
        let index = reasons.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            reasons.push((kind, reason, Budget::new(LINES_MAX, PERIOD)));
            reasons.len() - 1
        });
        reasons[index].2.admits(Instant::now())
    }

    /// Logs how many lines were suppressed. To be called from time to time.
    pub fn flush(&self) {
        let now = Instant::now();
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, example, budget) in reasons.iter() {
            if let Some(connections) = budget.held_back(now) {
                tracing::warn!(connections, "closed more connections, one of them: {example}");
            }
        }
        if let Some(connections) = self.late.held_back(now) {
            tracing::warn!(connections, "closed more connections: no session in time");
        }
    }
}

fn hex(session: i64) -> String {
    format!("0x{session:x}")
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
fn stranger(len: i64) -> Option<&'static str> {
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
        let of = |head: &[u8; 4]| stranger(i64::from(i32::from_be_bytes(*head)));
        assert_eq!(of(b"GET "), Some("HTTP"));
        assert_eq!(of(&[0x16, 0x03, 0x01, 0x02]), Some("TLS"));
        assert_eq!(of(&[0, 0, 0, 45]), None);
        assert_eq!(of(&[0xff; 4]), None);
    }

    #[test]
    fn lines_for_one_reason_are_few_and_do_not_take_those_of_another() {
        let log = CutLog::default();
        let admitted = |reason| (0..100).filter(|_| log.admits(reason)).count();
        assert_eq!(admitted(CloseReason::FrameLength(1, 0)), LINES_MAX as usize);
        assert_eq!(admitted(CloseReason::FrameLength(2, 0)), 0);
        assert_eq!(admitted(CloseReason::NoHeader), LINES_MAX as usize);
    }
}
