//! The sections of a snapshot file.
//!
//! ```text
//! | ZKSN | version 2 i32 | dbid -1 i64 |
//! | count i32 | (session i64, timeout i32) ... |
//! | count i32 | (acl id i64, acl list) ... |
//! | (path, data, acl id i64, StatPersisted) ... | path "/" |
//! | seal |  zxid i64, digest version i32, digest i64 | seal |  last zxid i64 | seal |
//! seal = | Adler-32 of everything before, i64 | string "/" |
//! ```
//! The path of the root node is empty. Parents precede their children.

use std::borrow::Cow;

use crate::acl::AclVec;
use crate::ids::{SessionId, Zxid};
use crate::jute::{DecodeError, Put, Reader};
use crate::stat::StatPersisted;

/// The first bytes of a snapshot file.
pub const MAGIC: [u8; 4] = *b"ZKSN";
/// The version of the format.
pub const VERSION: i32 = 2;
/// The length of the file header in bytes.
pub const FILE_HEADER_LEN: usize = 16;
/// The string that ends the nodes and every seal.
pub const END_PATH: &str = "/";
/// The ACL id of `world:anyone:cdrwa`, which is not in the table of ACLs.
pub const OPEN_ACL_ID: i64 = -1;

/// Appends the file header.
pub fn encode_file_header(out: &mut impl Put) {
    out.put_raw(&MAGIC);
    out.put_i32(VERSION);
    out.put_i64(-1);
}

/// Appends one entry of the table of sessions.
pub fn encode_session(session: SessionId, timeout_ms: i32, out: &mut impl Put) {
    out.put_i64(session.0);
    out.put_i32(timeout_ms);
}

/// Appends one entry of the table of access control lists.
pub fn encode_acl(id: i64, list: AclVec<'_>, out: &mut impl Put) {
    out.put_i64(id);
    list.encode(out);
}

/// One node of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotNode<'a> {
    /// Empty for the root.
    pub path: Cow<'a, str>,
    /// The data. `None` is null, which differs from empty.
    pub data: Option<&'a [u8]>,
    /// The id of its access control list in the table.
    pub acl: i64,
    /// The stored part of its stat.
    pub stat: StatPersisted,
}

impl<'a> SnapshotNode<'a> {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_str(&self.path);
        out.put_buf(self.data);
        out.put_i64(self.acl);
        self.stat.encode(out);
    }

    /// Decodes the fields after the path.
    pub fn decode_body(
        path: Cow<'a, str>,
        reader: &mut Reader<'a>,
    ) -> Result<SnapshotNode<'a>, DecodeError> {
        Ok(SnapshotNode {
            path,
            data: reader.buf()?,
            acl: reader.i64()?,
            stat: StatPersisted::decode(reader)?,
        })
    }
}

/// The digest section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDigest {
    /// The last transaction in the digest.
    pub zxid: Zxid,
    /// The version of the digest algorithm.
    pub version: i32,
    /// The digest of the tree.
    pub digest: u64,
}

impl SnapshotDigest {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 20;

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.zxid.0);
        out.put_i32(self.version);
        out.put_i64(self.digest as i64);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<SnapshotDigest, DecodeError> {
        Ok(SnapshotDigest {
            zxid: Zxid(reader.i64()?),
            version: reader.i32()?,
            digest: reader.i64()? as u64,
        })
    }
}
