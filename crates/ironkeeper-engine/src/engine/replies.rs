//! The encoding of replies to requests that are ordered among the transactions.

use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::reply::{self, MultiHeader};
use ironkeeper_proto::txn::{FullTxn, MultiTxn};
use ironkeeper_proto::{ErrorCode, OpCode, Put, Txn, Xid};
use ironkeeper_tree::Applied;

use crate::conn::Inner;

pub(super) fn put_connect_response(response: &ConnectResponse, inner: &mut Inner) {
    let out = inner.outbox.tail();
    let start = out.len();
    out.put_i32(0);
    response.encode(out);
    reply::finish_frame(out, start);
}

pub(super) fn put_txn_reply(out: &mut Vec<u8>, xid: Xid, full: &FullTxn<'_>, applied: &Applied) {
    let zxid = full.header.zxid;
    if let Txn::Error { code } = full.txn {
        return reply::header_frame(out, xid, zxid, ErrorCode::from_code(code));
    }
    let start = reply::start_frame(out, xid, zxid);
    match &full.txn {
        Txn::Multi(multi) => put_multi_results(out, *multi, applied),
        txn => put_result(out, full.header.op, txn, applied),
    }
    reply::finish_frame(out, start);
}

/// Encodes the body of one operation's reply.
fn put_result(out: &mut Vec<u8>, op: OpCode, txn: &Txn<'_>, applied: &Applied) {
    if let Txn::Create(create) = txn {
        out.put_str(&create.path);
    }
    if let Txn::Reconfig { data, .. } = txn {
        out.put_buf(*data);
    }
    if op != OpCode::Create
        && let Some(stat) = &applied.stat
    {
        stat.encode(out);
    }
}

fn put_multi_results(out: &mut Vec<u8>, multi: MultiTxn<'_>, applied: &Applied) {
    let failed = multi.failed();
    for (at, (op, part)) in multi.iter().enumerate() {
        if failed {
            let code = match part {
                Txn::Error { code } => code,
                _ => 0,
            };
            MultiHeader { kind: OpCode::Error.code(), done: false, err: code }.encode(out);
            out.put_i32(code);
            continue;
        }
        // Containers and TTL nodes get the reply of create2.
        let kind = match op {
            OpCode::CreateContainer | OpCode::CreateTtl => OpCode::Create2,
            other => other,
        };
        MultiHeader { kind: kind.code(), done: false, err: 0 }.encode(out);
        if let Some(applied) = applied.parts.get(at) {
            put_result(out, op, &part, applied);
        }
    }
    MultiHeader::END.encode(out);
}
