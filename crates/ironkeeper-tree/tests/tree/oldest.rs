//! The czxid of the oldest remaining child in deletions: given where it is known, and always
//! correct.

use std::sync::Arc;

use ironkeeper_proto::snapshot_record::{OPEN_ACL_ID, SnapshotNode};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_proto::{OpCode, Reader, SessionId, Txn, TxnHeader, Zxid, acl};
use ironkeeper_tree::{AclList, Changes, Loader, Tree, TreeConfig};
use proptest::prelude::*;

use crate::world;

const LINE: &str = "/line";

struct Line {
    tree: Tree,
    zxid: i64,
}

/// The `oldest` argument of each deletion.
#[derive(Default)]
struct Told(Vec<Option<Zxid>>);

impl Changes for Told {
    fn created(&mut self, _: &str, _: &Arc<AclList>, _: &str, _: &Arc<AclList>) {}
    fn deleted(
        &mut self,
        _: &str,
        _: &Arc<AclList>,
        parent: &str,
        _: &Arc<AclList>,
        oldest: Option<Zxid>,
    ) {
        assert_eq!(parent, LINE);
        self.0.push(oldest);
    }
    fn data_changed(&mut self, _: &str, _: &Arc<AclList>) {}
}

impl Line {
    fn new() -> Line {
        let mut line = Line { tree: Tree::new(TreeConfig::default()), zxid: 0 };
        line.apply(&create(LINE));
        line
    }

    fn apply(&mut self, (op, body): &(OpCode, Vec<u8>)) -> Vec<Option<Zxid>> {
        self.zxid += 1;
        let (session, zxid) = (SessionId(1), Zxid(self.zxid));
        let header = TxnHeader { session, cxid: 1, zxid, time: 0, op: *op };
        let txn = Txn::decode(*op, &mut Reader::new(body)).unwrap();
        let mut told = Told::default();
        self.tree.apply(&header, &txn, &mut told);
        told.0
    }

    fn join(&mut self, name: &str) -> Zxid {
        self.apply(&create(&format!("{LINE}/{name}")));
        Zxid(self.zxid)
    }

    fn leave(&mut self, name: &str) -> Option<Zxid> {
        self.apply(&delete(name)).pop().flatten()
    }

    fn names(&self) -> Vec<String> {
        self.tree.find(LINE).unwrap().children().map(str::to_owned).collect()
    }

    fn czxid(&self, name: &str) -> Zxid {
        self.tree.find(&format!("{LINE}/{name}")).unwrap().stat().czxid
    }

    fn oldest(&self) -> Option<Zxid> {
        self.names().iter().map(|name| self.czxid(name)).min()
    }

    /// Replaces the tree by one loaded from a snapshot with the children in this order.
    fn reload(&mut self, names: &[String]) {
        let paths = ["", "/zookeeper", LINE].into_iter().map(str::to_owned);
        let children = names.iter().map(|name| format!("{LINE}/{name}"));
        let mut loader = Loader::new(TreeConfig::default());
        for path in paths.chain(children) {
            let stat = self.tree.find(&path).unwrap().persisted();
            let data = Some(&b""[..]);
            loader
                .add_node(&SnapshotNode { path: path.into(), data, acl: OPEN_ACL_ID, stat })
                .unwrap();
        }
        self.tree = loader.finish(Zxid(self.zxid)).unwrap();
    }
}

fn create(path: &str) -> (OpCode, Vec<u8>) {
    world::create(path, Some(b""), &acl::open(), CreateKind::Persistent, -1)
}

fn delete(name: &str) -> (OpCode, Vec<u8>) {
    (OpCode::Delete, world::delete(&format!("{LINE}/{name}")))
}

#[test]
fn the_end_of_the_first_tells_who_is_next_and_that_of_others_tells_nothing() {
    let mut line = Line::new();
    for name in ["a", "b", "c", "d"] {
        line.join(name);
    }
    assert_eq!(line.leave("b"), None);
    assert_eq!(line.leave("a"), Some(line.czxid("c")));
    assert_eq!(line.leave("d"), None);
    assert_eq!(line.leave("c"), None, "nobody is left");
}

#[test]
fn whoever_comes_back_stands_at_the_end() {
    let mut line = Line::new();
    line.join("a");
    line.join("b");
    line.leave("a");
    let again = line.join("a");
    assert_eq!(line.leave("b"), Some(again));
}

/// The child that is the oldest after the first deletion is deleted by the second one.
#[test]
fn a_transaction_that_takes_several_tells_of_none() {
    let mut line = Line::new();
    for name in ["a", "b", "c"] {
        line.join(name);
    }
    let both = (OpCode::Multi, world::multi(&[delete("a"), delete("b")]));
    assert_eq!(line.apply(&both), [None, None]);

    let mut line = Line::new();
    let paths = ["a", "b"].map(|name| format!("{LINE}/{name}"));
    for path in &paths {
        let ephemeral = CreateKind::Ephemeral;
        line.apply(&world::create(path, Some(b""), &acl::open(), ephemeral, -1));
    }
    line.join("c");
    let closing =
        (OpCode::CloseSession, world::close_session(Some(&paths.each_ref().map(String::as_str))));
    assert_eq!(line.apply(&closing), [None, None]);
}

#[test]
fn nothing_is_told_of_children_that_a_snapshot_brought() {
    let mut line = Line::new();
    for name in ["a", "b"] {
        line.join(name);
    }
    line.reload(&["b".to_owned(), "a".to_owned()]);
    let first = line.join("c");
    line.join("d");
    assert_eq!(line.leave("b"), None, "a is older, and nobody knows");
    assert_eq!(line.leave("a"), Some(first));
}

#[derive(Clone, Debug)]
enum Step {
    Join(String),
    Leave(prop::sample::Index),
    Reload(prop::sample::Index, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => "[a-h]".prop_map(Step::Join),
        6 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(turn, reversed)| Step::Reload(turn, reversed)),
    ]
}

proptest! {
    #[test]
    fn what_is_told_is_true(steps in prop::collection::vec(step(), 1..60)) {
        let mut line = Line::new();
        for step in steps {
            let mut names = line.names();
            match step {
                Step::Join(name) => drop(line.join(&name)),
                Step::Leave(_) if names.is_empty() => {}
                Step::Leave(index) => {
                    if let Some(told) = line.leave(&names[index.index(names.len())]) {
                        prop_assert_eq!(Some(told), line.oldest());
                    }
                }
                Step::Reload(turn, reversed) => {
                    if !names.is_empty() {
                        let turn = turn.index(names.len());
                        names.rotate_left(turn);
                    }
                    if reversed {
                        names.reverse();
                    }
                    line.reload(&names);
                }
            }
        }
    }
}
