//! Tests of loading a tree from a snapshot.

use ironkeeper_proto::acl::{self, Acl, Perms};
use ironkeeper_proto::snapshot_record::{OPEN_ACL_ID, SnapshotNode};
use ironkeeper_proto::stat::{StatPersisted, ttl_owner};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::{LoadError, Loader, Tree, TreeConfig};

use crate::world::{self, World};

fn node(path: &str) -> SnapshotNode<'_> {
    let stat = StatPersisted::default();
    SnapshotNode { path: path.into(), data: Some(b""), acl: OPEN_ACL_ID, stat }
}

fn load(nodes: &[SnapshotNode<'_>]) -> Result<Tree, LoadError> {
    let mut loader = Loader::new(TreeConfig::default());
    for node in nodes {
        loader.add_node(node)?;
    }
    loader.finish(Zxid(9))
}

const FRESH: [&str; 4] = ["", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

fn fresh() -> Vec<SnapshotNode<'static>> {
    FRESH.into_iter().map(node).collect()
}

#[test]
fn a_snapshot_becomes_the_tree_it_was_taken_of() {
    let mut nodes = fresh();
    let owned = StatPersisted { ephemeral_owner: 0x55, czxid: Zxid(4), ..StatPersisted::default() };
    nodes.push(SnapshotNode { data: None, stat: owned, ..node("/e") });
    nodes.push(SnapshotNode { data: Some(b"xyz"), ..node("/p") });
    nodes.push(node("/p/q"));
    let tree = load(&nodes).unwrap();
    assert_eq!((tree.last_zxid(), tree.node_count()), (Zxid(9), 8));
    assert_eq!(tree.data_bytes(), 44 + 2 + 2 + 3 + 4);
    assert_eq!(tree.ephemerals(SessionId(0x55)).collect::<Vec<_>>(), ["/e"]);
    assert_eq!(tree.find("/e").unwrap().data(), None);
    assert_eq!(tree.find("/p").unwrap().children().collect::<Vec<_>>(), ["q"]);
    assert_eq!(load(&fresh()).unwrap().digest(), Tree::new(TreeConfig::default()).digest());
}

#[test]
fn records_that_form_no_tree_are_refused_by_name() {
    let with = |paths: &[&'static str]| {
        let nodes: Vec<_> = fresh().into_iter().chain(paths.iter().copied().map(node)).collect();
        load(&nodes).unwrap_err().to_string()
    };
    assert_eq!(with(&["/a/b"]), r#"the parent of "/a/b" does not come before it in the snapshot"#);
    assert_eq!(with(&["/a", "/a"]), r#"the snapshot has "/a" twice"#);
    for bad in ["", "a", "/a/", "//a", "//"] {
        let text = with(&["/a", bad]);
        assert!(text.contains("impossible path") || text.contains("parent of"), "{bad:?}: {text}");
    }
    assert_eq!(load(&[]).unwrap_err(), LoadError::Empty);
    assert_eq!(load(&[node("/a")]).unwrap_err(), LoadError::RootNotFirst("/a".to_owned()));
}

/// ZOOKEEPER-3306, 4846.
#[test]
fn lists_missing_from_the_table_are_supplied_by_replay() {
    let mut loader = Loader::new(TreeConfig::default());
    let read = world::encoded(&[Acl::new(Perms::READ, "world", "anyone")]);
    loader.add_acl(3, world::acl_vec(&read));
    let unused = world::encoded(&[Acl::new(Perms::WRITE, "world", "anyone")]);
    loader.add_acl(4, world::acl_vec(&unused));
    loader.add_node(&node("")).unwrap();
    loader.add_node(&SnapshotNode { acl: 3, ..node("/listed") }).unwrap();
    loader.add_node(&SnapshotNode { acl: 77, ..node("/late") }).unwrap();
    loader.add_node(&SnapshotNode { acl: 77, ..node("/late2") }).unwrap();
    let mut world = World::over(loader.finish(Zxid(5)).unwrap());
    assert_eq!(world.tree.nodes_without_acl(), 2);
    assert!(world.node("/listed").acl().allows_anyone(Perms::READ));
    assert!(!world.node("/late").acl().allows_anyone(Perms::ALL));
    for path in ["/late", "/late2"] {
        let (op, body) = world::create(path, None, &acl::open(), CreateKind::Persistent, 1);
        world.apply(op, &body);
        assert_eq!(world.node(path).acl().entries(), acl::open());
    }
    assert_eq!(world.tree.nodes_without_acl(), 0);
    let mut head = Vec::new();
    world.tree.begin_snapshot().encode_head(&mut head);
    assert_eq!(head[..4], [0, 0, 0, 1], "lists nobody uses are not kept");
}

#[test]
fn quotas_are_found_and_counted_anew() {
    let mut nodes = fresh();
    for path in ["/a", "/a/b", "/zookeeper/quota/a"] {
        nodes.push(node(path));
    }
    let stats = "/zookeeper/quota/a/zookeeper_stats";
    nodes.push(SnapshotNode { data: Some(b"count=9,bytes=9"), ..node(stats) });
    let limits = "/zookeeper/quota/a/zookeeper_limits";
    nodes.push(SnapshotNode { data: Some(b"count=3,bytes=-1"), ..node(limits) });
    let tree = load(&nodes).unwrap();
    assert_eq!(tree.find(stats).unwrap().data(), Some(&b"count=2,bytes=0"[..]));
    let quota = tree.quota_of("/a/b").unwrap();
    assert_eq!((quota.limits.count, quota.usage.count), (3, 2));
}

#[test]
fn a_snapshot_from_before_there_was_a_configuration_node_gets_one() {
    let tree = load(&[node(""), node("/zookeeper"), node("/zookeeper/quota")]).unwrap();
    let config = tree.find("/zookeeper/config").unwrap();
    assert!(!config.acl().allows_anyone(Perms::WRITE));
    assert_eq!(tree.digest(), Tree::new(TreeConfig::default()).digest());
}

#[test]
fn the_kind_of_a_node_depends_on_the_configuration() {
    let stat = StatPersisted { ephemeral_owner: ttl_owner(5), ..StatPersisted::default() };
    let nodes = [node(""), SnapshotNode { stat, ..node("/t") }];
    for (ttl_enabled, ttls, ephemerals) in [(true, 1, 0), (false, 0, 1)] {
        let mut loader = Loader::new(TreeConfig { ttl_enabled, ..TreeConfig::default() });
        for node in &nodes {
            loader.add_node(node).unwrap();
        }
        let tree = loader.finish(Zxid(1)).unwrap();
        assert_eq!((tree.ttl_nodes().count(), tree.ephemeral_count()), (ttls, ephemerals));
    }
}
