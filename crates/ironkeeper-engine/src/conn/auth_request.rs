//! Requests by which a client authenticates.

use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::{ErrorCode, OpCode, Put, Reader, Request, Xid, Zxid, reply};

use super::{CloseReason, Inner};
use crate::auth::{AuthMessage, Step};
use crate::database::Database;

/// Processes an `auth` or `sasl` request, immediately and out of the order of requests. Each is one
/// step of the connection's exchange.
pub(super) fn authenticate(
    db: &Database,
    inner: &mut Inner,
    xid: Xid,
    op: OpCode,
    body: &[u8],
) -> Result<(), CloseReason> {
    let before = inner.outbox.len();
    let reader = Reader::with_limit(body, db.config.field_bytes_max);
    let request = Request::decode(op, reader).map_err(|_| CloseReason::BadAuth)?;
    let message = match &request {
        Request::Auth { scheme, auth, .. } => {
            AuthMessage::Proof { scheme: scheme.as_deref().unwrap_or_default(), proof: *auth }
        }
        Request::Sasl { token: Some(token) } => AuthMessage::Token(token),
        _ => return Err(CloseReason::BadAuth),
    };
    match step(db, inner, message) {
        Ok(Reply::Confirmation) => {
            reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, None);
        }
        Ok(Reply::Token(token)) => {
            let out = inner.outbox.tail();
            let start = reply::start_frame(out, xid, Zxid::ZERO);
            out.put_buf(token.as_deref());
            reply::finish_frame(out, start);
        }
        Err(error) => {
            db.stats.auth_failures.fetch_add(1, Relaxed);
            reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, Some(error));
            inner.close_after_flush(CloseReason::AuthFailed);
        }
    }
    inner.stats.packets_sent += 1;
    db.stats.note_other_reply(inner.outbox.len() - before);
    Ok(())
}

enum Reply {
    Confirmation,
    Token(Option<Vec<u8>>),
}

fn step(db: &Database, inner: &mut Inner, message: AuthMessage<'_>) -> Result<Reply, ErrorCode> {
    match inner.exchange.step(&db.config.auth, message)? {
        Step::Proven(ids) => {
            inner.identity = inner.identity.with(ids)?;
            Ok(Reply::Confirmation)
        }
        Step::Token(token) => Ok(Reply::Token(token)),
    }
}
