//! Requests that prove an identity of the connection.

use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::{OpCode, Put, Reader, Request, Xid, Zxid, reply};

use super::{CloseReason, Inner};
use crate::auth;
use crate::database::Database;

/// Processes an `auth` or `sasl` request, immediately and out of the order of requests.
pub(super) fn authenticate(
    db: &Database,
    inner: &mut Inner,
    xid: Xid,
    op: OpCode,
    body: &[u8],
) -> Result<(), CloseReason> {
    let before = inner.outbox.len();
    let reader = Reader::with_limit(body, db.config.field_bytes_max);
    match Request::decode(op, reader).map_err(|_| CloseReason::BadAuth)? {
        // Without SASL configured the reply to every token is a null token, as in Apache ZooKeeper.
        Request::Sasl { token: Some(_) } => {
            let out = inner.outbox.tail();
            let start = reply::start_frame(out, xid, Zxid::ZERO);
            out.put_buf(None);
            reply::finish_frame(out, start);
        }
        Request::Auth { scheme, auth, .. } => {
            let scheme = scheme.as_deref().unwrap_or_default();
            match auth::authenticate(&db.config.auth, &inner.identity, scheme, auth) {
                Ok(identity) => {
                    inner.identity = identity;
                    reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, None);
                }
                Err(error) => {
                    db.stats.auth_failures.fetch_add(1, Relaxed);
                    reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, Some(error));
                    inner.close_after_flush(CloseReason::AuthFailed);
                }
            }
        }
        _ => return Err(CloseReason::BadAuth),
    }
    inner.stats.packets_sent += 1;
    db.stats.note_other_reply(inner.outbox.len() - before);
    Ok(())
}
