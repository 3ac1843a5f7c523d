//! A visitor that records its calls, and helpers that write records.

use std::path::{Path, PathBuf};

use ironkeeper_proto::snapshot_record::{self, SnapshotDigest, SnapshotNode};
use ironkeeper_proto::stat::StatPersisted;
use ironkeeper_proto::txn::{self, FullTxn, TxnHeader};
use ironkeeper_proto::{AclVec, OpCode, Put, SessionId, Zxid};
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Dirs, RecoveryReport, Store, StoreError, StoreOptions, Visitor};

/// The records that a recovery delivered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recorder {
    pub snapshot: Option<Zxid>,
    pub sessions: Vec<(i64, i32)>,
    pub acls: Vec<(i64, usize)>,
    pub nodes: Vec<(String, Option<Vec<u8>>)>,
    pub digest: Option<SnapshotDigest>,
    pub txns: Vec<(Zxid, OpCode)>,
    pub bodies: Vec<Vec<u8>>,
}

impl Recorder {
    pub fn zxids(&self) -> Vec<i64> {
        self.txns.iter().map(|(zxid, _)| zxid.0).collect()
    }

    pub fn paths(&self) -> Vec<&str> {
        self.nodes.iter().map(|(path, _)| path.as_str()).collect()
    }
}

impl Visitor for Recorder {
    fn snapshot_start(&mut self, zxid: Zxid, _file: &Path) {
        *self = Recorder { snapshot: Some(zxid), ..Recorder::default() };
    }

    fn session(&mut self, id: SessionId, timeout_ms: i32) {
        self.sessions.push((id.0, timeout_ms));
    }

    fn acl(&mut self, id: i64, list: AclVec<'_>) {
        self.acls.push((id, list.len()));
    }

    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        self.nodes.push((node.path.to_string(), node.data.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn snapshot_end(&mut self, _: Zxid, digest: Option<SnapshotDigest>) -> Result<(), String> {
        self.digest = digest;
        Ok(())
    }

    fn txn(&mut self, txn: &FullTxn<'_>, raw: &[u8]) -> Result<(), String> {
        self.txns.push((txn.header.zxid, txn.header.op));
        self.bodies.push(raw.to_vec());
        Ok(())
    }
}

/// Returns the body of a `setData` of /n.
pub fn set_data(zxid: i64, data: &[u8]) -> Vec<u8> {
    let mut body = header(zxid, OpCode::SetData);
    txn::encode::set_data("/n", Some(data), 3, &mut body);
    body
}

/// Returns the body of a `setData` of /n that was proposed at this time.
pub fn set_data_at(zxid: i64, time_ms: i64) -> Vec<u8> {
    let mut body = header_at(zxid, OpCode::SetData, time_ms);
    txn::encode::set_data("/n", Some(b"data"), 3, &mut body);
    body
}

/// Returns the body of an error transaction.
pub fn refusal(zxid: i64) -> Vec<u8> {
    let mut body = header(zxid, OpCode::Error);
    txn::encode::error(-5, &mut body);
    body
}

fn header(zxid: i64, op: OpCode) -> Vec<u8> {
    header_at(zxid, op, 1_700_000_000_000)
}

fn header_at(zxid: i64, op: OpCode, time: i64) -> Vec<u8> {
    let mut body = Vec::new();
    TxnHeader { session: SessionId(0x1_0000), cxid: 7, zxid: Zxid(zxid), time, op }
        .encode(&mut body);
    body
}

pub fn dirs() -> Dirs {
    Dirs { snap_dir: PathBuf::from("/snaps"), log_dir: PathBuf::from("/logs") }
}

pub fn snap_path(name: &str) -> PathBuf {
    Path::new("/snaps/version-2").join(name)
}

pub fn log_path(name: &str) -> PathBuf {
    Path::new("/logs/version-2").join(name)
}

/// Returns options for small files, so that every byte of them can be tested.
pub fn small() -> StoreOptions {
    StoreOptions { prealloc_bytes: 8192, ..StoreOptions::default() }
}

pub fn open(disk: &SimDisk) -> Store<SimDisk> {
    Store::open(disk.clone(), dirs(), small()).expect("the directories can be made")
}

/// Opens the store as a server does at its start, and recovers.
pub fn recover(disk: &SimDisk) -> Result<(Recorder, RecoveryReport), StoreError> {
    recover_with(disk, small())
}

pub fn recover_with(
    disk: &SimDisk,
    options: StoreOptions,
) -> Result<(Recorder, RecoveryReport), StoreError> {
    let store = Store::open(disk.clone(), dirs(), options)?;
    let mut recorder = Recorder::default();
    let recovered = store.recover(&mut recorder)?;
    Ok((recorder, recovered))
}

/// Appends and commits `setData` transactions one by one in one file.
pub fn write_log<D: Disk>(store: &Store<D>, zxids: impl IntoIterator<Item = i64>) {
    let mut writer = store.log_writer();
    for zxid in zxids {
        writer.append(Zxid(zxid), &set_data(zxid, b"data")).expect("append");
        writer.commit().expect("commit");
    }
}

/// Writes a snapshot of a root and one node.
pub fn write_snapshot<D: Disk>(store: &Store<D>, zxid: i64) -> Result<PathBuf, StoreError> {
    let mut writer = store.snapshot_writer(Zxid(zxid))?;
    writer.write(&tree(b"value"))?;
    let digest = SnapshotDigest { zxid: Zxid(zxid), version: 2, digest: 0x1234_5678 };
    writer.finish_with(digest, Zxid(zxid))
}

/// Returns a snapshot's stream up to the end of the nodes.
pub fn tree(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot_record::encode_file_header(&mut bytes);
    bytes.put_i32(1);
    snapshot_record::encode_session(SessionId(0x1_0000), 30_000, &mut bytes);
    bytes.put_i32(1);
    snapshot_record::encode_acl(1, AclVec::OPEN, &mut bytes);
    for (path, data) in [("", &b""[..]), ("/n", data)] {
        let stat = StatPersisted::default();
        SnapshotNode { path: path.into(), data: Some(data), acl: 1, stat }.encode(&mut bytes);
    }
    bytes
}
