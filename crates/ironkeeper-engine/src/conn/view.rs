//! A connection as administrators see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::SessionId;

use super::{Conn, Phase};
use crate::database::Database;
use crate::stats::{ConnStats, FRAME_HEAD_BYTES};

/// A connection as `cons` shows it.
#[derive(Clone, Debug)]
pub struct ConnView {
    pub peer: SocketAddr,
    pub session: SessionId,
    pub timeout_ms: i32,
    pub queued: usize,
    /// Whether the server reads from the socket.
    pub is_read: bool,
    pub unsent: bool,
    pub stats: ConnStats,
}

impl Conn {
    /// Returns what the administrator sees of this connection.
    pub fn view(&self) -> ConnView {
        let inner = self.lock();
        ConnView {
            peer: self.peer,
            session: inner.session,
            timeout_ms: inner.timeout_ms,
            queued: inner.lane.len(),
            is_read: match inner.phase {
                // The packet was a four-letter word: no more bytes are read.
                Phase::Greeting => inner.stats.packets_received == 0,
                Phase::Opening | Phase::Open => !inner.lane.is_full(),
                Phase::Closing(_) | Phase::Gone => false,
            },
            unsent: !inner.outbox.is_empty(),
            stats: inner.stats.clone(),
        }
    }

    /// Returns the paths that this connection watches and that administrators see, in no order.
    pub fn listed_watches(&self) -> Vec<Arc<str>> {
        let inner = self.lock();
        let listed = inner.watches.iter().filter(|(_, modes)| modes.is_in_data_table());
        listed.map(|(path, _)| Arc::clone(path)).collect()
    }

    /// Counts the four-letter word that was received instead of a frame.
    pub fn note_word(&self, db: &Database) {
        self.lock().stats.packets_received += 1;
        db.stats.packets_received.fetch_add(1, Relaxed);
        db.stats.bytes_received.fetch_add(FRAME_HEAD_BYTES as u64, Relaxed);
    }

    pub fn reset_stats(&self) {
        self.lock().stats.reset();
    }

    /// Returns the user names of the client for the log, without addresses and without secrets.
    pub fn user_names(&self) -> Vec<String> {
        const NAMES_MAX: usize = 4;
        const NAME_CHARS_MAX: usize = 64;
        let identity = Arc::clone(&self.lock().identity);
        let shortened = |user: &str| -> String { user.chars().take(NAME_CHARS_MAX).collect() };
        let users = identity.logged_users().take(NAMES_MAX);
        users.map(|(scheme, user)| format!("{scheme}:{}", shortened(user))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::auth::{AuthId, Scheme};
    use crate::conn::CloseReason;
    use crate::conn::tests::{database, new_conn};

    #[test]
    fn user_names_are_shown_without_hashes_and_addresses() {
        let conn = new_conn();
        assert!(conn.user_names().is_empty());
        for user in ["ann", "bob"] {
            let mut inner = conn.lock();
            let id = AuthId::new(Scheme::Digest, format!("{user}:hash"));
            inner.identity = inner.identity.with(vec![id]).expect("room");
        }
        assert_eq!(conn.user_names(), ["digest:ann", "digest:bob"]);
    }

    #[test]
    fn the_socket_is_read_until_a_four_letter_word_or_the_end() {
        let conn = new_conn();
        assert!(conn.view().is_read);
        conn.note_word(&database());
        let view = conn.view();
        assert_eq!((view.is_read, view.stats.packets_received), (false, 1));
        let conn = new_conn();
        conn.end(CloseReason::Asked);
        assert!(!conn.view().is_read);
    }
}
