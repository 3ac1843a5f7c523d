//! What a watch tells its owner.

use crate::ids::{Xid, Zxid};
use crate::jute::{DecodeError, Put, Reader};
use crate::reply::ReplyHeader;

/// What happened to the node the event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum EventType {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

impl EventType {
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

/// The only state a server ever sends.
pub const STATE_SYNC_CONNECTED: i32 = 3;

/// Appends a whole notification frame, length included.
pub fn encode_frame(kind: EventType, path: &str, zxid: Zxid, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_i32(0);
    ReplyHeader { xid: Xid::NOTIFICATION, zxid, err: 0 }.encode(out);
    out.put_i32(kind as i32);
    out.put_i32(STATE_SYNC_CONNECTED);
    out.put_str(path);
    crate::reply::finish_frame(out, start);
}

/// The body of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatcherEvent {
    pub kind: i32,
    pub state: i32,
    pub path: String,
}

impl WatcherEvent {
    pub fn decode(reader: &mut Reader<'_>) -> Result<WatcherEvent, DecodeError> {
        Ok(WatcherEvent {
            kind: reader.i32()?,
            state: reader.i32()?,
            path: reader.str()?.into_owned(),
        })
    }
}
