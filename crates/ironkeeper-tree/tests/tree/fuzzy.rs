//! Snapshots as Apache ZooKeeper takes them: node by node during transactions, so that they mix
//! several moments. Replaying the log from the zxid of their beginning must produce the true tree.

use std::collections::BTreeMap;

use ironkeeper_proto::snapshot_record::{OPEN_ACL_ID, SnapshotNode};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_proto::{OpCode, SessionId, Zxid};
use ironkeeper_tree::{Loader, TreeConfig};
use proptest::prelude::*;

use crate::model::{Model, is_in};
use crate::random::{Command, command};
use crate::world::{World, acl_vec, encoded};

/// Converts a command into one that a leader could propose in this state; `None` if the leader
/// would reject it.
fn decided(model: &Model, command: &Command) -> Option<Command> {
    let command = command.clone();
    match command {
        Command::Create { path, data, acl, kind, session, .. } => {
            let parent = model.nodes.get(ironkeeper_proto::path::parent(&path)?)?;
            let is_ephemeral = (1..4).contains(&parent.stat.ephemeral_owner);
            if model.nodes.contains_key(&path) || is_ephemeral || is_in(&path, "/zookeeper") {
                return None;
            }
            let cversion = parent.stat.cversion + 1;
            Some(Command::Create { path, data, acl, kind, session, cversion })
        }
        Command::Delete { path } => {
            let below = model.nodes.keys().filter(|other| is_in(other, &path)).count();
            (below == 1).then_some(Command::Delete { path })
        }
        Command::SetData { path, data, .. } => {
            let version = model.nodes.get(&path)?.stat.version + 1;
            Some(Command::SetData { path, data, version })
        }
        Command::SetAcl { path, acl, .. } => {
            let version = model.nodes.get(&path)?.stat.aversion + 1;
            Some(Command::SetAcl { path, acl, version })
        }
        Command::CloseSession { session, .. } => {
            Some(Command::CloseSession { session, listed: model.ephemerals(session) })
        }
        Command::Multi(parts) => {
            let mut ahead = model.clone();
            let mut sound = Vec::new();
            for part in &parts {
                if let Some(part) = decided(&ahead, part) {
                    ahead.apply(ahead.zxid + 1, &part);
                    sound.push(part);
                }
            }
            Some(Command::Multi(sound))
        }
        other => Some(other),
    }
}

/// Apache's walk: first the zxid, then the table of ACLs, then the nodes, each with its children at
/// that moment.
struct Walk {
    zxid: i64,
    acls: BTreeMap<Vec<u8>, i64>,
    /// Paths that are not visited yet.
    stack: Vec<String>,
    loader: Loader,
}

impl Walk {
    fn begin(model: &Model) -> Walk {
        let mut acls = BTreeMap::from([(encoded(&ironkeeper_proto::acl::open()), OPEN_ACL_ID)]);
        let mut loader = Loader::new(TreeConfig { ttl_enabled: true, ..TreeConfig::default() });
        for node in model.nodes.values() {
            let id = acls.len() as i64;
            acls.entry(node.acl.clone()).or_insert_with(|| {
                loader.add_acl(id, acl_vec(&node.acl));
                id
            });
        }
        Walk { zxid: model.zxid, acls, stack: vec!["/".to_owned()], loader }
    }

    /// Visits one node.
    fn step(&mut self, model: &Model) {
        let Some(path) = self.stack.pop() else { return };
        let Some(node) = model.nodes.get(&path) else { return };
        let next = self.acls.len() as i64;
        let acl = *self.acls.entry(node.acl.clone()).or_insert(next);
        let written = if path == "/" { "" } else { &path };
        let data = node.data.as_deref();
        let record = SnapshotNode { path: written.into(), data, acl, stat: node.stat };
        self.loader.add_node(&record).unwrap();
        let is_child = |other: &&String| {
            *other != "/" && ironkeeper_proto::path::parent(other) == Some(path.as_str())
        };
        self.stack.extend(model.nodes.keys().filter(is_child).cloned());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// ZOOKEEPER-3127, 3144, 3145, 3249.
    #[test]
    fn replay_over_a_mixture_of_moments_gives_the_true_tree(
        before in prop::collection::vec(command(), 0..60),
        during in prop::collection::vec((command(), 0..4u8), 0..80),
    ) {
        let (mut world, mut model) = (World::new(), Model::new());
        for command in before.iter() {
            if let Some(command) = decided(&model, command) {
                world.run(&mut model, &command);
            }
        }
        let mut walk = Walk::begin(&model);
        let mut log: Vec<(i64, i64, OpCode, Vec<u8>)> = Vec::new();
        for (command, visits) in &during {
            if let Some(command) = decided(&model, command) {
                world.run(&mut model, &command);
                let (op, body) = command.encode();
                log.push((world.zxid, command.session(), op, body));
            }
            (0..*visits).for_each(|_| walk.step(&model));
        }
        while !walk.stack.is_empty() {
            walk.step(&model);
        }
        let mut replayed = World::over(walk.loader.finish(Zxid(walk.zxid)).unwrap());
        for (zxid, session, op, body) in &log {
            replayed.session = SessionId(*session);
            replayed.apply_at(*zxid, *op, body);
        }
        prop_assert_eq!(replayed.tree.nodes_without_acl(), 0);
        model.check(&replayed.tree);
        model.check(&world.tree);
    }
}

/// The hardest case as a fixed sequence: the snapshot has a later node of the same path, with
/// children.
#[test]
fn a_later_incarnation_is_taken_down_and_built_up_again() {
    let (mut world, mut model) = (World::new(), Model::new());
    let create = |path: &str| Command::Create {
        path: path.to_owned(),
        data: None,
        acl: 3,
        kind: CreateKind::Persistent,
        session: 1,
        cversion: 0,
    };
    let run = |world: &mut World, model: &mut Model, command: Command| {
        let command = decided(model, &command).expect("a sound command");
        world.run(model, &command);
        (world.zxid, command.encode())
    };
    run(&mut world, &mut model, create("/a"));
    let mut walk = Walk::begin(&model);
    let mut log = Vec::new();
    log.push(run(&mut world, &mut model, Command::Delete { path: "/a".to_owned() }));
    for path in ["/a", "/a/b", "/a/b/c"] {
        log.push(run(&mut world, &mut model, create(path)));
    }
    while !walk.stack.is_empty() {
        walk.step(&model);
    }
    let mut replayed = World::over(walk.loader.finish(Zxid(walk.zxid)).unwrap());
    for (zxid, (op, body)) in &log {
        replayed.apply_at(*zxid, *op, body);
    }
    model.check(&replayed.tree);
}
