//! Watch events.

use crate::ids::{Xid, Zxid};
use crate::jute::{DecodeError, Put, Reader};
use crate::reply::ReplyHeader;

/// The change of the node that the event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum EventType {
    /// The node was created.
    NodeCreated = 1,
    /// The node was deleted.
    NodeDeleted = 2,
    /// The data of the node was set.
    NodeDataChanged = 3,
    /// A child of the node was created or deleted.
    NodeChildrenChanged = 4,
}

impl EventType {
    /// Returns the type with this number.
    pub fn from_code(code: i32) -> Option<EventType> {
        Some(match code {
            1 => EventType::NodeCreated,
            2 => EventType::NodeDeleted,
            3 => EventType::NodeDataChanged,
            4 => EventType::NodeChildrenChanged,
            _ => return None,
        })
    }
}

/// The only state that servers send.
pub const STATE_SYNC_CONNECTED: i32 = 3;

/// Appends a whole event frame, including its length.
pub fn encode_frame(kind: EventType, path: &str, zxid: Zxid, out: &mut Vec<u8>) {
    encode(kind, path, zxid, None, out);
}

/// Appends a NodeDeleted frame with the czxid of the oldest remaining sibling. Sent only to clients
/// that requested it with [`DataWatch::InLine`](crate::request::DataWatch::InLine).
pub fn encode_in_line_frame(path: &str, zxid: Zxid, oldest: Zxid, out: &mut Vec<u8>) {
    encode(EventType::NodeDeleted, path, zxid, Some(oldest), out);
}

fn encode(kind: EventType, path: &str, zxid: Zxid, oldest: Option<Zxid>, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_i32(0);
    ReplyHeader { xid: Xid::NOTIFICATION, zxid, err: 0 }.encode(out);
    out.put_i32(kind as i32);
    out.put_i32(STATE_SYNC_CONNECTED);
    out.put_str(path);
    if let Some(oldest) = oldest {
        out.put_i64(oldest.0);
    }
    crate::reply::finish_frame(out, start);
}

/// The body of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatcherEvent {
    /// An [`EventType`]; any number that the server sent.
    pub kind: i32,
    /// The state of the connection, always [`STATE_SYNC_CONNECTED`].
    pub state: i32,
    /// The path of the node.
    pub path: String,
    /// The czxid of the node's oldest sibling when the node was deleted. Ironkeeper's servers
    /// append it for an oldest-sibling watch, if they know it.
    pub oldest_sibling: Option<Zxid>,
}

impl WatcherEvent {
    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<WatcherEvent, DecodeError> {
        Ok(WatcherEvent {
            kind: reader.i32()?,
            state: reader.i32()?,
            path: reader.str()?.into_owned(),
            oldest_sibling: reader.i64().ok().map(Zxid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(frame: &[u8]) -> WatcherEvent {
        let mut reader = Reader::new(&frame[4..]);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        assert_eq!((header.xid, header.zxid, header.err), (Xid::NOTIFICATION, Zxid(9), 0));
        WatcherEvent::decode(&mut reader).unwrap()
    }

    #[test]
    fn who_stands_in_line_comes_behind_what_apache_sends() {
        let (mut plain, mut in_line) = (Vec::new(), Vec::new());
        encode_frame(EventType::NodeDeleted, "/line/1", Zxid(9), &mut plain);
        encode_in_line_frame("/line/1", Zxid(9), Zxid(7), &mut in_line);
        assert_eq!(in_line.len(), plain.len() + 8);
        assert_eq!(in_line[4..plain.len()], plain[4..]);
        assert_eq!(decode(&plain).oldest_sibling, None);
        assert_eq!(
            decode(&in_line),
            WatcherEvent { oldest_sibling: Some(Zxid(7)), ..decode(&plain) }
        );
    }
}
