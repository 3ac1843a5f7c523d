//! A tree with a clock and a counter of zxids, driven by short commands.

use std::sync::Arc;

use ironkeeper_proto::acl::{self, Acl, AclVec};
use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::stat::Stat;
use ironkeeper_proto::txn::{CreateKind, encode};
use ironkeeper_proto::{OpCode, SessionId, Txn, TxnHeader, Zxid};
use ironkeeper_tree::{AclList, Applied, Changes, Node, Outcome, Tree, TreeConfig};

pub struct World {
    pub tree: Tree,
    pub zxid: i64,
    pub session: SessionId,
    /// Changes reported since the last `take_events`.
    pub events: Vec<String>,
}

/// Returns the time of a transaction in these tests.
pub fn time_of(zxid: i64) -> i64 {
    zxid * 10
}

impl World {
    pub fn new() -> World {
        World::over(Tree::new(TreeConfig { ttl_enabled: true, ..TreeConfig::default() }))
    }

    pub fn over(tree: Tree) -> World {
        let zxid = tree.last_zxid().0;
        World { tree, zxid, session: SessionId(0x100), events: Vec::new() }
    }

    /// Applies a transaction after decoding it from its encoding.
    pub fn apply(&mut self, op: OpCode, body: &[u8]) -> Applied {
        self.zxid += 1;
        self.apply_at(self.zxid, op, body)
    }

    pub fn apply_at(&mut self, zxid: i64, op: OpCode, body: &[u8]) -> Applied {
        let session = self.session;
        let header = TxnHeader { session, cxid: 1, zxid: Zxid(zxid), time: time_of(zxid), op };
        let txn = Txn::decode(op, &mut Reader::new(body)).expect("a sound record");
        self.tree.apply(&header, &txn, &mut Recorder(&mut self.events))
    }

    pub fn create(&mut self, path: &str) -> Applied {
        self.create_with(path, Some(b""), CreateKind::Persistent)
    }

    /// Creates a node with the parent's next cversion, as a leader would.
    pub fn create_with(&mut self, path: &str, data: Option<&[u8]>, kind: CreateKind) -> Applied {
        let parent = ironkeeper_proto::path::parent(path).unwrap();
        let cversion = self.tree.find(parent).map_or(1, |node| node.persisted().cversion + 1);
        let (op, body) = create(path, data, &acl::open(), kind, cversion);
        self.apply(op, &body)
    }

    pub fn delete(&mut self, path: &str) -> Applied {
        self.apply(OpCode::Delete, &delete(path))
    }

    pub fn set_data(&mut self, path: &str, data: &[u8], version: i32) -> Applied {
        self.apply(OpCode::SetData, &set_data(path, Some(data), version))
    }

    pub fn set_acl(&mut self, path: &str, list: &[Acl], version: i32) -> Applied {
        self.apply(OpCode::SetAcl, &set_acl(path, list, version))
    }

    pub fn close_session(&mut self, session: i64, paths: Option<&[&str]>) -> Applied {
        self.session = SessionId(session);
        self.apply(OpCode::CloseSession, &close_session(paths))
    }

    pub fn multi(&mut self, parts: &[(OpCode, Vec<u8>)]) -> Applied {
        self.apply(OpCode::Multi, &multi(parts))
    }

    #[track_caller]
    pub fn node(&self, path: &str) -> Node<'_> {
        self.tree.find(path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    #[track_caller]
    pub fn stat(&self, path: &str) -> Stat {
        self.node(path).stat()
    }

    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

struct Recorder<'e>(&'e mut Vec<String>);

impl Changes for Recorder<'_> {
    fn created(&mut self, path: &str, acl: &Arc<AclList>, parent: &str, parent_acl: &Arc<AclList>) {
        self.0.push(format!("created {path}{} in {parent}{}", mark(acl), mark(parent_acl)));
    }

    fn deleted(
        &mut self,
        path: &str,
        acl: &Arc<AclList>,
        parent: &str,
        parent_acl: &Arc<AclList>,
        _: Option<Zxid>,
    ) {
        self.0.push(format!("deleted {path}{} in {parent}{}", mark(acl), mark(parent_acl)));
    }

    fn data_changed(&mut self, path: &str, acl: &Arc<AclList>) {
        self.0.push(format!("changed {path}{}", mark(acl)));
    }
}

/// Formats a list by the permission bits of its entries; empty for the open list.
fn mark(list: &AclList) -> String {
    if list.entries() == acl::open() {
        return String::new();
    }
    format!("{:?}", list.entries().iter().map(|entry| entry.perms.0).collect::<Vec<_>>())
}

pub fn create(
    path: &str,
    data: Option<&[u8]>,
    list: &[Acl],
    kind: CreateKind,
    parent_cversion: i32,
) -> (OpCode, Vec<u8>) {
    let op = match kind {
        CreateKind::Persistent => OpCode::Create2,
        CreateKind::Ephemeral => OpCode::Create,
        CreateKind::Container => OpCode::CreateContainer,
        CreateKind::Ttl { .. } => OpCode::CreateTtl,
    };
    let (list, mut body) = (encoded(list), Vec::new());
    encode::create(op, path, data, acl_vec(&list), kind, parent_cversion, &mut body);
    (op, body)
}

pub fn delete(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    encode::delete(path, &mut body);
    body
}

pub fn set_data(path: &str, data: Option<&[u8]>, version: i32) -> Vec<u8> {
    let mut body = Vec::new();
    encode::set_data(path, data, version, &mut body);
    body
}

pub fn set_acl(path: &str, list: &[Acl], version: i32) -> Vec<u8> {
    let (list, mut body) = (encoded(list), Vec::new());
    encode::set_acl(path, acl_vec(&list), version, &mut body);
    body
}

pub fn error(code: i32) -> Vec<u8> {
    let mut body = Vec::new();
    encode::error(code, &mut body);
    body
}

pub fn close_session(paths: Option<&[&str]>) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(paths) = paths {
        encode::close_session(paths.len(), paths.iter().copied(), &mut body);
    }
    body
}

pub fn multi(parts: &[(OpCode, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_len(parts.len());
    for (op, part) in parts {
        body.put_i32(op.code());
        body.put_buf(Some(part));
    }
    body
}

pub fn encoded(list: &[Acl]) -> Vec<u8> {
    let mut bytes = Vec::new();
    acl::encode_list(list, &mut bytes);
    bytes
}

pub fn acl_vec(encoded: &[u8]) -> AclVec<'_> {
    AclVec::decode(&mut Reader::new(encoded)).unwrap().unwrap()
}

#[track_caller]
pub fn assert_done(applied: &Applied) {
    assert_eq!(applied.outcome, Outcome::Done);
}
