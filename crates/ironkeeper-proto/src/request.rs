//! The requests of clients.

use std::borrow::Cow;

use crate::acl::AclVec;
use crate::ids::{Xid, Zxid};
use crate::jute::{DecodeError, Put, Reader, StrVec};
use crate::op::{CreateMode, OpCode};
use crate::reply::MultiHeader;

/// The eight bytes before every request except the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number of the request, which the reply repeats.
    pub xid: Xid,
    /// A number and not an [`OpCode`], because a client may send any value.
    pub op: i32,
}

impl RequestHeader {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 8;

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<RequestHeader, DecodeError> {
        Ok(RequestHeader { xid: Xid(reader.i32()?), op: reader.i32()? })
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.xid.0);
        out.put_i32(self.op);
    }
}

/// A create of any kind. The operation code and the flags together determine the kind.
#[derive(Clone, Debug)]
pub struct Create<'a> {
    /// One of the four operations that create.
    pub op: OpCode,
    /// The path; of a sequential node without its number.
    pub path: Cow<'a, str>,
    /// The data. `None` is null, which differs from empty.
    pub data: Option<&'a [u8]>,
    /// `None` if the client sent a null list.
    pub acl: Option<AclVec<'a>>,
    /// A [`CreateMode`]; any number that the client sent.
    pub flags: i32,
    /// `Some` only for [`OpCode::CreateTtl`].
    pub ttl_ms: Option<i64>,
}

/// The watch that a getData requests. For Apache the field is a boolean, and any non-zero byte is
/// true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataWatch {
    /// No watch.
    None,
    /// A watch for the next change.
    OneShot,
    /// An oldest-sibling watch: the NodeDeleted event carries the czxid of the parent's oldest
    /// remaining child, see [`WatcherEvent`](crate::watch_event::WatcherEvent). This is an
    /// extension of Ironkeeper; Apache treats it as a plain data watch.
    InLine,
}

impl DataWatch {
    /// Returns the watch that the byte requests.
    pub fn from_byte(byte: u8) -> DataWatch {
        match byte {
            0 => DataWatch::None,
            2 => DataWatch::InLine,
            _ => DataWatch::OneShot,
        }
    }

    /// Appends the encoding.
    pub fn encode(self, out: &mut impl Put) {
        out.put_u8(match self {
            DataWatch::None => 0,
            DataWatch::OneShot => 1,
            DataWatch::InLine => 2,
        });
    }
}

/// The watches that a client sets again after a reconnect.
#[derive(Clone, Copy, Debug)]
pub struct SetWatches<'a> {
    /// The last zxid that the client has seen. Changes after it cause events at once.
    pub relative_zxid: Zxid,
    /// Paths of watches on data.
    pub data: StrVec<'a>,
    /// Paths of watches on nodes that did not exist.
    pub exist: StrVec<'a>,
    /// Paths of watches on lists of children.
    pub child: StrVec<'a>,
    /// Paths of persistent watches.
    pub persistent: Option<StrVec<'a>>,
    /// Paths of recursive watches.
    pub persistent_recursive: Option<StrVec<'a>>,
}

/// One request, decoded in place.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum Request<'a> {
    Create(Create<'a>),
    Delete {
        path: Cow<'a, str>,
        version: i32,
    },
    DeleteContainer {
        path: Cow<'a, str>,
    },
    Exists {
        path: Cow<'a, str>,
        watch: bool,
    },
    GetData {
        path: Cow<'a, str>,
        watch: DataWatch,
    },
    SetData {
        path: Cow<'a, str>,
        data: Option<&'a [u8]>,
        version: i32,
    },
    GetAcl {
        path: Cow<'a, str>,
    },
    SetAcl {
        path: Cow<'a, str>,
        acl: Option<AclVec<'a>>,
        version: i32,
    },
    GetChildren {
        path: Cow<'a, str>,
        watch: bool,
    },
    GetChildren2 {
        path: Cow<'a, str>,
        watch: bool,
    },
    /// The reply echoes the path and the server does not interpret it. The path may be null.
    Sync {
        path: Option<Cow<'a, str>>,
    },
    Ping,
    Check {
        path: Cow<'a, str>,
        version: i32,
    },
    Multi(Vec<Request<'a>>),
    MultiRead(Vec<Request<'a>>),
    Reconfig(Reconfig<'a>),
    CheckWatches {
        path: Option<Cow<'a, str>>,
        kind: i32,
    },
    RemoveWatches {
        path: Option<Cow<'a, str>>,
        kind: i32,
    },
    Auth {
        kind: i32,
        scheme: Option<Cow<'a, str>>,
        auth: Option<&'a [u8]>,
    },
    Sasl {
        token: Option<&'a [u8]>,
    },
    SetWatches(SetWatches<'a>),
    SetWatches2(SetWatches<'a>),
    GetEphemerals {
        prefix: Option<Cow<'a, str>>,
    },
    GetAllChildrenNumber {
        path: Cow<'a, str>,
    },
    AddWatch {
        path: Cow<'a, str>,
        mode: i32,
    },
    WhoAmI,
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession,
}

/// A change of the ensemble's membership.
#[derive(Clone, Debug)]
pub struct Reconfig<'a> {
    /// Members to add or to change, as `server.N=...` lines separated by commas.
    pub joining: Option<Cow<'a, str>>,
    /// Ids of members to remove, separated by commas.
    pub leaving: Option<Cow<'a, str>>,
    /// The complete new membership, instead of both other fields.
    pub new_members: Option<Cow<'a, str>>,
    /// The version of the membership to change, or -1.
    pub config_id: i64,
}

impl<'a> Request<'a> {
    /// Decodes the body of a request. Bytes after the last field are ignored, as in Apache.
    ///
    /// A write with a null path returns [`DecodeError::NullString`] only if the rest of the body
    /// decodes: Apache detects a truncated body before it allocates a zxid, and a null path after.
    pub fn decode(op: OpCode, mut reader: Reader<'a>) -> Result<Request<'a>, DecodeError> {
        Request::decode_from(op, &mut reader)
    }

    fn decode_from(op: OpCode, reader: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
        Ok(match op {
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                let path = reader.opt_str()?;
                Request::Create(Create {
                    op,
                    data: reader.buf()?,
                    acl: AclVec::decode(reader)?,
                    flags: reader.i32()?,
                    ttl_ms: if op == OpCode::CreateTtl { Some(reader.i64()?) } else { None },
                    path: path.ok_or(DecodeError::NullString)?,
                })
            }
            OpCode::Delete => {
                let (path, version) = (reader.opt_str()?, reader.i32()?);
                Request::Delete { path: path.ok_or(DecodeError::NullString)?, version }
            }
            OpCode::DeleteContainer => Request::DeleteContainer { path: reader.str()? },
            OpCode::Exists => Request::Exists { path: reader.str()?, watch: reader.bool()? },
            OpCode::GetData => {
                Request::GetData { path: reader.str()?, watch: DataWatch::from_byte(reader.u8()?) }
            }
            OpCode::SetData => {
                let (path, data, version) = (reader.opt_str()?, reader.buf()?, reader.i32()?);
                Request::SetData { path: path.ok_or(DecodeError::NullString)?, data, version }
            }
            OpCode::GetAcl => Request::GetAcl { path: reader.str()? },
            OpCode::SetAcl => {
                let (path, acl) = (reader.opt_str()?, AclVec::decode(reader)?);
                let version = reader.i32()?;
                Request::SetAcl { path: path.ok_or(DecodeError::NullString)?, acl, version }
            }
            OpCode::GetChildren => {
                Request::GetChildren { path: reader.str()?, watch: reader.bool()? }
            }
            OpCode::GetChildren2 => {
                Request::GetChildren2 { path: reader.str()?, watch: reader.bool()? }
            }
            OpCode::Sync => Request::Sync { path: reader.opt_str()? },
            OpCode::Ping => Request::Ping,
            OpCode::Check => {
                let (path, version) = (reader.opt_str()?, reader.i32()?);
                Request::Check { path: path.ok_or(DecodeError::NullString)?, version }
            }
            OpCode::Multi => Request::Multi(decode_multi(reader, is_multi_write)?),
            OpCode::MultiRead => Request::MultiRead(decode_multi(reader, is_multi_read)?),
            OpCode::Reconfig => Request::Reconfig(Reconfig {
                joining: reader.opt_str()?,
                leaving: reader.opt_str()?,
                new_members: reader.opt_str()?,
                config_id: reader.i64()?,
            }),
            OpCode::CheckWatches => {
                Request::CheckWatches { path: reader.opt_str()?, kind: reader.i32()? }
            }
            OpCode::RemoveWatches => {
                Request::RemoveWatches { path: reader.opt_str()?, kind: reader.i32()? }
            }
            OpCode::Auth => Request::Auth {
                kind: reader.i32()?,
                scheme: reader.opt_str()?,
                auth: reader.buf()?,
            },
            OpCode::Sasl => Request::Sasl { token: reader.buf()? },
            OpCode::SetWatches => Request::SetWatches(decode_set_watches(reader, false)?),
            OpCode::SetWatches2 => Request::SetWatches2(decode_set_watches(reader, true)?),
            OpCode::GetEphemerals => Request::GetEphemerals { prefix: reader.opt_str()? },
            OpCode::GetAllChildrenNumber => Request::GetAllChildrenNumber { path: reader.str()? },
            OpCode::AddWatch => Request::AddWatch { path: reader.str()?, mode: reader.i32()? },
            OpCode::WhoAmI => Request::WhoAmI,
            OpCode::CreateSession => Request::CreateSession { timeout_ms: reader.i32()? },
            OpCode::CloseSession => Request::CloseSession,
            OpCode::Error => return Err(DecodeError::BadValue(-1, "an operation code")),
        })
    }
}

fn is_multi_write(op: OpCode) -> bool {
    use OpCode::*;
    matches!(op, Create | Create2 | CreateContainer | CreateTtl | Delete | SetData | Check)
}

fn is_multi_read(op: OpCode) -> bool {
    matches!(op, OpCode::GetData | OpCode::GetChildren)
}

fn decode_multi<'a>(
    reader: &mut Reader<'a>,
    allowed: fn(OpCode) -> bool,
) -> Result<Vec<Request<'a>>, DecodeError> {
    let mut operations = Vec::new();
    let mut without_path = false;
    loop {
        let header = MultiHeader::decode(reader)?;
        if header.done {
            return if without_path { Err(DecodeError::NullString) } else { Ok(operations) };
        }
        match OpCode::from_code(header.kind) {
            Some(op) if allowed(op) => {
                let operation = match Request::decode_from(op, reader) {
                    Err(DecodeError::NullString) => {
                        without_path = true;
                        continue;
                    }
                    other => other?,
                };
                if let Request::Create(create) = &operation {
                    check_create_in_multi(create)?;
                }
                operations.push(operation);
            }
            _ => return Err(DecodeError::BadValue(header.kind, "an operation in a multi")),
        }
    }
}

/// Checks the flags and the ACL of a create inside a multi. Apache checks them while it decodes the
/// multi, so one invalid create rejects the whole multi. The order of the checks is Apache's,
/// because it determines whether a zxid is allocated.
fn check_create_in_multi(create: &Create<'_>) -> Result<(), DecodeError> {
    if create.op == OpCode::CreateTtl {
        return Ok(());
    }
    let bad_flags = DecodeError::BadValue(create.flags, "the flags of a create in a multi");
    let mode = CreateMode::from_flags(create.flags).ok_or(bad_flags)?;
    if create.acl.is_none() {
        return Err(DecodeError::NullVector);
    }
    if mode.is_ttl() { Err(bad_flags) } else { Ok(()) }
}

fn decode_set_watches<'a>(
    reader: &mut Reader<'a>,
    with_persistent: bool,
) -> Result<SetWatches<'a>, DecodeError> {
    let relative_zxid = Zxid(reader.i64()?);
    let mut paths = || reader.str_vec()?.ok_or(DecodeError::NullVector);
    Ok(SetWatches {
        relative_zxid,
        data: paths()?,
        exist: paths()?,
        child: paths()?,
        persistent: if with_persistent { Some(paths()?) } else { None },
        persistent_recursive: if with_persistent { Some(paths()?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl;

    fn create_body(flags: i32) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_str("/m");
        body.put_buf(Some(b"data"));
        acl::encode_list(&acl::open(), &mut body);
        body.put_i32(flags);
        body
    }

    #[test]
    fn a_create_is_read_in_place() {
        let body = create_body(1);
        let Ok(Request::Create(create)) = Request::decode(OpCode::Create, Reader::new(&body))
        else {
            panic!("a create");
        };
        assert!(matches!(create.path, Cow::Borrowed("/m")));
        assert_eq!((create.data, create.flags), (Some(&b"data"[..]), 1));
        assert_eq!(create.acl.unwrap().raw(), acl::OPEN_ENCODED);
    }

    #[test]
    fn every_truncation_is_refused_and_trailing_bytes_are_ignored() {
        let mut body = create_body(0);
        for cut in 0..body.len() {
            assert!(Request::decode(OpCode::Create, Reader::new(&body[..cut])).is_err(), "{cut}");
        }
        body.push(9);
        assert!(Request::decode(OpCode::Create, Reader::new(&body)).is_ok());
    }

    #[test]
    fn a_watch_in_line_is_one_byte_that_java_takes_for_true() {
        for (byte, watch) in [(0, DataWatch::None), (1, DataWatch::OneShot), (2, DataWatch::InLine)]
        {
            let mut encoded = Vec::new();
            watch.encode(&mut encoded);
            assert_eq!((encoded, DataWatch::from_byte(byte)), (vec![byte], watch));
        }
        assert_eq!(DataWatch::from_byte(255), DataWatch::OneShot);
    }

    #[test]
    fn a_multi_takes_writes_only_and_a_multi_read_reads_only() {
        let mut body = Vec::new();
        MultiHeader { kind: OpCode::Create.code(), done: false, err: -1 }.encode(&mut body);
        body.extend_from_slice(&create_body(0));
        MultiHeader::END.encode(&mut body);
        let writes = Request::decode(OpCode::Multi, Reader::new(&body));
        assert!(matches!(writes, Ok(Request::Multi(ops)) if ops.len() == 1));
        assert!(Request::decode(OpCode::MultiRead, Reader::new(&body)).is_err());
    }

    #[test]
    fn a_null_path_is_a_malformed_request() {
        let mut body = Vec::new();
        body.put_i32(-1);
        body.put_bool(false);
        let request = Request::decode(OpCode::GetData, Reader::new(&body));
        assert!(matches!(request, Err(DecodeError::NullString)));
    }
}
