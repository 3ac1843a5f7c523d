//! The behaviour of Ironkeeper where it does not copy Apache (see [`super::exceptions`]).
//!
//! These scripts are never sent to Apache: one of them crashes it permanently.

use super::Arrangement;
use super::player::Transcript;
use super::script::{
    Connect, Entry, Frame, Label, Password, Request, Script, Slot, Step, Text, ZxidRef, Zxids, open,
};

/// A script and the required replies.
pub struct Rule {
    pub name: &'static str,
    pub arrangement: Arrangement,
    pub script: Script,
    /// The required replies; if empty, any replies are accepted as long as the server still runs.
    pub answers: Vec<&'static str>,
}

/// Returns the replies without those of the `sync` that ends each step.
pub fn answers(transcript: &Transcript) -> Vec<String> {
    let mark =
        |line: &String| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with("at "));
    let mut lines: Vec<String> =
        transcript.steps.iter().flatten().filter(|l| !mark(l)).cloned().collect();
    if transcript.steps.is_empty() {
        lines.extend(transcript.remains.iter().cloned());
    }
    lines
}

/// Builds a script step by step.
struct Writer {
    steps: Vec<Step>,
}

impl Writer {
    fn new() -> Self {
        Self { steps: Vec::new() }
    }

    fn finish(self) -> Script {
        Script { root: "/d".to_owned(), steps: self.steps, zxids: Zxids::Compared }
    }

    fn handshake(&mut self, slot: Slot, connect: Connect) {
        self.steps.push(Step::Connect { slot, connect });
    }

    fn connect(&mut self, slot: Slot, label: Label) {
        self.handshake(slot, Connect::new(label));
    }

    fn send(&mut self, slot: Slot, request: Request) {
        self.batch(slot, vec![request]);
    }

    /// Adds several requests in one write.
    fn batch(&mut self, slot: Slot, requests: Vec<Request>) {
        let frames = requests.into_iter().map(Frame::from).collect();
        self.steps.push(Step::Send { slot, frames });
    }
}

fn create_with(op: i32, path: &str, flags: i32, ttl: i64) -> Request {
    Request::Create { op, path: path.into(), data: "x".into(), acl: open(), flags, ttl }
}

const CONNECTED: &str =
    "c0 connected: 37 bytes, timeout 30000, session s1, password right, readOnly Some(false)";

pub fn all() -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut add = |name, arrangement, write: fn(&mut Writer), answers: &[&'static str]| {
        let mut writer = Writer::new();
        write(&mut writer);
        rules.push(Rule { name, arrangement, script: writer.finish(), answers: answers.to_vec() });
    };

    for arrangement in [Arrangement::Plain, Arrangement::Extended] {
        add(
            "create_ttl_takes_ttl_flags_only",
            arrangement,
            |w| {
                w.connect(0, 1);
                for flags in [0, 1, 2, 3, 4] {
                    w.send(0, create_with(21, "/d", flags, -1));
                }
                w.send(0, create_with(21, "/d", 0, 1000));
            },
            &[
                CONNECTED,
                "c0 xid 1 zxid +2 BadArguments (-8)",
                "c0 xid 2 zxid +3 BadArguments (-8)",
                "c0 xid 3 zxid +4 BadArguments (-8)",
                "c0 xid 4 zxid +5 BadArguments (-8)",
                "c0 xid 5 zxid +6 BadArguments (-8)",
                "c0 xid 6 zxid +7 BadArguments (-8)",
            ],
        );
    }
    add(
        "delete_container_is_internal",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            w.send(0, create_with(1, "/d", 0, 0));
            w.send(0, Request::Bytes { op: 20, body: b"\0\0\0\x02/d".to_vec() });
            w.connect(1, 2);
            w.send(1, Request::Read { op: 8, path: "/d".into(), watch: false });
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +2 ok \"/d\"",
            "c0 xid 2 zxid -1 Unimplemented (-6)",
            "c0 closed",
            "c1 connected: 37 bytes, timeout 30000, session s2, password right, readOnly Some(false)",
            "c1 xid 1 zxid +3 ok []",
        ],
    );
    add(
        "create_session_is_internal",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            w.send(0, Request::Bytes { op: -10, body: vec![0, 0, 0x20, 0] });
        },
        &[CONNECTED, "c0 xid 1 zxid -1 Unimplemented (-6)", "c0 closed"],
    );
    add(
        "a_wrong_password_leaves_the_connected_client_alone",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            w.handshake(1, Connect { password: Password::Wrong, ..Connect::again(1) });
            w.send(0, Request::Ping);
        },
        &[
            CONNECTED,
            "c1 refused: ConnectResponse { timeout_ms: 0, session: 0x0, password: [0, 0, 0, 0, 0, 0, 0, 0, \
             0, 0, 0, 0, 0, 0, 0, 0], read_only: Some(false) }",
            "c1 closed",
            "c0 xid -2 zxid +1 ok",
        ],
    );
    add(
        "operation_and_flag_of_a_container_agree",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            w.send(0, create_with(1, "/d", 4, 0));
            w.send(0, create_with(15, "/d", 4, 0));
            for flags in [0, 1, 2, 3] {
                w.send(0, create_with(19, "/d", flags, 0));
            }
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +2 BadArguments (-8)",
            "c0 xid 2 zxid +3 BadArguments (-8)",
            "c0 xid 3 zxid +4 BadArguments (-8)",
            "c0 xid 4 zxid +5 BadArguments (-8)",
            "c0 xid 5 zxid +6 BadArguments (-8)",
            "c0 xid 6 zxid +7 BadArguments (-8)",
        ],
    );
    add(
        "operation_and_flag_of_a_container_agree_in_a_multi",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            let operations = vec![
                (1, create_with(1, "/d", 0, 0)),
                (19, create_with(19, "/d/c", 0, 0)),
                (13, Request::Check { path: "/d".into(), version: -1 }),
            ];
            w.send(0, Request::Multi { op: 14, operations, ended: true });
            w.send(0, Request::SetAcl { path: "/d".into(), acl: open(), version: -1 });
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +2 ok; type -1 no error; type -1 BadArguments (-8); \
             type -1 RuntimeInconsistency (-2)",
            "c0 xid 2 zxid +3 NoNode (-101)",
        ],
    );
    for arrangement in [Arrangement::Plain, Arrangement::Quota] {
        add(
            "quota_nodes_hold_any_text",
            arrangement,
            |w| {
                let node = |name: &str| format!("/zookeeper/quota/d{name}");
                w.connect(0, 1);
                w.batch(
                    0,
                    vec![
                        create_with(1, "/d", 0, 0),
                        create_with(1, &node(""), 0, 0),
                        // `create_with` writes the data "x", which is not a quota.
                        create_with(1, &node("/zookeeper_limits"), 0, 0),
                        create_with(1, &node("/zookeeper_stats"), 0, 0),
                    ],
                );
                let spoilt = Text::from(node("/zookeeper_stats"));
                for data in
                    ["nonsense".into(), "count=x,bytes=".into(), "=".into(), "".into(), Text::NULL]
                {
                    w.send(0, Request::SetData { path: spoilt.clone(), data, version: -1 });
                    w.send(0, create_with(1, "/d/n", 0, 0));
                    w.send(0, Request::Delete { path: "/d/n".into(), version: -1 });
                }
                w.send(0, Request::Ping);
            },
            &[],
        );
    }
    add(
        "a_write_behind_set_acl_goes_by_the_new_list",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            w.send(0, create_with(1, "/d", 0, 0));
            w.batch(
                0,
                vec![
                    Request::SetAcl {
                        path: "/d".into(),
                        acl: Some(vec![Entry::new(1, "world", "anyone")]),
                        version: -1,
                    },
                    Request::SetData { path: "/d".into(), data: "y".into(), version: -1 },
                    create_with(1, "/d/x", 0, 0),
                ],
            );
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +2 ok \"/d\"",
            "c0 xid 2 zxid +3 ok {c +2 t+2, m +2 t+2, p +2, v 0 0 1, owner 0, 1 bytes, 0 children}",
            "c0 xid 3 zxid +4 NoAuth (-102)",
            "c0 xid 4 zxid +5 NoAuth (-102)",
        ],
    );
    add(
        "watches_with_null_paths_are_refused",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            let paths = || Some(vec![Text::from("/none"), Text::NULL]);
            let good = || Some(vec![Text::from("/none")]);
            let relative = ZxidRef::Seen(0);
            for lists in [vec![good(), good(), None], vec![good(), paths(), good()]] {
                w.send(0, Request::SetWatches { op: 101, relative, lists });
            }
            let lists = vec![good(), good(), good(), good(), paths()];
            w.send(0, Request::SetWatches { op: 105, relative, lists });
            w.send(0, Request::AddWatch { path: Text::NULL, mode: 0 });
            w.send(0, Request::Watches { op: 17, path: "/none".into(), kind: 3 });
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +1 MarshallingError (-5)",
            "c0 xid 2 zxid +1 MarshallingError (-5)",
            "c0 xid 3 zxid +1 MarshallingError (-5)",
            "c0 xid 4 zxid +1 MarshallingError (-5)",
            "c0 xid 5 zxid +1 NoWatcher (-121)",
        ],
    );
    add(
        "an_error_of_multi_read_has_no_body",
        Arrangement::Plain,
        |w| {
            w.connect(0, 1);
            let check = || (13, Request::Check { path: "/".into(), version: -1 });
            let read = |path| (4, Request::Read { op: 4, path, watch: false });
            for operations in [
                vec![check()],
                vec![read("/zookeeper".into()), read(Text::NULL)],
                vec![read("/zookeeper".into()), check()],
            ] {
                w.send(0, Request::Multi { op: 22, operations, ended: true });
            }
        },
        &[
            CONNECTED,
            "c0 xid 1 zxid +1 MarshallingError (-5)",
            "c0 xid 2 zxid +1 MarshallingError (-5)",
            "c0 xid 3 zxid +1 MarshallingError (-5)",
        ],
    );
    rules
}
