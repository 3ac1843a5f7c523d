//! The reference model: a map from paths to nodes.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_proto::stat::{CONTAINER_OWNER, StatPersisted, ttl_owner};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::{Tree, TreeConfig};

use crate::random::{Command, acl_list};
use crate::world::{encoded, time_of};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNode {
    pub data: Option<Vec<u8>>,
    /// Encoded with the count.
    pub acl: Vec<u8>,
    pub stat: StatPersisted,
}

#[derive(Clone, Debug)]
pub struct Model {
    /// The root is `/`.
    pub nodes: BTreeMap<String, ModelNode>,
    pub zxid: i64,
}

impl Model {
    pub fn new() -> Model {
        let tree = Tree::new(TreeConfig::default());
        let nodes = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].map(|path| {
            let node = tree.find(path).unwrap();
            let acl = encoded(node.acl().entries());
            let data = node.data().map(<[u8]>::to_vec);
            (path.to_owned(), ModelNode { data, acl, stat: node.persisted() })
        });
        Model { nodes: nodes.into(), zxid: 0 }
    }

    pub fn apply(&mut self, zxid: i64, command: &Command) {
        self.zxid = zxid;
        match command {
            Command::Create { path, data, acl, kind, session, cversion } => {
                let acl = encoded(&acl_list(*acl));
                self.create(zxid, path, data.as_deref(), acl, *kind, *session, *cversion);
            }
            Command::Delete { path } => self.delete(zxid, path),
            Command::SetData { path, data, version } => {
                let Some(node) = self.nodes.get_mut(path) else { return };
                let old = node.data.replace(data.clone());
                node.stat.version = *version;
                node.stat.mzxid = Zxid(zxid);
                node.stat.mtime = time_of(zxid);
                let grown = data.len() as i64 - old.map_or(0, |old| old.len() as i64);
                self.count(path, 0, grown);
            }
            Command::SetAcl { path, acl, version } => {
                let Some(node) = self.nodes.get_mut(path) else { return };
                node.acl = encoded(&acl_list(*acl));
                node.stat.aversion = *version;
            }
            Command::CloseSession { session, listed } => {
                for path in listed {
                    self.delete(zxid, path);
                }
                for path in self.ephemerals(*session) {
                    self.delete(zxid, &path);
                }
            }
            Command::Multi(parts) => parts.iter().for_each(|part| self.apply(zxid, part)),
            Command::FailedMulti(_) | Command::Error => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn create(
        &mut self,
        zxid: i64,
        path: &str,
        data: Option<&[u8]>,
        acl: Vec<u8>,
        kind: CreateKind,
        session: i64,
        cversion: i32,
    ) {
        let Some(parent) = self.nodes.get_mut(parent_of(path)) else { return };
        let stat = &mut parent.stat;
        let cversion = if cversion == -1 { stat.cversion + 1 } else { cversion };
        if cversion > stat.cversion {
            stat.cversion = cversion;
            stat.pzxid = Zxid(zxid);
        }
        if let Some(there) = self.nodes.get_mut(path) {
            there.acl = acl;
            return;
        }
        let stat = StatPersisted {
            czxid: Zxid(zxid),
            mzxid: Zxid(zxid),
            pzxid: Zxid(zxid),
            ctime: time_of(zxid),
            mtime: time_of(zxid),
            ephemeral_owner: match kind {
                CreateKind::Persistent => 0,
                CreateKind::Ephemeral => session,
                CreateKind::Container => CONTAINER_OWNER,
                CreateKind::Ttl { ttl_ms } => ttl_owner(ttl_ms),
            },
            ..StatPersisted::default()
        };
        let node = ModelNode { data: data.map(<[u8]>::to_vec), acl, stat };
        self.nodes.insert(path.to_owned(), node);
        if let Some(target) = quota_target(path, "zookeeper_stats") {
            let below: Vec<_> =
                self.nodes.iter().filter(|(path, _)| is_in(path, &target)).collect();
            let bytes: usize = below.iter().map(|(_, node)| data_len(node)).sum();
            let text = format!("count={},bytes={bytes}", below.len());
            self.nodes.get_mut(path).unwrap().data = Some(text.into_bytes());
        }
        self.count(path, 1, data.map_or(0, <[u8]>::len) as i64);
    }

    fn delete(&mut self, zxid: i64, path: &str) {
        if path == "/" {
            return;
        }
        let Some(parent) = self.nodes.get_mut(parent_of(path)) else { return };
        parent.stat.pzxid = parent.stat.pzxid.max(Zxid(zxid));
        if !self.nodes.contains_key(path) {
            return;
        }
        let below: Vec<String> =
            self.nodes.keys().filter(|child| is_in(child, path)).cloned().collect();
        for path in below {
            let node = self.nodes.remove(&path).unwrap();
            self.count(&path, -1, -(data_len(&node) as i64));
        }
    }

    /// Rewrites the statistics of the deepest quota over a path.
    fn count(&mut self, path: &str, count: i64, bytes: i64) {
        if is_in(path, "/zookeeper") {
            return;
        }
        let quotas = self.nodes.keys().filter_map(|path| quota_target(path, "zookeeper_limits"));
        let over = quotas.filter(|target| is_in(path, target)).max_by_key(String::len);
        let Some(target) = over else { return };
        let stats = format!("/zookeeper/quota{target}/zookeeper_stats");
        let Some(node) = self.nodes.get_mut(&stats) else { return };
        let text = String::from_utf8(node.data.clone().unwrap()).unwrap();
        let (old_count, old_bytes) = text.split_once(',').unwrap();
        let number = |text: &str| text.split_once('=').unwrap().1.parse::<i64>().unwrap();
        let text =
            format!("count={},bytes={}", number(old_count) + count, number(old_bytes) + bytes);
        node.data = Some(text.into_bytes());
    }

    pub fn ephemerals(&self, session: i64) -> Vec<String> {
        let owned = self.nodes.iter().filter(|(_, node)| node.stat.ephemeral_owner == session);
        owned.map(|(path, _)| path.clone()).collect()
    }

    /// Computes the digest from all nodes.
    pub fn digest(&self) -> u64 {
        let counted = self.nodes.iter().filter(|(path, _)| !path.starts_with("/zookeeper/"));
        counted.map(|(path, node)| u64::from(digest_of(path, node))).sum()
    }

    #[track_caller]
    pub fn check(&self, tree: &Tree) {
        let found: BTreeMap<String, ModelNode> = self
            .nodes
            .keys()
            .filter_map(|path| {
                let node = tree.find(path)?;
                assert_eq!(node.path(), *path);
                let acl = encoded(node.acl().entries());
                let data = node.data().map(<[u8]>::to_vec);
                Some((path.clone(), ModelNode { data, acl, stat: node.persisted() }))
            })
            .collect();
        assert_eq!(found, self.nodes);
        for path in self.nodes.keys() {
            let node = tree.find(path).unwrap();
            let is_child = |other: &&String| *other != "/" && parent_of(other) == path;
            let children: BTreeSet<String> =
                self.nodes.keys().filter(is_child).map(|path| name_of(path).to_owned()).collect();
            assert_eq!(node.children().map(str::to_owned).collect::<BTreeSet<_>>(), children);
            assert_eq!(node.child_count() as usize, children.len());
            let below = self.nodes.keys().filter(|other| is_in(other, path)).count() - 1;
            assert_eq!(node.descendant_count(), below);
        }
        assert_eq!(tree.node_count(), self.nodes.len() + 1);
        let bytes = |(path, node): (&String, &ModelNode)| path.chars().count() + data_len(node);
        assert_eq!(tree.data_bytes(), self.nodes.iter().map(bytes).sum::<usize>());
        assert_eq!(tree.digest(), self.digest());
        assert_eq!(tree.last_zxid(), Zxid(self.zxid));
        let owned = |wanted: fn(i64) -> bool| -> BTreeSet<String> {
            let nodes = self.nodes.iter();
            let owned = nodes.filter(|(_, node)| wanted(node.stat.ephemeral_owner));
            owned.map(|(path, _)| path.clone()).collect()
        };
        let sessions: BTreeSet<SessionId> = tree.ephemeral_sessions().collect();
        let ephemerals: BTreeSet<String> =
            sessions.iter().flat_map(|session| tree.ephemerals(*session)).collect();
        assert_eq!(ephemerals, owned(|owner| owner > 0));
        assert_eq!(tree.ephemeral_count(), ephemerals.len());
        let containers: BTreeSet<String> = tree.container_paths().map(|node| node.path()).collect();
        assert_eq!(containers, owned(|owner| owner == CONTAINER_OWNER));
        let ttls: BTreeSet<String> = tree.ttl_nodes().map(|node| node.path()).collect();
        assert_eq!(ttls, owned(|owner| owner < 0 && owner != CONTAINER_OWNER));
    }
}

fn digest_of(path: &str, node: &ModelNode) -> u32 {
    let mut bytes = if path == "/" { Vec::new() } else { path.as_bytes().to_vec() };
    bytes.extend(node.data.iter().flatten());
    let stat = &node.stat;
    for number in [stat.czxid.0, stat.mzxid.0, stat.pzxid.0, stat.ctime, stat.mtime] {
        bytes.extend(number.to_be_bytes());
    }
    for number in [stat.version, stat.cversion, stat.aversion] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(stat.ephemeral_owner.to_be_bytes());
    crc32fast::hash(&bytes)
}

fn data_len(node: &ModelNode) -> usize {
    node.data.as_ref().map_or(0, Vec::len)
}

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => &path[..at],
        None => panic!("{path} has no parent"),
    }
}

fn name_of(path: &str) -> &str {
    &path[path.rfind('/').unwrap() + 1..]
}

/// Returns whether a path equals or is below another.
pub fn is_in(path: &str, top: &str) -> bool {
    top == "/" || path == top || path.starts_with(&format!("{top}/"))
}

fn quota_target(path: &str, name: &str) -> Option<String> {
    let target = path.strip_prefix("/zookeeper/quota")?.strip_suffix(name)?.strip_suffix('/')?;
    (!target.is_empty()).then(|| target.to_owned())
}
