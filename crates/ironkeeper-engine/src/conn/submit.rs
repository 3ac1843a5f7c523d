//! What a connection passes to the engine.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_proto::connect::PASSWORD_LEN;
use ironkeeper_proto::{ErrorCode, OpCode, SessionId, Xid};

use super::Conn;
use crate::auth::Identity;
use crate::large_requests::LargePermit;

/// A request for the engine.
#[derive(Debug)]
pub struct Submit {
    pub conn: Arc<Conn>,
    pub received_ms: u64,
    pub kind: SubmitKind,
}

#[derive(Debug)]
pub enum SubmitKind {
    OpenSession {
        timeout_ms: i32,
    },
    AttachSession {
        session: SessionId,
        password: [u8; PASSWORD_LEN],
        timeout_ms: i32,
    },
    /// A write or a sync: every request that is ordered among the transactions.
    Write {
        session: SessionId,
        xid: Xid,
        op: OpCode,
        body: Bytes,
        identity: Arc<Identity>,
        permit: Option<LargePermit>,
    },
    /// A request that is rejected without decoding it, in the order of requests.
    Refuse {
        session: SessionId,
        xid: Xid,
        op: OpCode,
        error: ErrorCode,
    },
    /// The socket is closed; the session continues.
    Disconnected {
        session: SessionId,
        /// The connection had been granted a slot of the request throttle and did not use it.
        has_slot: bool,
    },
}
