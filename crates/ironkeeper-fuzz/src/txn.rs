//! Transactions, as logs and proposals contain them.

use ironkeeper_proto::txn::{self, CreateTxn, FullTxn, MultiTxn, Txn, TxnHeader};
use ironkeeper_proto::{OpCode, Put};

/// A whole transaction: header, record, digest.
pub(crate) fn txn(bytes: &[u8]) {
    let Ok(full) = FullTxn::decode(bytes) else { return };
    let Some(again) = encoded(&full) else { return };
    let decoded = FullTxn::decode(&again).expect("an encoded transaction is readable");
    assert_eq!(format!("{:?}", Shown(&decoded)), format!("{:?}", Shown(&full)));
    assert_eq!(encoded(&decoded), Some(again));
}

/// Returns the encoding, or `None` for what this version decodes and never writes: a close without
/// a list of paths, and characters that Java writes as surrogates.
pub(crate) fn encoded(full: &FullTxn<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    full.header.encode(&mut out);
    put(full.header.op, &full.txn, &mut out)?;
    if let Some(digest) = &full.digest {
        digest.encode(&mut out);
    }
    Some(out)
}

fn put(op: OpCode, txn: &Txn<'_>, out: &mut Vec<u8>) -> Option<()> {
    match txn {
        Txn::CreateSession { timeout_ms } => txn::encode::create_session(*timeout_ms, out),
        Txn::CloseSession { paths } => {
            let paths: Vec<_> = paths.as_ref()?.iter().collect();
            paths.iter().try_for_each(|path| plain(path).map(drop))?;
            txn::encode::close_session(paths.len(), paths.iter().map(|path| &**path), out);
        }
        Txn::Error { code } => txn::encode::error(*code, out),
        Txn::Create(CreateTxn { path, data, acl, kind, parent_cversion }) => {
            txn::encode::create(op, plain(path)?, *data, *acl, *kind, *parent_cversion, out);
        }
        Txn::Delete { path } => txn::encode::delete(plain(path)?, out),
        Txn::SetData { path, data, version } | Txn::Reconfig { path, data, version } => {
            txn::encode::set_data(plain(path)?, *data, *version, out);
        }
        Txn::SetAcl { path, acl, version } => {
            txn::encode::set_acl(plain(path)?, *acl, *version, out);
        }
        Txn::Check { path, version } => txn::encode::check(plain(path)?, *version, out),
        Txn::Multi(multi) => put_multi(multi, out)?,
    }
    Some(())
}

fn put_multi(multi: &MultiTxn<'_>, out: &mut Vec<u8>) -> Option<()> {
    assert_eq!(multi.iter().count(), multi.len());
    out.put_len(multi.len());
    for (op, part) in multi.iter() {
        let mut body = Vec::new();
        put(op, &part, &mut body)?;
        out.put_i32(op.code());
        out.put_buf(Some(&body));
    }
    Some(())
}

fn plain(path: &str) -> Option<&str> {
    path.chars().all(|character| character <= '\u{ffff}').then_some(path)
}

/// Prints the parts of a multi, which have no derived representation of their content.
struct Shown<'f, 'a>(&'f FullTxn<'a>);

impl std::fmt::Debug for Shown<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FullTxn { header, txn, digest } = self.0;
        match txn {
            Txn::Multi(multi) => f.debug_list().entries(multi.iter()).finish()?,
            Txn::CloseSession { paths } => {
                let paths = paths.iter().flat_map(|paths| paths.iter());
                f.debug_list().entries(paths).finish()?;
            }
            single => write!(f, "{single:?}")?,
        }
        let TxnHeader { session, cxid, zxid, time, op } = header;
        write!(f, "{session:?} {cxid} {zxid} {time} {op:?} {digest:?}")
    }
}
