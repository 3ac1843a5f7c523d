//! Requests: the operation and the encoded body.

use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::{Acl, CreateMode, OpCode, Put, acl};

#[derive(Debug, Clone)]
pub struct Op {
    pub code: OpCode,
    pub body: Vec<u8>,
}

impl Op {
    pub fn new(code: OpCode, fill: impl FnOnce(&mut Vec<u8>)) -> Op {
        let mut body = Vec::new();
        fill(&mut body);
        Op { code, body }
    }

    /// Creates a request whose body is one path.
    pub fn on_path(code: OpCode, path: &str) -> Op {
        Op::new(code, |body| body.put_str(path))
    }

    /// Creates a request whose body is a path and a number: a version or a kind of watch.
    pub fn numbered(code: OpCode, path: &str, number: i32) -> Op {
        Op::new(code, |body| {
            body.put_str(path);
            body.put_i32(number);
        })
    }

    /// Creates a read, optionally with a watch.
    pub fn read(code: OpCode, path: &str, watch: bool) -> Op {
        Op::new(code, |body| {
            body.put_str(path);
            body.put_bool(watch);
        })
    }

    pub fn get_data(path: &str) -> Op {
        Op::read(OpCode::GetData, path, false)
    }

    pub fn create(path: &str, data: &[u8]) -> Op {
        Op::create_as(OpCode::Create, path, data, CreateMode::Persistent, &acl::open())
    }

    pub fn ephemeral(path: &str) -> Op {
        Op::create_as(OpCode::Create, path, b"", CreateMode::Ephemeral, &acl::open())
    }

    /// Creates a create request of any kind; only [`OpCode::CreateTtl`] gets a TTL, of one
    /// millisecond.
    pub fn create_as(code: OpCode, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl]) -> Op {
        Op::new(code, |body| {
            body.put_str(path);
            body.put_buf(Some(data));
            acl::encode_list(acl, body);
            body.put_i32(mode.flags());
            if code == OpCode::CreateTtl {
                body.put_i64(1);
            }
        })
    }

    pub fn delete(path: &str) -> Op {
        Op::numbered(OpCode::Delete, path, -1)
    }

    pub fn set_data(path: &str, data: &[u8]) -> Op {
        Op::new(OpCode::SetData, |body| {
            body.put_str(path);
            body.put_buf(Some(data));
            body.put_i32(-1);
        })
    }

    pub fn set_acl(path: &str, acl: &[Acl]) -> Op {
        Op::new(OpCode::SetAcl, |body| {
            body.put_str(path);
            acl::encode_list(acl, body);
            body.put_i32(-1);
        })
    }

    /// Creates a multi or a multiRead.
    pub fn many(code: OpCode, parts: &[Op]) -> Op {
        Op::new(code, |body| {
            for part in parts {
                MultiHeader { kind: part.code.code(), done: false, err: -1 }.encode(body);
                body.extend_from_slice(&part.body);
            }
            MultiHeader::END.encode(body);
        })
    }

    /// Creates a request that sets watches on all paths, of each kind that the operation supports.
    pub fn set_watches(code: OpCode, zxid: i64, paths: &[String]) -> Op {
        let kinds = if code == OpCode::SetWatches2 { 5 } else { 3 };
        Op::new(code, |body| {
            body.put_i64(zxid);
            for _ in 0..kinds {
                body.put_len(paths.len());
                paths.iter().for_each(|path| body.put_str(path));
            }
        })
    }

    pub fn watch_below(path: &str) -> Op {
        Op::numbered(OpCode::AddWatch, path, 1)
    }

    pub fn auth(identity: &str) -> Op {
        Op::new(OpCode::Auth, |body| {
            body.put_i32(0);
            body.put_str("digest");
            body.put_buf(Some(identity.as_bytes()));
        })
    }

    pub fn bare(code: OpCode) -> Op {
        Op::new(code, |_| {})
    }

    /// Returns the request as a frame, without the length in front of it.
    pub fn with_xid(&self, xid: i32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.body.len());
        bytes.put_i32(xid);
        bytes.put_i32(self.code.code());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}
