//! The protocol of the election port.
//!
//! A connection begins with one [`Opening`] from the side that dialled; it has no reply. After it
//! both directions carry frames, each of a length and a [`Notification`]:
//!
//! ```text
//! opening       version i64 | sid i64 | length i32 | addresses, separated by |
//! frame         length i32  | notification
//! notification  state i32 | leader i64 | zxid i64 | round i64 | peer epoch i64
//!               | format i32 | length i32 | configuration as text
//! ```
//!
//! Servers of 3.3 send the first 28 bytes of a notification, servers of 3.4 the first 40, of which
//! the last four have no meaning. The opening of 3.4 consists of the sid alone.

use bytes::Bytes;

use crate::ids::{Epoch, ServerId, Zxid};
use crate::jute::{DecodeError, Put, Reader};

/// The maximal length of the list of addresses in an opening.
pub const OPENING_ADDRESSES_MAX: usize = 2048;
/// The maximal length of a frame after the opening.
pub const FRAME_MAX: usize = 512 * 1024;

const ONE_ADDRESS: i64 = -65536;
const MANY_ADDRESSES: i64 = -65535;

/// The first bytes on a connection: the id of the dialling server and the addresses at which it
/// accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The id of the dialling server.
    pub from: ServerId,
    /// `host:port` from the peer's configuration. Empty for servers of 3.4.
    pub addresses: Vec<String>,
}

impl Opening {
    /// Decodes an opening and returns it with its length in bytes, or `None` if it is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Opening, usize)>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let Ok(first) = reader.i64() else { return Ok(None) };
        if first >= 0 {
            return Ok(Some((Opening { from: ServerId(first), addresses: Vec::new() }, 8)));
        }
        if first != ONE_ADDRESS && first != MANY_ADDRESSES {
            let shown = i32::try_from(first).unwrap_or(i32::MIN);
            return Err(DecodeError::BadValue(shown, "a version of the election protocol"));
        }
        let (Ok(from), Ok(len)) = (reader.i64(), reader.i32()) else { return Ok(None) };
        let text_len = usize::try_from(len)
            .ok()
            .filter(|len| (1..=OPENING_ADDRESSES_MAX).contains(len))
            .ok_or(DecodeError::BadLength(len))?;
        let Ok(text) = reader.bytes(text_len) else { return Ok(None) };
        let text = crate::jute::text(text);
        let addresses = match first {
            ONE_ADDRESS => vec![text.into_owned()],
            _ => text.split('|').map(str::to_owned).collect(),
        };
        Ok(Some((Opening { from: ServerId(from), addresses }, 20 + text_len)))
    }

    /// Writes one address in the format that every server since 3.5 reads, several in the format of
    /// 3.6. The whole opening must be sent in one write: Apache reads the addresses with a single
    /// call.
    pub fn encode(&self, out: &mut impl Put) {
        let version = match self.addresses.len() {
            0 => return out.put_i64(self.from.0),
            1 => ONE_ADDRESS,
            _ => MANY_ADDRESSES,
        };
        out.put_i64(version);
        out.put_i64(self.from.0);
        out.put_buf(Some(self.addresses.join("|").as_bytes()));
    }

    /// Returns the addresses that can be dialled. Wildcards are omitted: they are addresses to
    /// listen on, not to connect to.
    pub fn dialable(&self) -> impl Iterator<Item = &str> {
        let wildcard = |address: &&String| {
            ["0.0.0.0:", "[::]:", "[0:0:0:0:0:0:0:0]:", "0:0:0:0:0:0:0:0:", ":::"]
                .iter()
                .any(|prefix| address.starts_with(prefix))
        };
        self.addresses.iter().filter(move |address| !wildcard(address)).map(String::as_str)
    }
}

/// The state of a server in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerState {
    /// In an election.
    Looking,
    /// Follows a leader.
    Following,
    /// Leads.
    Leading,
    /// Observes: receives transactions without voting.
    Observing,
}

impl PeerState {
    fn from_code(code: i32) -> Option<PeerState> {
        Some(match code {
            0 => PeerState::Looking,
            1 => PeerState::Following,
            2 => PeerState::Leading,
            3 => PeerState::Observing,
            _ => return None,
        })
    }
}

/// A vote: the leader that the sender proposes or follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The state of the sender.
    pub state: PeerState,
    /// The server for which the sender votes, or which it follows.
    pub leader: ServerId,
    /// The last zxid in the log of `leader` when it was proposed.
    pub zxid: Zxid,
    /// The number of the election. Every server counts its own and adopts a larger one that it
    /// receives.
    pub round: i64,
    /// The epoch of the history of `leader`.
    pub peer_epoch: Epoch,
    /// Zero from servers before 3.5. Their `peer_epoch` is not compared with that of newer servers.
    pub format: i32,
    /// The membership in force at the sender, as text; empty if the sender sent none.
    pub config: Bytes,
}

impl Notification {
    /// The format that this server sends, as every server since 3.5.
    pub const FORMAT: i32 = 2;

    /// Decodes the body of a frame.
    pub fn decode(body: &Bytes) -> Result<Notification, DecodeError> {
        let mut reader = Reader::new(body);
        let code = reader.i32()?;
        let state = PeerState::from_code(code);
        let state = state.ok_or(DecodeError::BadValue(code, "a state of a peer"))?;
        let leader = ServerId(reader.i64()?);
        let zxid = Zxid(reader.i64()?);
        let round = reader.i64()?;
        let (mut format, mut config) = (0, Bytes::new());
        let peer_epoch = if body.len() == 28 { zxid.epoch() } else { Epoch(reader.i64()?) };
        if body.len() > 40 {
            format = reader.i32()?;
            if format >= 2 {
                let text = reader.buf()?.ok_or(DecodeError::BadLength(-1))?;
                config = body.slice_ref(text);
            }
        }
        Ok(Notification { state, leader, zxid, round, peer_epoch, format, config })
    }

    /// Encodes the body of a frame.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.state as i32);
        out.put_i64(self.leader.0);
        out.put_i64(self.zxid.0);
        out.put_i64(self.round);
        out.put_i64(self.peer_epoch.0);
        out.put_i32(Notification::FORMAT);
        out.put_buf(Some(&self.config));
    }
}

/// Returns the length of the frame at the start of `bytes`, including the four bytes of the length,
/// or `None` if the length is incomplete. Returns an error for a length that no server sends.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Ok(len) = Reader::new(bytes).i32() else { return Ok(None) };
    match usize::try_from(len) {
        Ok(body @ 1..=FRAME_MAX) => Ok(Some(4 + body)),
        _ => Err(DecodeError::BadLength(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum_packet::tests::{CONFIG, from_hex};

    #[test]
    fn openings_are_apaches_bytes() {
        let captured =
            from_hex("ffffffffffff0000 0000000000000001 0000000f 3132372e302e302e313a3331313231");
        let opening = Opening { from: ServerId(1), addresses: vec!["127.0.0.1:31121".to_owned()] };
        assert_eq!(Opening::decode(&captured), Ok(Some((opening.clone(), captured.len()))));
        let mut bytes = Vec::new();
        opening.encode(&mut bytes);
        assert_eq!(bytes, captured);
        for cut in 0..captured.len() {
            assert_eq!(Opening::decode(&captured[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn openings_of_all_versions_are_read() {
        let (old, len) = Opening::decode(&from_hex("0000000000000003 ff")).unwrap().unwrap();
        assert_eq!((old.from, old.addresses.len(), len), (ServerId(3), 0, 8));
        let many = Opening {
            from: ServerId(9),
            addresses: vec!["0.0.0.0:1".to_owned(), "[::1]:2".to_owned(), "[::]:3".to_owned()],
        };
        let mut bytes = Vec::new();
        many.encode(&mut bytes);
        assert_eq!(bytes[..8], from_hex("ffffffffffff0001"));
        let (read, _) = Opening::decode(&bytes).unwrap().unwrap();
        assert_eq!(read, many);
        assert_eq!(read.dialable().collect::<Vec<_>>(), ["[::1]:2"]);
    }

    #[test]
    fn foreign_openings_are_refused_before_their_end_is_awaited() {
        for bad in [
            "fffffffffffffffd",
            "ffffffffffff0000 0000000000000001 00000000",
            "ffffffffffff0000 0000000000000001 00000801",
            "ffffffffffff0001 0000000000000001 ffffffff",
        ] {
            assert!(Opening::decode(&from_hex(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn notifications_are_apaches_bytes() {
        let captured = from_hex(&format!(
            "000000b6 00000002 0000000000000003 0000000000000000 0000000000000001
             0000000000000001 00000002 0000008a {CONFIG}"
        ));
        assert_eq!(frame_len(&captured), Ok(Some(captured.len())));
        let body = Bytes::from(captured[4..].to_vec());
        let notification = Notification::decode(&body).unwrap();
        assert_eq!(notification.state, PeerState::Leading);
        assert_eq!((notification.leader, notification.peer_epoch), (ServerId(3), Epoch(1)));
        assert_eq!(notification.config, from_hex(CONFIG));
        let mut bytes = Vec::new();
        notification.encode(&mut bytes);
        assert_eq!(bytes, body);
    }

    #[test]
    fn short_notifications_of_old_servers_are_read() {
        let full = from_hex(
            "00000000 0000000000000003 0000000500000007 0000000000000009 0000000000000004 00000002",
        );
        let oldest = Notification::decode(&Bytes::from(full[..28].to_vec())).unwrap();
        assert_eq!((oldest.peer_epoch, oldest.format, oldest.round), (Epoch(5), 0, 9));
        let old = Notification::decode(&Bytes::from(full.clone())).unwrap();
        assert_eq!((old.peer_epoch, old.format), (Epoch(4), 0));
        for cut in [0, 4, 27, 29, 35] {
            assert!(Notification::decode(&Bytes::from(full[..cut].to_vec())).is_err(), "{cut}");
        }
    }

    #[test]
    fn lengths_inside_a_notification_are_held_against_its_end() {
        let head = "00000000 0000000000000003 0000000500000007 0000000000000009
            0000000000000004 00000002";
        for config in ["7fffffff", "fffffffe", "00000002 00"] {
            let bytes = Bytes::from(from_hex(&format!("{head} {config}")));
            assert!(Notification::decode(&bytes).is_err(), "{config}");
        }
        let unknown = from_hex("00000004 0000000000000003 0000000500000007 0000000000000009");
        assert!(Notification::decode(&Bytes::from(unknown)).is_err());
    }

    #[test]
    fn frames_have_legal_lengths() {
        assert_eq!(frame_len(&[0, 0, 0]), Ok(None));
        assert_eq!(frame_len(&[0, 8, 0, 0]), Ok(Some(4 + FRAME_MAX)));
        assert!(frame_len(&[0, 8, 0, 1]).is_err());
        assert!(frame_len(&[0, 0, 0, 0]).is_err());
        assert!(frame_len(&[0xff; 4]).is_err());
    }
}
