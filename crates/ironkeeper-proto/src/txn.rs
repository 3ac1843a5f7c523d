//! Transactions: the changes that every server applies in the same way.
//!
//! A transaction contains results (final names, versions, times), not the conditions of the
//! request. One encoding is used in the log, in the synchronization of learners and in proposals:
//! [`TxnHeader`] (32 bytes), the record of the header's type, and usually a [`TxnDigest`].

use std::borrow::Cow;

use crate::acl::AclVec;
use crate::ids::{SessionId, Zxid};
use crate::jute::{DecodeError, Put, Reader, StrVec};
use crate::op::OpCode;

/// The origin and the time of a transaction, and the type of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnHeader {
    /// The session of the client.
    pub session: SessionId,
    /// The client's number of the request.
    pub cxid: i32,
    /// The id of the transaction.
    pub zxid: Zxid,
    /// The leader's wall clock in milliseconds.
    pub time: i64,
    /// The type of the record.
    pub op: OpCode,
}

impl TxnHeader {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 32;

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<TxnHeader, DecodeError> {
        Ok(TxnHeader {
            session: SessionId(reader.i64()?),
            cxid: reader.i32()?,
            zxid: Zxid(reader.i64()?),
            time: reader.i64()?,
            op: decode_op(reader)?,
        })
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.session.0);
        out.put_i32(self.cxid);
        out.put_i64(self.zxid.0);
        out.put_i64(self.time);
        out.put_i32(self.op.code());
    }
}

fn decode_op(reader: &mut Reader<'_>) -> Result<OpCode, DecodeError> {
    let code = reader.i32()?;
    OpCode::from_code(code).ok_or(DecodeError::BadValue(code, "a transaction type"))
}

/// The digest of the whole tree after a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnDigest {
    /// The version of the digest algorithm.
    pub version: i32,
    /// The digest of the tree.
    pub tree_digest: u64,
}

impl TxnDigest {
    /// The version of the only digest algorithm in use.
    pub const VERSION: i32 = 2;
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 12;

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.version);
        out.put_i64(self.tree_digest as i64);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<TxnDigest, DecodeError> {
        Ok(TxnDigest { version: reader.i32()?, tree_digest: reader.i64()? as u64 })
    }
}

/// The creation of a node of any kind.
#[derive(Clone, Debug)]
pub struct CreateTxn<'a> {
    /// The final path, with the number of a sequential node.
    pub path: Cow<'a, str>,
    /// The data. `None` is null, which differs from empty.
    pub data: Option<&'a [u8]>,
    /// The access control list.
    pub acl: AclVec<'a>,
    /// The kind of node.
    pub kind: CreateKind,
    /// The parent's count of created children after the transaction; -1 in very old logs means that
    /// the count increases by one.
    pub parent_cversion: i32,
}

/// The difference between the four create records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum CreateKind {
    /// A node that remains until it is deleted.
    Persistent,
    /// A node that is deleted with the header's session.
    Ephemeral,
    /// A container.
    Container,
    Ttl {
        ttl_ms: i64,
    },
}

/// The record of a transaction, decoded in place.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum Txn<'a> {
    CreateSession {
        timeout_ms: i32,
    },
    /// `None` in logs of 3.5 and older, which do not list the session's nodes.
    CloseSession {
        paths: Option<StrVec<'a>>,
    },
    Error {
        code: i32,
    },
    Create(CreateTxn<'a>),
    Delete {
        path: Cow<'a, str>,
    },
    SetData {
        path: Cow<'a, str>,
        data: Option<&'a [u8]>,
        version: i32,
    },
    /// Sets the data of `/zookeeper/config`; encoded like [`Txn::SetData`].
    Reconfig {
        path: Cow<'a, str>,
        data: Option<&'a [u8]>,
        version: i32,
    },
    SetAcl {
        path: Cow<'a, str>,
        acl: AclVec<'a>,
        version: i32,
    },
    Check {
        path: Cow<'a, str>,
        version: i32,
    },
    Multi(MultiTxn<'a>),
}

impl<'a> Txn<'a> {
    /// Decodes the record.
    pub fn decode(op: OpCode, reader: &mut Reader<'a>) -> Result<Txn<'a>, DecodeError> {
        Ok(match op {
            OpCode::CreateSession => Txn::CreateSession { timeout_ms: reader.i32()? },
            OpCode::CloseSession => Txn::CloseSession { paths: decode_close_session(reader)? },
            OpCode::Error => Txn::Error { code: reader.i32()? },
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                Txn::Create(decode_create(op, reader)?)
            }
            OpCode::Delete | OpCode::DeleteContainer => Txn::Delete { path: reader.str()? },
            OpCode::SetData => {
                Txn::SetData { path: reader.str()?, data: reader.buf()?, version: reader.i32()? }
            }
            OpCode::Reconfig => {
                Txn::Reconfig { path: reader.str()?, data: reader.buf()?, version: reader.i32()? }
            }
            OpCode::SetAcl => Txn::SetAcl {
                path: reader.str()?,
                acl: AclVec::decode(reader)?.unwrap_or(AclVec::EMPTY),
                version: reader.i32()?,
            },
            OpCode::Check => Txn::Check { path: reader.str()?, version: reader.i32()? },
            OpCode::Multi => Txn::Multi(MultiTxn::decode(reader)?),
            other => return Err(DecodeError::BadValue(other.code(), "a transaction type")),
        })
    }
}

/// Decodes the list of paths. With `closeSessionTxn.enabled=false` Apache writes no list, only the
/// digest, if any. A digest cannot be mistaken for a list: its version would be the count of two
/// paths with four bytes in total.
fn decode_close_session<'a>(reader: &mut Reader<'a>) -> Result<Option<StrVec<'a>>, DecodeError> {
    if reader.is_empty() {
        return Ok(None);
    }
    let mut ahead = *reader;
    match ahead.str_vec() {
        Ok(paths) => {
            *reader = ahead;
            Ok(paths)
        }
        Err(_) if reader.rest().len() == TxnDigest::ENCODED_LEN => Ok(None),
        Err(error) => Err(error),
    }
}

fn decode_create<'a>(op: OpCode, reader: &mut Reader<'a>) -> Result<CreateTxn<'a>, DecodeError> {
    let path = reader.str()?;
    let data = reader.buf()?;
    let acl = AclVec::decode(reader)?.unwrap_or(AclVec::EMPTY);
    let (kind, parent_cversion) = match op {
        OpCode::CreateContainer => (CreateKind::Container, reader.i32()?),
        OpCode::CreateTtl => {
            let parent_cversion = reader.i32()?;
            let ttl_ms = reader.i64()?;
            // Apache logs such a record if a client sends a TTL create without a TTL, and cannot
            // apply it afterwards. The error keeps the record out of the tree and names the log
            // file.
            if !(1..=crate::stat::TTL_MS_MAX).contains(&ttl_ms) {
                let shown = i32::try_from(ttl_ms).unwrap_or(i32::MAX);
                return Err(DecodeError::BadValue(shown, "a time to live"));
            }
            (CreateKind::Ttl { ttl_ms }, parent_cversion)
        }
        _ => {
            let kind = if reader.bool()? { CreateKind::Ephemeral } else { CreateKind::Persistent };
            // Very old logs end here.
            (kind, if reader.is_empty() { -1 } else { reader.i32()? })
        }
    };
    Ok(CreateTxn { path, data, acl, kind, parent_cversion })
}

/// The operations of a multi. The encoding is checked on construction, and the iterator decodes the
/// operations again.
#[derive(Clone, Copy, Debug)]
pub struct MultiTxn<'a> {
    count: usize,
    parts: Reader<'a>,
}

impl<'a> MultiTxn<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<MultiTxn<'a>, DecodeError> {
        let count = reader.count(8)?.unwrap_or(0);
        let parts = *reader;
        for _ in 0..count {
            let op = decode_op(reader)?;
            // A multi inside a multi would let a few bytes cause unbounded recursion.
            if matches!(op, OpCode::Multi | OpCode::CreateSession | OpCode::CloseSession) {
                return Err(DecodeError::BadValue(op.code(), "a part of a multi"));
            }
            let body = reader.buf()?.unwrap_or_default();
            Txn::decode(op, &mut Reader::new(body))?;
        }
        Ok(MultiTxn { count, parts })
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Decodes the operations.
    pub fn iter(&self) -> impl Iterator<Item = (OpCode, Txn<'a>)> + use<'a> {
        let mut reader = self.parts;
        (0..self.count).map_while(move |_| {
            let op = decode_op(&mut reader).ok()?;
            let body = reader.buf().ok()?.unwrap_or_default();
            Some((op, Txn::decode(op, &mut Reader::new(body)).ok()?))
        })
    }

    /// Returns whether the multi failed. A failed multi has error records where it failed, and no
    /// part of it is applied.
    pub fn failed(&self) -> bool {
        self.iter().any(|(op, _)| op == OpCode::Error)
    }
}

/// A whole transaction as the log stores it: header, record, digest.
#[derive(Clone, Debug)]
pub struct FullTxn<'a> {
    /// The origin of the transaction.
    pub header: TxnHeader,
    /// The record.
    pub txn: Txn<'a>,
    /// The digest of the tree after the transaction, if it was written.
    pub digest: Option<TxnDigest>,
}

impl<'a> FullTxn<'a> {
    /// Decodes the transaction.
    pub fn decode(bytes: &'a [u8]) -> Result<FullTxn<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let header = TxnHeader::decode(&mut reader)?;
        let txn = Txn::decode(header.op, &mut reader)?;
        let digest = if reader.rest().len() >= TxnDigest::ENCODED_LEN {
            Some(TxnDigest::decode(&mut reader)?)
        } else {
            None
        };
        Ok(FullTxn { header, txn, digest })
    }
}

/// Encoders of the records.
pub mod encode {
    use super::*;

    /// Appends the record of a create of any kind.
    pub fn create(
        op: OpCode,
        path: &str,
        data: Option<&[u8]>,
        acl: AclVec<'_>,
        kind: CreateKind,
        parent_cversion: i32,
        out: &mut impl Put,
    ) {
        debug_assert!(match kind {
            CreateKind::Container => op == OpCode::CreateContainer,
            CreateKind::Ttl { .. } => op == OpCode::CreateTtl,
            _ => matches!(op, OpCode::Create | OpCode::Create2),
        });
        out.put_str(path);
        out.put_buf(data);
        acl.encode(out);
        match kind {
            CreateKind::Persistent | CreateKind::Ephemeral => {
                out.put_bool(kind == CreateKind::Ephemeral);
                out.put_i32(parent_cversion);
            }
            CreateKind::Container => out.put_i32(parent_cversion),
            CreateKind::Ttl { ttl_ms } => {
                out.put_i32(parent_cversion);
                out.put_i64(ttl_ms);
            }
        }
    }

    /// Appends the record of a delete.
    pub fn delete(path: &str, out: &mut impl Put) {
        out.put_str(path);
    }

    /// Appends the record of a setData, or of a reconfig.
    pub fn set_data(path: &str, data: Option<&[u8]>, version: i32, out: &mut impl Put) {
        out.put_str(path);
        out.put_buf(data);
        out.put_i32(version);
    }

    /// Appends the record of a setACL.
    pub fn set_acl(path: &str, acl: AclVec<'_>, version: i32, out: &mut impl Put) {
        out.put_str(path);
        acl.encode(out);
        out.put_i32(version);
    }

    /// Appends the record of a check.
    pub fn check(path: &str, version: i32, out: &mut impl Put) {
        out.put_str(path);
        out.put_i32(version);
    }

    /// Appends the record of a failed write.
    pub fn error(code: i32, out: &mut impl Put) {
        out.put_i32(code);
    }

    /// Appends the record of a new session.
    pub fn create_session(timeout_ms: i32, out: &mut impl Put) {
        out.put_i32(timeout_ms);
    }

    /// Appends the record of the end of a session, with the paths of its ephemeral nodes.
    pub fn close_session<'p>(
        count: usize,
        paths: impl Iterator<Item = &'p str>,
        out: &mut impl Put,
    ) {
        out.put_len(count);
        for path in paths {
            out.put_str(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl;

    fn from_hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The first record of a log of Apache ZooKeeper 3.9.5.
    const SESSION: &str = "0100000e4e060000 00000000 0000000100000001 000001a1e057d4f5 fffffff6
        00002710 00000002 0000000051c6d660";
    /// The second record: create /a0.
    const CREATE: &str = "0100000e4e060000 00000001 0000000100000002 000001a1e057d515 00000001
        000000032f6130 000000056461746130 00000001 0000001f 00000005776f726c64
        00000006616e796f6e65 00 00000001 00000002 000000016ce65858";

    #[test]
    fn reads_what_apache_wrote() {
        let bytes = from_hex(SESSION);
        let full = FullTxn::decode(&bytes).unwrap();
        assert!(matches!(full.txn, Txn::CreateSession { timeout_ms: 10000 }));
        assert_eq!(full.digest, Some(TxnDigest { version: 2, tree_digest: 0x51c6_d660 }));
        let bytes = from_hex(CREATE);
        let full = FullTxn::decode(&bytes).unwrap();
        assert_eq!(full.header.zxid, Zxid(0x1_0000_0002));
        let Txn::Create(create) = full.txn else { panic!("a create") };
        assert_eq!((&*create.path, create.data), ("/a0", Some(&b"data0"[..])));
        assert_eq!((create.kind, create.parent_cversion), (CreateKind::Persistent, 1));
        assert_eq!(full.digest.unwrap().tree_digest, 0x1_6ce6_5858);
    }

    #[test]
    fn writes_the_same_bytes() {
        let mut bytes = Vec::new();
        TxnHeader {
            session: SessionId(0x0100_000e_4e06_0000),
            cxid: 1,
            zxid: Zxid(0x1_0000_0002),
            time: 0x1a1_e057_d515,
            op: OpCode::Create,
        }
        .encode(&mut bytes);
        let kind = CreateKind::Persistent;
        encode::create(OpCode::Create, "/a0", Some(b"data0"), AclVec::OPEN, kind, 1, &mut bytes);
        TxnDigest { version: 2, tree_digest: 0x1_6ce6_5858 }.encode(&mut bytes);
        assert_eq!(bytes, from_hex(CREATE));
    }

    #[test]
    fn a_ttl_record_without_a_ttl_is_refused() {
        let mut bytes = Vec::new();
        bytes.put_str("/t");
        bytes.put_buf(None);
        acl::encode_list(&acl::open(), &mut bytes);
        bytes.put_i32(1);
        bytes.put_i64(-1);
        assert!(Txn::decode(OpCode::CreateTtl, &mut Reader::new(&bytes)).is_err());
    }

    #[test]
    fn a_close_without_a_list_keeps_its_digest() {
        let mut bytes =
            from_hex("0100000e4e060000 00000009 0000000100000007 000001a1e057d515 fffffff5");
        let bare = FullTxn::decode(&bytes).unwrap();
        assert!(matches!(bare.txn, Txn::CloseSession { paths: None }) && bare.digest.is_none());
        TxnDigest { version: 2, tree_digest: 0x2_f0d4_e303 }.encode(&mut bytes);
        let full = FullTxn::decode(&bytes).unwrap();
        assert!(matches!(full.txn, Txn::CloseSession { paths: None }));
        assert_eq!(full.digest.unwrap().tree_digest, 0x2_f0d4_e303);
    }

    #[test]
    fn multis_do_not_nest() {
        let mut bytes = Vec::new();
        bytes.put_i32(1);
        bytes.put_i32(OpCode::Multi.code());
        bytes.put_buf(Some(&[0, 0, 0, 0]));
        assert!(Txn::decode(OpCode::Multi, &mut Reader::new(&bytes)).is_err());
    }

    #[test]
    fn every_truncation_of_a_record_is_refused() {
        let bytes = from_hex(CREATE);
        let body_end = bytes.len() - TxnDigest::ENCODED_LEN;
        for cut in 0..body_end - 4 {
            assert!(FullTxn::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
