//! Random histories against the model.

use ironkeeper_proto::acl::{self, Acl, Perms};
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_proto::{OpCode, SessionId};
use proptest::prelude::*;

use crate::model::Model;
use crate::world::{self, World};

/// A transaction. Sessions are 1 to 3.
#[derive(Clone, Debug)]
pub enum Command {
    Create {
        path: String,
        data: Option<Vec<u8>>,
        acl: u8,
        kind: CreateKind,
        session: i64,
        cversion: i32,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: u8,
        version: i32,
    },
    CloseSession {
        session: i64,
        listed: Vec<String>,
    },
    Multi(Vec<Command>),
    FailedMulti(Vec<Command>),
    Error,
}

pub fn acl_list(number: u8) -> Vec<Acl> {
    match number {
        0 => acl::open(),
        1 => vec![Acl::new(Perms::READ, "world", "anyone")],
        2 => Vec::new(),
        other => vec![
            Acl::new(Perms(i32::from(other)), "digest", "user:hash"),
            Acl::new(Perms::ADMIN, "ip", "10.0.0.0/8"),
        ],
    }
}

impl Command {
    pub fn encode(&self) -> (OpCode, Vec<u8>) {
        match self {
            Command::Create { path, data, acl, kind, cversion, .. } => {
                world::create(path, data.as_deref(), &acl_list(*acl), *kind, *cversion)
            }
            Command::Delete { path } => (OpCode::Delete, world::delete(path)),
            Command::SetData { path, data, version } => {
                (OpCode::SetData, world::set_data(path, Some(data), *version))
            }
            Command::SetAcl { path, acl, version } => {
                (OpCode::SetAcl, world::set_acl(path, &acl_list(*acl), *version))
            }
            Command::CloseSession { listed, .. } => {
                let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
                (OpCode::CloseSession, world::close_session(Some(&listed)))
            }
            Command::Multi(parts) => {
                let parts: Vec<_> = parts.iter().map(Command::encode).collect();
                (OpCode::Multi, world::multi(&parts))
            }
            Command::FailedMulti(parts) => {
                let mut parts: Vec<_> = parts.iter().map(Command::encode).collect();
                parts.push((OpCode::Error, world::error(-103)));
                (OpCode::Multi, world::multi(&parts))
            }
            Command::Error => (OpCode::Error, world::error(-101)),
        }
    }

    /// Returns the session of the transaction.
    pub fn session(&self) -> i64 {
        match self {
            Command::Create { session, .. } | Command::CloseSession { session, .. } => *session,
            Command::Multi(parts) => {
                let create = parts.iter().find(|part| matches!(part, Command::Create { .. }));
                create.map_or(1, Command::session)
            }
            _ => 1,
        }
    }
}

impl World {
    /// Applies a command to the tree and to the model.
    pub fn run(&mut self, model: &mut Model, command: &Command) {
        self.session = SessionId(command.session());
        let (op, body) = command.encode();
        self.apply(op, &body);
        model.apply(self.zxid, command);
    }
}

/// Few names and shallow paths, so that commands affect the same nodes.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "\u{e4}"]);
    let ordinary =
        prop::collection::vec(name, 1..4).prop_map(|names| format!("/{}", names.join("/")));
    let quota = prop::sample::select(vec![
        "/zookeeper/quota/a",
        "/zookeeper/quota/a/b",
        "/zookeeper/quota/a/zookeeper_limits",
        "/zookeeper/quota/a/zookeeper_stats",
        "/zookeeper/quota/a/b/zookeeper_limits",
        "/zookeeper/quota/a/b/zookeeper_stats",
    ]);
    prop_oneof![5 => ordinary, 1 => quota.prop_map(str::to_owned)]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn single() -> impl Strategy<Value = Command> {
    let kind = prop_oneof![
        4 => Just(CreateKind::Persistent),
        2 => Just(CreateKind::Ephemeral),
        1 => Just(CreateKind::Container),
        1 => (1..1000i64).prop_map(|ttl_ms| CreateKind::Ttl { ttl_ms }),
    ];
    let cversion = prop_oneof![3 => Just(-1), 1 => 0..6i32];
    let create = (path(), prop::option::of(data()), 0..5u8, kind, 1..4i64, cversion).prop_map(
        |(path, data, acl, kind, session, cversion)| {
            // The ephemerals of a session are deleted in no particular order, which must not affect
            // other nodes. It would if a quota ended in the same transaction.
            let is_quota = path.starts_with("/zookeeper");
            let kind = if is_quota { CreateKind::Persistent } else { kind };
            Command::Create { path, data, acl, kind, session, cversion }
        },
    );
    let set_data = (path(), data(), any::<i32>())
        .prop_filter("the model reads statistics", |(path, ..)| !path.ends_with("_stats"))
        .prop_map(|(path, data, version)| Command::SetData { path, data, version });
    prop_oneof![
        8 => create,
        3 => path().prop_map(|path| Command::Delete { path }),
        3 => set_data,
        1 => (path(), 0..5u8, any::<i32>())
            .prop_map(|(path, acl, version)| Command::SetAcl { path, acl, version }),
    ]
}

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        20 => single(),
        1 => (1..4i64, prop::collection::vec(path(), 0..3))
            .prop_map(|(session, listed)| Command::CloseSession { session, listed }),
        2 => prop::collection::vec(single(), 0..5).prop_map(one_session).prop_map(Command::Multi),
        1 => prop::collection::vec(single(), 0..3).prop_map(Command::FailedMulti),
        1 => Just(Command::Error),
    ]
}

/// The parts of a multi belong to one session.
fn one_session(mut parts: Vec<Command>) -> Vec<Command> {
    let owner = Command::Multi(parts.clone()).session();
    for part in &mut parts {
        if let Command::Create { session, .. } = part {
            *session = owner;
        }
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_tree_does_what_the_model_does(commands in prop::collection::vec(command(), 1..80)) {
        let (mut world, mut model) = (World::new(), Model::new());
        for command in &commands {
            world.run(&mut model, command);
            prop_assert_eq!(world.tree.digest(), model.digest(), "after {:?}", command);
        }
        model.check(&world.tree);
    }
}
