//! Snapshots contain exactly the tree at their beginning, whatever changes during the walk.

use std::collections::BTreeMap;

use ironkeeper_proto::acl::AclVec;
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::snapshot_record::{OPEN_ACL_ID, SnapshotNode};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_tree::{Loader, Slice, SnapshotWalk, TreeConfig};
use proptest::prelude::*;

use crate::model::{Model, ModelNode};
use crate::random::{Command, command};
use crate::world::{World, encoded};

/// A running walk and its expected result.
struct Walking {
    walk: SnapshotWalk,
    bytes: Vec<u8>,
    expected: Model,
}

impl Walking {
    fn begin(world: &mut World, model: &Model) -> Walking {
        let walk = world.tree.begin_snapshot();
        let mut bytes = Vec::new();
        walk.encode_head(&mut bytes);
        Walking { walk, bytes, expected: model.clone() }
    }

    fn slice(&mut self, world: &World, node_max: usize, byte_max: usize) -> Slice {
        world.tree.snapshot_slice(&mut self.walk, &mut self.bytes, node_max, byte_max)
    }

    /// Walks to the end, compares the result, and ends the walk.
    fn finish(mut self, world: &mut World, node_max: usize) {
        while self.slice(world, node_max, usize::MAX) == Slice::More {}
        let zxid = self.walk.zxid();
        assert_eq!(zxid.0, self.expected.zxid);
        assert_eq!(self.walk.digest(), self.expected.digest());
        let (nodes, loader) = decode(&self.bytes);
        assert_eq!(nodes.len(), self.walk.node_count());
        assert_eq!(nodes.into_iter().collect::<BTreeMap<_, _>>(), self.expected.nodes);
        let loaded = loader.finish(zxid).unwrap();
        assert_eq!(loaded.digest(), self.walk.digest());
        assert_eq!(loaded.nodes_without_acl(), 0);
        world.tree.end_snapshot(self.walk);
    }
}

/// Returns the nodes in their order, and a loader that received them: it rejects children that
/// precede their parents.
fn decode(bytes: &[u8]) -> (Vec<(String, ModelNode)>, Loader) {
    let mut loader =
        Loader::new(TreeConfig { ttl_enabled: true, hash_seed: 9, ..TreeConfig::default() });
    let mut reader = Reader::new(bytes);
    let mut acls = BTreeMap::new();
    for _ in 0..reader.count(12).unwrap().unwrap() {
        let id = reader.i64().unwrap();
        let list = AclVec::decode(&mut reader).unwrap().unwrap();
        assert!(id > 0 && acls.insert(id, list).is_none());
        loader.add_acl(id, list);
    }
    assert!(acls.insert(OPEN_ACL_ID, AclVec::OPEN).is_none());
    let mut nodes = Vec::new();
    while !reader.is_empty() {
        let path = reader.str().unwrap();
        let node = SnapshotNode::decode_body(path, &mut reader).unwrap();
        loader.add_node(&node).unwrap();
        let path = if node.path.is_empty() { "/".to_owned() } else { node.path.to_string() };
        let acl = encoded(&acls[&node.acl].to_vec());
        nodes.push((path, ModelNode { data: node.data.map(<[u8]>::to_vec), acl, stat: node.stat }));
    }
    (nodes, loader)
}

#[derive(Clone, Debug)]
enum Step {
    Run(Command),
    Begin,
    Slice { walk: usize, node_max: usize, byte_max: usize },
    Finish { walk: usize },
    Abandon { walk: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => command().prop_map(Step::Run),
        2 => Just(Step::Begin),
        10 => (0..3usize, 0..4usize, prop_oneof![Just(usize::MAX), 0..300usize])
            .prop_map(|(walk, node_max, byte_max)| Step::Slice { walk, node_max, byte_max }),
        1 => (0..3usize).prop_map(|walk| Step::Finish { walk }),
        1 => (0..3usize).prop_map(|walk| Step::Abandon { walk }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_snapshot_is_the_tree_at_its_beginning(
        before in prop::collection::vec(command(), 0..60),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (mut world, mut model) = (World::new(), Model::new());
        for command in &before {
            world.run(&mut model, command);
        }
        let mut walks = vec![Walking::begin(&mut world, &model)];
        for step in &steps {
            match step {
                Step::Run(command) => world.run(&mut model, command),
                Step::Begin => walks.push(Walking::begin(&mut world, &model)),
                Step::Slice { walk, node_max, byte_max } => {
                    if let Some(walking) = walks.get_mut(*walk) {
                        walking.slice(&world, *node_max, *byte_max);
                    }
                }
                Step::Finish { walk } if *walk < walks.len() => {
                    walks.swap_remove(*walk).finish(&mut world, 2);
                }
                Step::Abandon { walk } if *walk < walks.len() => drop(walks.swap_remove(*walk)),
                Step::Finish { .. } | Step::Abandon { .. } => {}
            }
        }
        for walking in walks {
            walking.finish(&mut world, 1);
        }
        model.check(&world.tree);
    }
}

fn create(path: &str) -> Command {
    Command::Create {
        path: path.to_owned(),
        data: Some(path.as_bytes().to_vec()),
        acl: 0,
        kind: CreateKind::Persistent,
        session: 1,
        cversion: -1,
    }
}

fn delete(path: &str) -> Command {
    Command::Delete { path: path.to_owned() }
}

/// A child in a lower slot than its parent; the parent is deleted before the child is emitted.
#[test]
fn paths_lead_through_deleted_and_reused_slots() {
    let (mut world, mut model) = (World::new(), Model::new());
    for path in ["/low", "/low/x", "/a"] {
        world.run(&mut model, &create(path));
    }
    for path in ["/low/x", "/low"] {
        world.run(&mut model, &delete(path));
    }
    // Freed slots are reused last first: /a/b and its child have lower slots than /a.
    for path in ["/a/b", "/a/b/c"] {
        world.run(&mut model, &create(path));
    }
    let mut walking = Walking::begin(&mut world, &model);
    for _ in 0..6 {
        walking.slice(&world, 1, usize::MAX);
    }
    for command in [delete("/a"), create("/z"), create("/y"), create("/y/w")] {
        world.run(&mut model, &command);
    }
    walking.finish(&mut world, 1);
    model.check(&world.tree);
}

#[test]
fn slices_stop_at_their_bounds_and_go_on() {
    let (mut world, mut model) = (World::new(), Model::new());
    for n in 0..1000 {
        world.run(&mut model, &create(&format!("/n{n}")));
    }
    let mut walking = Walking::begin(&mut world, &model);
    let head = walking.bytes.len();
    assert_eq!(walking.slice(&world, 10, usize::MAX), Slice::More);
    let ten = walking.bytes.len() - head;
    assert!((10 * 76..10 * 110).contains(&ten), "{ten}");
    let before = walking.bytes.len();
    assert_eq!(walking.slice(&world, usize::MAX, 1), Slice::More);
    assert!(walking.bytes.len() - before < 110, "one node");
    assert_eq!(walking.slice(&world, usize::MAX, usize::MAX), Slice::Done);
    assert_eq!(walking.slice(&world, 1, 1), Slice::Done, "nothing more to come");
    walking.finish(&mut world, 1);
}

#[test]
fn a_deep_chain_of_ancestors_is_cut_into_slices_too() {
    let (mut world, mut model) = (World::new(), Model::new());
    let mut paths = vec![String::new()];
    for _ in 0..50 {
        paths.push(format!("{}/d", paths.last().unwrap()));
    }
    // Slots freed from the top down are reused from the bottom up.
    for n in 0..50 {
        world.run(&mut model, &create(&format!("/n{n}")));
    }
    for n in 0..50 {
        world.run(&mut model, &delete(&format!("/n{n}")));
    }
    for path in &paths[1..] {
        world.run(&mut model, &create(path));
    }
    let mut walking = Walking::begin(&mut world, &model);
    let mut largest = 0;
    loop {
        let before = walking.bytes.len();
        let slice = walking.slice(&world, 3, usize::MAX);
        largest = largest.max(walking.bytes.len() - before);
        if slice == Slice::Done {
            break;
        }
    }
    assert!(largest < 3 * (76 + 2 * 100 + 10), "{largest}");
    walking.finish(&mut world, 3);
}

#[test]
fn an_abandoned_walk_stops_costing() {
    let (mut world, mut model) = (World::new(), Model::new());
    world.run(&mut model, &create("/n"));
    drop(world.tree.begin_snapshot());
    world.run(&mut model, &delete("/n"));
    let walking = Walking::begin(&mut world, &model);
    walking.finish(&mut world, 10);
}
