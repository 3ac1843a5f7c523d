//! What clients send to a server: the handshake and requests.

use ironkeeper_proto::acl::AclVec;
use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse};
use ironkeeper_proto::jute::{MAX_BUFFER_DEFAULT, Put, Reader, StrVec};
use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::request::{Create, DataWatch, Request, RequestHeader, SetWatches};
use ironkeeper_proto::{OpCode, path};

/// The handshake in both directions.
pub(crate) fn connect(bytes: &[u8]) {
    if let Ok(request) = ConnectRequest::decode(bytes) {
        let mut encoded = Vec::new();
        request.encode(&mut encoded);
        assert_eq!(ConnectRequest::decode(&encoded), Ok(request));
    }
    if let Ok(response) = ConnectResponse::decode(bytes) {
        let mut encoded = Vec::new();
        response.encode(&mut encoded);
        assert_eq!(ConnectResponse::decode(&encoded), Ok(response));
    }
}

/// A request: header and body, multis included.
pub(crate) fn request(bytes: &[u8]) {
    let mut reader = Reader::with_limit(bytes, MAX_BUFFER_DEFAULT);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let Some(op) = OpCode::from_code(header.op) else { return };
    let Ok(request) = Request::decode(op, reader) else { return };
    visit(&request);
    let mut body = Vec::new();
    encode(&request, &mut body);
    let decoded = Request::decode(op, Reader::new(&body)).expect("an encoded request is readable");
    let mut again = Vec::new();
    encode(&decoded, &mut again);
    assert_eq!(again, body);
    for cut in [body.len() / 2, body.len().saturating_sub(1)] {
        // A part of a request may be a request (an optional field is missing), but no panic.
        let _ = Request::decode(op, Reader::new(&body[..cut]));
    }
}

/// Iterates over everything that is decoded lazily.
fn visit(request: &Request<'_>) {
    match request {
        Request::Create(create) => {
            let _ = path::validate(&create.path);
            visit_acl(create.acl);
        }
        Request::SetAcl { acl, .. } => visit_acl(*acl),
        Request::SetWatches(watches) | Request::SetWatches2(watches) => {
            for list in lists(watches) {
                assert_eq!(list.iter().count(), list.len());
            }
        }
        Request::Multi(parts) | Request::MultiRead(parts) => parts.iter().for_each(visit),
        _ => {}
    }
}

fn visit_acl(acl: Option<AclVec<'_>>) {
    if let Some(acl) = acl {
        assert_eq!(acl.iter().count(), acl.len());
        let _ = acl.has_null_id(&["digest", "world"]);
    }
}

fn lists<'r, 'a>(watches: &'r SetWatches<'a>) -> impl Iterator<Item = &'r StrVec<'a>> {
    let SetWatches { data, exist, child, persistent, persistent_recursive, .. } = watches;
    [data, exist, child].into_iter().chain(persistent).chain(persistent_recursive)
}

/// Strings are written as they are, without the surrogates of [`Put::put_str`]: clients in other
/// languages than Java send UTF-8.
fn put_text(text: &str, out: &mut Vec<u8>) {
    out.put_buf(Some(text.as_bytes()));
}

fn put_opt_text(text: Option<&str>, out: &mut Vec<u8>) {
    out.put_buf(text.map(str::as_bytes));
}

fn put_acl(acl: Option<AclVec<'_>>, out: &mut Vec<u8>) {
    match acl {
        None => out.put_i32(-1),
        Some(acl) => acl.encode(out),
    }
}

/// Encodes the body of a request.
fn encode(request: &Request<'_>, out: &mut Vec<u8>) {
    match request {
        Request::Create(Create { path, data, acl, flags, ttl_ms, .. }) => {
            put_text(path, out);
            out.put_buf(*data);
            put_acl(*acl, out);
            out.put_i32(*flags);
            if let Some(ttl_ms) = ttl_ms {
                out.put_i64(*ttl_ms);
            }
        }
        Request::Delete { path, version } | Request::Check { path, version } => {
            put_text(path, out);
            out.put_i32(*version);
        }
        Request::DeleteContainer { path }
        | Request::GetAcl { path }
        | Request::GetAllChildrenNumber { path } => put_text(path, out),
        Request::Exists { path, watch }
        | Request::GetChildren { path, watch }
        | Request::GetChildren2 { path, watch } => {
            put_text(path, out);
            out.put_bool(*watch);
        }
        Request::GetData { path, watch } => {
            put_text(path, out);
            DataWatch::encode(*watch, out);
        }
        Request::SetData { path, data, version } => {
            put_text(path, out);
            out.put_buf(*data);
            out.put_i32(*version);
        }
        Request::SetAcl { path, acl, version } => {
            put_text(path, out);
            put_acl(*acl, out);
            out.put_i32(*version);
        }
        Request::Sync { path } | Request::GetEphemerals { prefix: path } => {
            put_opt_text(path.as_deref(), out);
        }
        Request::Ping | Request::WhoAmI | Request::CloseSession => {}
        Request::Multi(parts) | Request::MultiRead(parts) => {
            for part in parts {
                MultiHeader { kind: op_of_part(part).code(), done: false, err: -1 }.encode(out);
                encode(part, out);
            }
            MultiHeader::END.encode(out);
        }
        Request::Reconfig(reconfig) => {
            put_opt_text(reconfig.joining.as_deref(), out);
            put_opt_text(reconfig.leaving.as_deref(), out);
            put_opt_text(reconfig.new_members.as_deref(), out);
            out.put_i64(reconfig.config_id);
        }
        Request::CheckWatches { path, kind } | Request::RemoveWatches { path, kind } => {
            put_opt_text(path.as_deref(), out);
            out.put_i32(*kind);
        }
        Request::Auth { kind, scheme, auth } => {
            out.put_i32(*kind);
            put_opt_text(scheme.as_deref(), out);
            out.put_buf(*auth);
        }
        Request::Sasl { token } => out.put_buf(*token),
        Request::SetWatches(watches) | Request::SetWatches2(watches) => {
            out.put_i64(watches.relative_zxid.0);
            for list in lists(watches) {
                out.put_len(list.len());
                for path in list.iter() {
                    put_text(&path, out);
                }
            }
        }
        Request::AddWatch { path, mode } => {
            put_text(path, out);
            out.put_i32(*mode);
        }
        Request::CreateSession { timeout_ms } => out.put_i32(*timeout_ms),
    }
}

/// Returns the operation code of a part of a multi.
fn op_of_part(part: &Request<'_>) -> OpCode {
    match part {
        Request::Create(create) => create.op,
        Request::Delete { .. } => OpCode::Delete,
        Request::SetData { .. } => OpCode::SetData,
        Request::Check { .. } => OpCode::Check,
        Request::GetData { .. } => OpCode::GetData,
        Request::GetChildren { .. } => OpCode::GetChildren,
        other => panic!("{other:?} is accepted in a multi"),
    }
}
