//! Preparation of writes: from a request to a transaction with its result.
//!
//! The order of the checks decides which error a client sees, so it is exactly that of Apache
//! ZooKeeper. A rejected request is a transaction too (an error), so that every write gets its
//! reply in the order of transactions on every server.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironkeeper_proto::request::Create;
use ironkeeper_proto::stat::{CONTAINER_OWNER, OwnerKind, StatPersisted, TTL_MS_MAX, ttl_owner};
use ironkeeper_proto::txn::{CreateKind, TxnDigest, encode};
use ironkeeper_proto::{
    AclVec, CreateMode, ErrorCode, OpCode, Perms, Put, Request, SessionId, Zxid, acl, path,
};
use ironkeeper_tree::{AclList, Tree, digest};

use crate::auth::{self, Identity};
use crate::config::EngineConfig;
use crate::io::{QuotaResource, Warning};
use crate::overlay::{Facts, Overlay};
use crate::quota_warnings::QuotaWarnings;
use crate::stats::ServerStats;

/// Paths that are never deleted.
const FIXED_PATHS: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// The length of the type, length and code of a rejected part of a multi.
const FAILED_PART_LEN: usize = 12;

/// The context in which one request is prepared.
pub(crate) struct Prepare<'a> {
    pub config: &'a EngineConfig,
    pub stats: &'a ServerStats,
    pub warnings: &'a mut QuotaWarnings,
    pub tree: &'a Tree,
    pub overlay: &'a mut Overlay,
    pub open_acl: &'a Arc<AclList>,
    pub session: SessionId,
    /// Whether the session may have ephemeral nodes.
    pub ephemerals: Result<(), ErrorCode>,
    pub identity: &'a Identity,
    pub zxid: Zxid,
    pub time: i64,
    /// The maximum length of the transaction, including the head before its record. A leader must
    /// not log a transaction that its learners would not read.
    pub bytes_max: usize,
}

impl Prepare<'_> {
    /// Prepares a request and appends the record of its transaction. Returns the type of the
    /// transaction.
    pub fn request(
        &mut self,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, ErrorCode> {
        match request {
            Request::Create(create) => self.create(create, false, out),
            Request::Delete { path, version } => self.delete(path, *version, out),
            Request::DeleteContainer { path } => self.delete_container(path, out),
            Request::SetData { path, data, version } => self.set_data(path, *data, *version, out),
            Request::SetAcl { path, acl, version } => self.set_acl(path, *acl, *version, out),
            Request::Check { path, version } => self.check(path, *version, out),
            Request::Multi(requests) => self.multi(requests, out),
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    fn create(
        &mut self,
        create: &Create<'_>,
        in_multi: bool,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, ErrorCode> {
        let mode = CreateMode::from_flags(create.flags).ok_or(ErrorCode::BadArguments)?;
        let (op, kind) = self.create_kind(create, mode, in_multi)?;
        if kind == CreateKind::Ephemeral {
            self.ephemerals?;
        }
        let path = &*create.path;
        let slash = path.rfind('/').ok_or(ErrorCode::BadArguments)?;
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let parent_path = if slash == 0 { "/" } else { &path[..slash] };
        let acl = self.normalized(create.acl)?;
        // The parent is looked up only once.
        let above = self.tree.find(parent_path);
        let mut parent = self.overlay.find_at(parent_path, || above).ok_or(ErrorCode::NoNode)?;
        self.require(&parent, Perms::CREATE)?;
        let full_path;
        let path = if mode.is_sequential() {
            full_path = format!("{path}{:010}", parent.stat.cversion);
            &*full_path
        } else {
            path
        };
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let there = || above?.child(path::name(path));
        if path == "/" || self.overlay.find_at(path, there).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if self.owner_kind(&parent) == OwnerKind::Ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let data_len = create.data.map_or(0, <[u8]>::len);
        self.check_quota(path, 1, data_len as i64)?;

        // The counter stays at its largest value: the wrapped value is not larger.
        let parent_cversion = parent.stat.cversion.wrapping_add(1);
        encode::create(op, path, create.data, acl.as_vec(), kind, parent_cversion, out);
        self.require_room(out)?;
        let parent_before = parent.digest();
        parent.children += 1;
        if parent_cversion > parent.stat.cversion {
            parent.stat.cversion = parent_cversion;
            parent.stat.pzxid = self.zxid;
        }
        self.overlay.put(parent_path, self.zxid, parent_before, Some(parent));
        let stat = StatPersisted {
            czxid: self.zxid,
            mzxid: self.zxid,
            ctime: self.time,
            mtime: self.time,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: match kind {
                CreateKind::Persistent => 0,
                CreateKind::Ephemeral => self.session.0,
                CreateKind::Container => CONTAINER_OWNER,
                CreateKind::Ttl { ttl_ms } => ttl_owner(ttl_ms),
            },
            pzxid: self.zxid,
        };
        let prefix_crc = digest::prefix_crc(path, create.data);
        let facts = Facts { stat, children: 0, acl, prefix_crc, data_len };
        self.overlay.put(path, self.zxid, 0, Some(facts));
        Ok(op)
    }

    /// Returns the kind of node that the operation code and the flags request together. Apache
    /// ZooKeeper accepts every combination (and then computes a digest for another kind of node
    /// than it creates, or stops at an invalid TTL); here the two must agree. Inside a multi the
    /// flags decide.
    fn create_kind(
        &self,
        create: &Create<'_>,
        mode: CreateMode,
        in_multi: bool,
    ) -> Result<(OpCode, CreateKind), ErrorCode> {
        if mode.is_ttl() && !self.config.tree.ttl_enabled {
            return Err(ErrorCode::Unimplemented);
        }
        let kind = match mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => CreateKind::Persistent,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => CreateKind::Ephemeral,
            CreateMode::Container => CreateKind::Container,
            CreateMode::PersistentWithTtl | CreateMode::PersistentSequentialWithTtl => match create
                .ttl_ms
            {
                Some(ttl_ms) if (1..=TTL_MS_MAX).contains(&ttl_ms) => CreateKind::Ttl { ttl_ms },
                _ => return Err(ErrorCode::BadArguments),
            },
        };
        let op = match (create.op, kind) {
            (OpCode::CreateContainer, CreateKind::Container)
            | (OpCode::CreateTtl, CreateKind::Ttl { .. }) => create.op,
            (OpCode::Create | OpCode::Create2, CreateKind::Persistent | CreateKind::Ephemeral) => {
                create.op
            }
            (OpCode::Create | OpCode::Create2 | OpCode::CreateTtl, CreateKind::Container)
                if in_multi =>
            {
                OpCode::CreateContainer
            }
            // In a multi a TTL is ignored without a flag that requires one.
            (OpCode::CreateTtl, CreateKind::Persistent | CreateKind::Ephemeral) if in_multi => {
                OpCode::Create
            }
            _ => return Err(ErrorCode::BadArguments),
        };
        Ok((op, kind))
    }

    fn delete(&mut self, path: &str, version: i32, out: &mut Vec<u8>) -> Result<OpCode, ErrorCode> {
        let parent_path = deletable(path)?;
        let above = self.tree.find(parent_path);
        let parent = self.overlay.find_at(parent_path, || above).ok_or(ErrorCode::NoNode)?;
        self.require(&parent, Perms::DELETE)?;
        let name = path::name(path);
        // A path with a second slash before the name denotes no node.
        let there =
            || above?.child(name).filter(|_| parent_path != "/" || name.len() + 1 == path.len());
        let node = self.overlay.find_at(path, there).ok_or(ErrorCode::NoNode)?;
        check_version(version, node.stat.version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        encode::delete(path, out);
        self.require_room(out)?;
        self.remove(path, &node, parent_path, parent);
        Ok(OpCode::Delete)
    }

    /// Prepares a deletion by the reaper: without an ACL check; rejects ephemerals and nodes with
    /// children.
    fn delete_container(&mut self, path: &str, out: &mut Vec<u8>) -> Result<OpCode, ErrorCode> {
        let parent_path = deletable(path)?;
        let parent = self.overlay.find(self.tree, parent_path).ok_or(ErrorCode::NoNode)?;
        let node = self.overlay.find(self.tree, path).ok_or(ErrorCode::NoNode)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        if self.owner_kind(&node) == OwnerKind::Ephemeral {
            return Err(ErrorCode::BadVersion);
        }
        encode::delete(path, out);
        self.require_room(out)?;
        self.remove(path, &node, parent_path, parent);
        Ok(OpCode::DeleteContainer)
    }

    fn remove(&mut self, path: &str, node: &Facts, parent_path: &str, mut parent: Facts) {
        let parent_before = parent.digest();
        parent.children = parent.children.saturating_sub(1);
        parent.stat.pzxid = self.zxid;
        self.overlay.put(parent_path, self.zxid, parent_before, Some(parent));
        self.overlay.put(path, self.zxid, node.digest(), None);
    }

    fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let mut node = self.overlay.find(self.tree, path).ok_or(ErrorCode::NoNode)?;
        self.require(&node, Perms::WRITE)?;
        let data_len = data.map_or(0, <[u8]>::len);
        self.check_quota(path, 0, data_len as i64 - node.data_len as i64)?;
        check_version(version, node.stat.version)?;
        let new_version = node.stat.version.wrapping_add(1);
        encode::set_data(path, data, new_version, out);
        self.require_room(out)?;
        let before = node.digest();
        node.stat.version = new_version;
        node.stat.mzxid = self.zxid;
        node.stat.mtime = self.time;
        node.data_len = data_len;
        node.prefix_crc = digest::prefix_crc(path, data);
        self.overlay.put(path, self.zxid, before, Some(node));
        Ok(OpCode::SetData)
    }

    fn set_acl(
        &mut self,
        path: &str,
        acl: Option<AclVec<'_>>,
        version: i32,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let acl = self.normalized(acl)?;
        let mut node = self.overlay.find(self.tree, path).ok_or(ErrorCode::NoNode)?;
        self.require(&node, Perms::ADMIN)?;
        check_version(version, node.stat.aversion)?;
        let new_version = node.stat.aversion.wrapping_add(1);
        encode::set_acl(path, acl.as_vec(), new_version, out);
        self.require_room(out)?;
        let before = node.digest();
        node.stat.aversion = new_version;
        node.acl = acl;
        self.overlay.put(path, self.zxid, before, Some(node));
        Ok(OpCode::SetAcl)
    }

    fn check(&mut self, path: &str, version: i32, out: &mut Vec<u8>) -> Result<OpCode, ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let node = self.overlay.find(self.tree, path).ok_or(ErrorCode::NoNode)?;
        self.require(&node, Perms::READ)?;
        check_version(version, node.stat.version)?;
        encode::check(path, node.stat.version.wrapping_add(1), out);
        self.require_room(out)?;
        Ok(OpCode::Check)
    }

    /// Prepares all parts or none. A failed multi is a multi whose parts are errors from the
    /// failing one on.
    fn multi(&mut self, requests: &[Request<'_>], out: &mut Vec<u8>) -> Result<OpCode, ErrorCode> {
        self.overlay.begin();
        out.put_len(requests.len());
        let mut failed = None;
        let bytes_max = self.bytes_max;
        for (at, request) in requests.iter().enumerate() {
            // The parts after this one must still have room to be encoded as errors.
            self.bytes_max = bytes_max.saturating_sub((requests.len() - at) * FAILED_PART_LEN);
            let kind_at = out.len();
            out.put_i32(0);
            out.put_i32(0);
            let body_at = out.len();
            let result = match failed {
                Some(()) => Err(ErrorCode::RuntimeInconsistency),
                None => match request {
                    Request::Create(create) => self.create(create, true, out),
                    other => self.request(other, out),
                },
            };
            let op = result.unwrap_or_else(|error| {
                failed = Some(());
                out.truncate(body_at);
                encode::error(error.code(), out);
                OpCode::Error
            });
            let body_len = i32::try_from(out.len() - body_at).expect("bounded by the frame");
            out[kind_at..kind_at + 4].copy_from_slice(&op.code().to_be_bytes());
            out[kind_at + 4..body_at].copy_from_slice(&body_len.to_be_bytes());
        }
        self.bytes_max = bytes_max;
        match failed {
            Some(()) => {
                self.overlay.take_back();
                self.require_room(out)?;
            }
            None => self.overlay.keep(),
        }
        Ok(OpCode::Multi)
    }

    /// Rejects a record that has become too long, before the overlay contains it.
    fn require_room(&self, out: &[u8]) -> Result<(), ErrorCode> {
        match out.len() + TxnDigest::ENCODED_LEN <= self.bytes_max {
            true => Ok(()),
            false => Err(ErrorCode::MarshallingError),
        }
    }

    /// Prepares the end of a session: one transaction deletes all its ephemerals. If their paths
    /// would make it too long, it lists none of them, as in old releases: it still means all
    /// ephemerals of the session.
    pub fn close_session(&mut self, out: &mut Vec<u8>) -> OpCode {
        let paths = self.overlay.ephemerals(self.tree, self.session);
        // A parent is changed once for all of its children. The first part is its digest before the
        // change.
        let mut parents: BTreeMap<&str, (u64, Facts)> = BTreeMap::new();
        for path in &paths {
            let Some(parent_path) = path::parent(path) else { continue };
            // Only nodes of old releases are both ephemeral and parent.
            if let Some((before, after)) = parents.remove(path.as_str()) {
                self.overlay.put(path, self.zxid, before, Some(after));
            }
            let Some(node) = self.overlay.find(self.tree, path) else { continue };
            if !parents.contains_key(parent_path) {
                let Some(parent) = self.overlay.find(self.tree, parent_path) else { continue };
                parents.insert(parent_path, (parent.digest(), parent));
            }
            if let Some((_, after)) = parents.get_mut(parent_path) {
                after.children = after.children.saturating_sub(1);
                after.stat.pzxid = self.zxid;
            }
            self.overlay.put(path, self.zxid, node.digest(), None);
        }
        for (path, (before, after)) in parents {
            self.overlay.put(path, self.zxid, before, Some(after));
        }
        if self.config.close_session_lists_paths {
            let bare = out.len();
            encode::close_session(paths.len(), paths.iter().map(String::as_str), out);
            if self.require_room(out).is_err() {
                out.truncate(bare);
            }
        }
        OpCode::CloseSession
    }

    fn normalized(&self, list: Option<AclVec<'_>>) -> Result<Arc<AclList>, ErrorCode> {
        if list.is_some_and(|list| list.raw() == acl::OPEN_ENCODED) {
            return Ok(Arc::clone(self.open_acl));
        }
        let normal = auth::normalize(&self.config.auth, list, self.identity, self.bytes_max)?;
        Ok(Arc::new(AclList::of_entries(normal)))
    }

    fn require(&self, node: &Facts, wanted: Perms) -> Result<(), ErrorCode> {
        match auth::allowed(&self.config.auth, &node.acl, wanted, self.identity) {
            true => Ok(()),
            false => Err(ErrorCode::NoAuth),
        }
    }

    fn owner_kind(&self, node: &Facts) -> OwnerKind {
        let config = &self.config.tree;
        OwnerKind::of(node.stat.ephemeral_owner, config.ttl_enabled, config.emulate_353_ttl)
    }

    /// Checks quotas against committed usage, as Apache ZooKeeper does: writes in flight may exceed
    /// them together.
    fn check_quota(&mut self, path: &str, count: i64, bytes: i64) -> Result<(), ErrorCode> {
        if !self.config.enforce_quota || (count == 0 && bytes == 0) {
            return Ok(());
        }
        let Some(quota) = self.tree.quota_of(path) else { return Ok(()) };
        let (limits, usage) = (quota.limits, quota.usage);
        for (resource, change, used, soft, hard) in [
            (QuotaResource::Nodes, count, usage.count, limits.count, limits.count_hard),
            (QuotaResource::Bytes, bytes, usage.bytes, limits.bytes, limits.bytes_hard),
        ] {
            let is_hard = hard > -1;
            let limit = if is_hard { hard } else { soft };
            let after = used.saturating_add(change);
            // A change to less data that is still too much is rejected as well.
            if change == 0 || limit <= -1 || after <= limit {
                continue;
            }
            self.warnings.note(self.time, &quota.path, || Warning::QuotaExceeded {
                path: quota.path.clone(),
                resource,
                used: after,
                limit,
                is_hard,
            });
            if is_hard {
                self.stats.note_quota_refusal(&quota.path);
                return Err(ErrorCode::QuotaExceeded);
            }
        }
        Ok(())
    }
}

/// Returns the parent's path if the node may be deleted at all.
fn deletable(path: &str) -> Result<&str, ErrorCode> {
    if path.contains('\0') || FIXED_PATHS.contains(&path) {
        return Err(ErrorCode::BadArguments);
    }
    path::parent(path).ok_or(ErrorCode::BadArguments)
}

fn check_version(wanted: i32, current: i32) -> Result<(), ErrorCode> {
    match wanted == -1 || wanted == current {
        true => Ok(()),
        false => Err(ErrorCode::BadVersion),
    }
}
