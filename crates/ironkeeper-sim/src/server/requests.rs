//! The requests of clients and their encoding.

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::{CreateMode, OpCode, Zxid, acl};

/// The parent of all ephemeral nodes.
pub const EPHEMERALS: &str = "/e";

/// One request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Creates a persistent node if it does not exist.
    Prepare(String),
    Set {
        register: usize,
        value: u64,
        /// -1 for any version.
        version: i32,
    },
    /// Sets several registers in one transaction.
    SetAll {
        registers: Vec<usize>,
        value: u64,
    },
    Get {
        register: usize,
        watch: bool,
        /// For a read after a sync: the newest version that a client had received when the request
        /// was sent. An older one must not be returned.
        floor: Option<i32>,
    },
    Sync {
        /// The newest zxid that a client had received when the request was sent.
        floor: Zxid,
    },
    CreateEphemeral(String),
    DeleteEphemeral(String),
    FindEphemeral(String),
    Reconfig {
        joining: Option<String>,
        leaving: Option<String>,
    },
    SetWatches {
        seen: Zxid,
        registers: Vec<usize>,
    },
    Ping,
    Close,
}

pub fn register_path(register: usize) -> String {
    format!("/r{register}")
}

/// Returns the register of a path.
pub fn register_of(path: &str) -> Option<usize> {
    path.strip_prefix("/r")?.parse().ok()
}

impl Request {
    pub fn op(&self) -> OpCode {
        match self {
            Request::Prepare(_) | Request::CreateEphemeral(_) => OpCode::Create,
            Request::Set { .. } => OpCode::SetData,
            Request::SetAll { .. } => OpCode::Multi,
            Request::Get { .. } => OpCode::GetData,
            Request::Sync { .. } => OpCode::Sync,
            Request::DeleteEphemeral(_) => OpCode::Delete,
            Request::FindEphemeral(_) => OpCode::Exists,
            Request::Reconfig { .. } => OpCode::Reconfig,
            Request::SetWatches { .. } => OpCode::SetWatches,
            Request::Ping => OpCode::Ping,
            Request::Close => OpCode::CloseSession,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Prepare(path) => put_create(path, CreateMode::Persistent, out),
            Request::CreateEphemeral(path) => put_create(path, CreateMode::Ephemeral, out),
            Request::Set { register, value, version } => put_set(*register, *value, *version, out),
            Request::SetAll { registers, value } => {
                for register in registers {
                    let kind = OpCode::SetData.code();
                    MultiHeader { kind, done: false, err: -1 }.encode(out);
                    put_set(*register, *value, -1, out);
                }
                MultiHeader::END.encode(out);
            }
            Request::Get { register, watch, .. } => {
                out.put_str(&register_path(*register));
                out.put_bool(*watch);
            }
            Request::Sync { .. } => out.put_str("/"),
            Request::DeleteEphemeral(path) => {
                out.put_str(path);
                out.put_i32(-1);
            }
            Request::FindEphemeral(path) => {
                out.put_str(path);
                out.put_bool(false);
            }
            Request::Reconfig { joining, leaving } => {
                out.put_opt_str(joining.as_deref());
                out.put_opt_str(leaving.as_deref());
                out.put_opt_str(None);
                out.put_i64(-1);
            }
            Request::SetWatches { seen, registers } => {
                out.put_i64(seen.0);
                out.put_len(registers.len());
                for register in registers {
                    out.put_str(&register_path(*register));
                }
                // No existence and child watches.
                out.put_len(0);
                out.put_len(0);
            }
            Request::Ping | Request::Close => {}
        }
    }
}

fn put_create(path: &str, mode: CreateMode, out: &mut Vec<u8>) {
    out.put_str(path);
    out.put_buf(Some(&super::history::FIRST_VALUE.to_be_bytes()));
    acl::encode_list(&acl::open(), out);
    out.put_i32(mode.flags());
}

fn put_set(register: usize, value: u64, version: i32, out: &mut Vec<u8>) {
    out.put_str(&register_path(register));
    out.put_buf(Some(&value.to_be_bytes()));
    out.put_i32(version);
}
