//! Scripts written by hand: each one covers one table of the protocol, so that a difference has a
//! name.

use ironkeeper_proto::Put;

use super::Arrangement;
use super::exceptions;
use super::script::{
    AclList, Connect, Damage, Entry, Frame, Label, Password, Request, Script, SessionRef, Slot,
    Step, Text, ZxidRef, Zxids, open,
};

/// A named script and the configuration it needs.
pub struct Scenario {
    pub name: &'static str,
    pub arrangement: Arrangement,
    pub script: Script,
}

/// The root of the subtree that scenarios use.
const ROOT: &str = "/d";

pub fn all() -> Vec<Scenario> {
    use Arrangement::{Extended, Guarded, Narrow, Plain, Quick, Quota, Unguarded};
    type Write = fn(&mut Writer);
    let table: &[(&'static str, Arrangement, Write)] = &[
        ("golden_bytes", Plain, golden_bytes),
        ("handshakes", Plain, handshakes),
        ("sessions_are_resumed_and_refused", Plain, sessions_are_resumed_and_refused),
        ("frames_that_are_no_requests", Plain, frames_that_are_no_requests),
        ("frames_up_to_the_limit", Plain, frames_up_to_the_limit),
        ("every_operation_code", Plain, every_operation_code),
        ("numbers_of_requests_are_echoed", Plain, numbers_of_requests_are_echoed),
        ("bodies_cut_at_every_byte", Plain, bodies_cut_at_every_byte),
        ("bodies_cut_at_every_byte", Extended, bodies_cut_at_every_byte),
        ("bodies_with_more_behind", Plain, bodies_with_more_behind),
        ("counts_that_lie", Plain, counts_that_lie),
        ("null_fields", Plain, null_fields),
        ("stat_rules", Plain, stat_rules),
        ("null_and_empty_data", Plain, null_and_empty_data),
        ("sequence_numbers", Plain, sequence_numbers),
        ("create_flags", Plain, create_flags),
        ("create_flags", Extended, create_flags),
        ("times_to_live", Plain, times_to_live),
        ("times_to_live", Extended, times_to_live),
        ("errors_of_create", Plain, errors_of_create),
        ("errors_of_delete", Plain, errors_of_delete),
        ("errors_of_set_data", Plain, errors_of_set_data),
        ("errors_of_set_acl", Plain, errors_of_set_acl),
        ("errors_of_check", Plain, errors_of_check),
        ("errors_of_reads", Plain, errors_of_reads),
        ("errors_of_reconfig", Plain, errors_of_reconfig),
        ("errors_of_reconfig", Extended, errors_of_reconfig),
        ("paths", Plain, paths),
        ("the_root_and_what_is_zookeepers_own", Plain, the_root_and_what_is_zookeepers_own),
        ("acl_entries", Plain, acl_entries),
        ("acl_addresses", Plain, acl_addresses),
        ("acl_lists_keep_their_order", Plain, acl_lists_keep_their_order),
        ("permissions_one_by_one", Plain, permissions_one_by_one),
        ("digests_are_masked", Plain, digests_are_masked),
        ("authentication", Plain, authentication),
        ("sasl_without_sasl", Plain, sasl_without_sasl),
        ("text_that_is_not_utf8", Plain, text_that_is_not_utf8),
        ("events_of_every_change", Plain, events_of_every_change),
        ("events_across_connections", Plain, events_across_connections),
        ("events_of_a_multi", Plain, events_of_a_multi),
        ("events_need_permission_to_read", Plain, events_need_permission_to_read),
        ("watches_on_the_root", Plain, watches_on_the_root),
        ("watches_are_removed_by_kind", Plain, watches_are_removed_by_kind),
        ("watches_end_with_their_connection", Plain, watches_end_with_their_connection),
        ("watches_are_set_again", Plain, watches_are_set_again),
        ("watch_counts", Plain, watch_counts),
        ("failed_reads_and_watches", Plain, failed_reads_and_watches),
        ("multi_results", Plain, multi_results),
        ("multi_results", Extended, multi_results),
        ("multi_fails_as_one", Plain, multi_fails_as_one),
        ("multi_refuses", Plain, multi_refuses),
        ("multi_read", Plain, multi_read),
        ("requests_in_one_write", Plain, requests_in_one_write),
        ("ephemerals", Plain, ephemerals),
        ("counting_descendants", Plain, counting_descendants),
        ("quota_bookkeeping", Plain, quota_bookkeeping),
        ("quota_bookkeeping", Quota, quota_bookkeeping),
        ("quota_limits", Quota, quota_limits),
        ("quota_limits", Plain, quota_limits),
        ("a_silent_session_expires", Quick, a_silent_session_expires),
        ("a_dropped_session_expires", Quick, a_dropped_session_expires),
        ("containers_are_reaped", Quick, containers_are_reaped),
        ("times_to_live_run_out", Quick, times_to_live_run_out),
        ("permissions_one_by_one", Unguarded, permissions_one_by_one),
        ("acl_entries", Unguarded, acl_entries),
        ("digests_are_masked", Unguarded, digests_are_masked),
        ("events_need_permission_to_read", Unguarded, events_need_permission_to_read),
        ("errors_of_reads", Unguarded, errors_of_reads),
        ("strangers_are_turned_away", Guarded, strangers_are_turned_away),
        ("small_frames", Narrow, small_frames),
    ];
    table
        .iter()
        .map(|(name, arrangement, write)| {
            let mut writer = Writer::new();
            write(&mut writer);
            Scenario { name, arrangement: *arrangement, script: writer.finish() }
        })
        .collect()
}

/// Builds a script step by step.
pub struct Writer {
    steps: Vec<Step>,
    labels: Label,
}

impl Writer {
    pub fn new() -> Self {
        Self { steps: Vec::new(), labels: 100 }
    }

    pub fn finish(self) -> Script {
        Script { root: ROOT.to_owned(), steps: self.steps, zxids: Zxids::Compared }
    }

    pub fn handshake(&mut self, slot: Slot, connect: Connect) {
        self.steps.push(Step::Connect { slot, connect });
    }

    pub fn connect(&mut self, slot: Slot, label: Label) {
        self.handshake(slot, Connect::new(label));
    }

    /// Opens a session that no later step refers to.
    fn connect_afresh(&mut self, slot: Slot) {
        self.labels += 1;
        self.connect(slot, self.labels);
    }

    pub fn send(&mut self, slot: Slot, request: Request) {
        self.frame(slot, request.into());
    }

    fn frame(&mut self, slot: Slot, frame: Frame) {
        self.steps.push(Step::Send { slot, frames: vec![frame] });
    }

    /// Adds several requests in one write.
    pub fn batch(&mut self, slot: Slot, requests: Vec<Request>) {
        let frames = requests.into_iter().map(Frame::from).collect();
        self.steps.push(Step::Send { slot, frames });
    }

    fn raw(&mut self, slot: Slot, bytes: &[u8]) {
        self.steps.push(Step::Raw { slot, bytes: bytes.to_vec() });
    }

    fn auth(&mut self, slot: Slot, auth: &str) {
        self.send(slot, Request::Auth { kind: 0, scheme: "digest".into(), auth: auth.into() });
    }

    fn close(&mut self, slot: Slot) {
        self.send(slot, Request::CloseSession);
    }

    fn watch_counts(&mut self) {
        self.steps.push(Step::Word { word: "wchs", lines: &[""] });
    }
}

pub fn create_with(op: i32, path: &str, flags: i32, ttl: i64) -> Request {
    Request::Create { op, path: path.into(), data: "x".into(), acl: open(), flags, ttl }
}

fn create(path: &str) -> Request {
    create_with(1, path, 0, 0)
}

fn create_flags_of(path: &str, flags: i32) -> Request {
    create_with(1, path, flags, 0)
}

fn create_acl(path: &str, acl: AclList) -> Request {
    Request::Create { op: 1, path: path.into(), data: "x".into(), acl, flags: 0, ttl: 0 }
}

fn create_data(path: &str, data: &str) -> Request {
    Request::Create { op: 1, path: path.into(), data: data.into(), acl: open(), flags: 0, ttl: 0 }
}

fn entry(perms: i32, scheme: &str, id: &str) -> Entry {
    Entry::new(perms, scheme, id)
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

fn delete_at(path: &str, version: i32) -> Request {
    Request::Delete { path: path.into(), version }
}

fn set(path: &str, data: &str) -> Request {
    set_at(path, data, -1)
}

fn set_at(path: &str, data: &str, version: i32) -> Request {
    Request::SetData { path: path.into(), data: data.into(), version }
}

fn set_acl(path: &str, acl: AclList) -> Request {
    Request::SetAcl { path: path.into(), acl, version: -1 }
}

fn exists(path: &str) -> Request {
    Request::Read { op: 3, path: path.into(), watch: false }
}

fn get(path: &str) -> Request {
    Request::Read { op: 4, path: path.into(), watch: false }
}

fn list(path: &str) -> Request {
    Request::Read { op: 12, path: path.into(), watch: false }
}

fn watching(op: i32, path: &str) -> Request {
    Request::Read { op, path: path.into(), watch: true }
}

fn get_acl(path: &str) -> Request {
    Request::GetAcl { path: path.into() }
}

fn add_watch(path: &str, mode: i32) -> Request {
    Request::AddWatch { path: path.into(), mode }
}

fn check_at(path: &str, version: i32) -> Request {
    Request::Check { path: path.into(), version }
}

fn multi(operations: Vec<Request>) -> Request {
    let operations = operations.into_iter().map(|operation| (operation.op(), operation)).collect();
    Request::Multi { op: 14, operations, ended: true }
}

fn multi_reading(operations: Vec<Request>) -> Request {
    let operations = operations.into_iter().map(|operation| (operation.op(), operation)).collect();
    Request::Multi { op: 22, operations, ended: true }
}

/// Returns one valid request of every kind that a plain client may send, on nodes that exist.
fn good_requests() -> Vec<Request> {
    vec![
        create_with(1, "/d/n1", 0, 0),
        create_with(15, "/d/n2", 0, 0),
        create_with(19, "/d/n3", 4, 0),
        create_with(21, "/d/n4", 5, 1000),
        delete("/d/gone"),
        exists("/d"),
        get("/d"),
        Request::Read { op: 8, path: "/d".into(), watch: true },
        Request::Read { op: 12, path: "/d".into(), watch: true },
        set_at("/d", "data", 77),
        get_acl("/d"),
        Request::SetAcl { path: "/d".into(), acl: open(), version: 77 },
        Request::Sync { path: "/d".into() },
        multi(vec![create("/d/m"), set("/d/m", "y"), check_at("/d/m", 1), delete("/d/m")]),
        multi(vec![create_with(15, "/d/m", 0, 0), delete("/d/m"), create_with(21, "/d/m", 5, 9)]),
        multi_reading(vec![get("/d"), Request::Read { op: 8, path: "/d".into(), watch: false }]),
        Request::Reconfig {
            joining: "x".into(),
            leaving: "2".into(),
            members: Text::NULL,
            config: -1,
        },
        Request::Watches { op: 17, path: "/d".into(), kind: 3 },
        Request::Watches { op: 18, path: "/d".into(), kind: 3 },
        Request::SetWatches {
            op: 101,
            relative: ZxidRef::Absolute(0),
            lists: vec![Some(vec!["/d".into()]), Some(vec!["/no".into()]), Some(vec!["/d".into()])],
        },
        Request::SetWatches {
            op: 105,
            relative: ZxidRef::Absolute(0),
            lists: vec![
                Some(vec!["/d".into()]),
                Some(vec!["/no".into()]),
                Some(vec!["/d".into()]),
                Some(vec!["/d/p".into()]),
                Some(vec!["/d/q".into(), "/d/r".into()]),
            ],
        },
        Request::GetEphemerals { prefix: "/d".into() },
        Request::GetAllChildrenNumber { path: "/d".into() },
        add_watch("/d", 0),
        Request::WhoAmI,
        Request::Ping,
    ]
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut body = Vec::new();
    request.put(|_| 0, &mut body);
    body
}

/// Sends the bytes of the examples in the protocol reference.
fn golden_bytes(w: &mut Writer) {
    let golden = |hex: &str| -> Frame {
        let bytes: Vec<u8> = hex
            .split_whitespace()
            .collect::<String>()
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).unwrap_or_default())
            .collect();
        let word = |at: usize| {
            i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        assert_eq!(word(0) as usize, bytes.len() - 4, "the golden frame says how long it is");
        Frame {
            xid: Some(word(4)),
            request: Request::Bytes { op: word(8), body: bytes[12..].to_vec() },
            damage: Damage::None,
        }
    };
    w.handshake(0, Connect { timeout_ms: 10_000, ..Connect::new(1) });
    w.handshake(1, Connect { timeout_ms: 10_000, read_only: None, ..Connect::new(2) });
    for frame in [
        "00000036 00000001 00000001 00000002 2f61 00000005 68656c6c6f 00000001 0000001f 00000005 776f726c64
         00000006 616e796f6e65 00000000",
        "0000000f 00000002 00000004 00000002 2f61 01",
        "00000012 00000003 00000004 00000005 2f6e6f6e65 00",
        "00000008 fffffffe 0000000b",
        "00000071 00000004 0000000e
         00000001 00 ffffffff 00000003 2f6d31 00000000 00000001 0000001f 00000005 776f726c64 00000006
         616e796f6e65 00000000
         00000002 00 ffffffff 00000009 2f6e6f6e6578697374 ffffffff
         0000000d 00 ffffffff 00000002 2f61 ffffffff
         ffffffff 01 ffffffff",
        "000000ca 00000005 0000000e
         00000001 00 ffffffff 00000003 2f6d31 00000000 00000001 0000001f 00000005 776f726c64 00000006
         616e796f6e65 00000000
         0000000f 00 ffffffff 00000003 2f6d32 00000000 00000001 0000001f 00000005 776f726c64 00000006
         616e796f6e65 00000000
         00000005 00 ffffffff 00000002 2f61 00000001 79 ffffffff
         0000000d 00 ffffffff 00000002 2f61 ffffffff
         00000002 00 ffffffff 00000003 2f6d31 ffffffff
         00000002 00 ffffffff 00000003 2f6d32 00000000
         ffffffff 01 ffffffff",
        "0000001d fffffffc 00000064 00000000 00000006 646967657374 00000003 753a70",
        "00000035 00000005 00000065 00000000000001a6 00000001 00000003 2f7078 00000001 00000007 2f70786e6f6e65
         00000001 00000003 2f7078",
        "00000013 00000006 0000006a 00000003 2f7078 00000001",
        "00000008 00000007 fffffff5",
    ] {
        w.frame(0, golden(frame));
    }
    w.frame(1, golden("00000008 00000001 00000063"));
    w.connect(2, 3);
    w.send(2, delete("/a"));
}

fn handshakes(w: &mut Writer) {
    let plain = |label| Connect::new(label);
    for timeout_ms in [0, -1, 1, 29_999, 30_000, 30_001, 45_000, 60_000, 60_001, i32::MAX, i32::MIN]
    {
        w.labels += 1;
        w.handshake(0, Connect { timeout_ms, ..plain(w.labels) });
    }
    for password in [Password::Null, Password::Len(0), Password::Len(3), Password::Len(20)] {
        w.labels += 1;
        w.handshake(0, Connect { password: password.clone(), ..plain(w.labels) });
        w.labels += 1;
        w.handshake(0, Connect { password, read_only: None, ..plain(w.labels) });
    }
    for read_only in [None, Some(0), Some(1), Some(7)] {
        w.labels += 1;
        w.handshake(0, Connect { read_only, ..plain(w.labels) });
        w.handshake(0, Connect { read_only, ..Connect::again(999) });
    }
    for version in [1, -1, i32::MAX] {
        w.labels += 1;
        w.handshake(0, Connect { version, ..plain(w.labels) });
    }
    for last_zxid in [
        ZxidRef::Seen(-1),
        ZxidRef::Seen(0),
        ZxidRef::Seen(2),
        ZxidRef::Seen(1 << 32),
        ZxidRef::Absolute(-1),
        ZxidRef::Absolute(i64::MIN),
        ZxidRef::Absolute(i64::MAX),
    ] {
        w.labels += 1;
        w.handshake(0, Connect { last_zxid, ..plain(w.labels) });
    }
    for cut in 0..45 {
        w.labels += 1;
        w.handshake(0, Connect { damage: Damage::Cut(cut), ..plain(w.labels) });
    }
    w.labels += 1;
    w.handshake(0, Connect { damage: Damage::Tail(vec![1; 9]), ..plain(w.labels) });
    for (at, byte) in [(24, 0xff), (27, 0x11), (27, 0x0f), (24, 0x7f)] {
        w.labels += 1;
        w.handshake(0, Connect { damage: Damage::Poke(at, byte), ..plain(w.labels) });
    }
}

fn sessions_are_resumed_and_refused(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    w.send(0, create_flags_of("/d/e", 1));
    w.connect(1, 2);
    w.send(1, watching(3, "/d/e"));
    // Reconnected from slot 2: the connection of slot 0 is closed, the ephemeral remains.
    w.handshake(2, Connect { timeout_ms: 45_000, ..Connect::again(1) });
    w.send(1, exists("/d/e"));
    w.send(2, set("/d/e", "still mine"));
    // After a drop: with and without the read-only byte, with the newest zxid and with a future
    // zxid.
    w.steps.push(Step::Drop { slot: 2 });
    w.handshake(2, Connect { read_only: None, timeout_ms: 1, ..Connect::again(1) });
    w.steps.push(Step::Drop { slot: 2 });
    w.handshake(2, Connect { last_zxid: ZxidRef::Seen(10), ..Connect::again(1) });
    w.handshake(2, Connect { last_zxid: ZxidRef::Seen(0), ..Connect::again(1) });
    w.steps.push(Step::Drop { slot: 2 });
    // Wrong passwords while no connection has the session.
    for password in
        [Password::Wrong, Password::Null, Password::Len(0), Password::Len(15), Password::Len(17)]
    {
        w.handshake(2, Connect { password: password.clone(), ..Connect::again(1) });
        w.handshake(2, Connect { password, read_only: None, ..Connect::again(1) });
    }
    w.handshake(2, Connect::again(1));
    w.send(2, get("/d/e"));
    w.close(2);
    w.send(1, exists("/d/e"));
    w.handshake(2, Connect::again(1));
    w.handshake(3, Connect { session: SessionRef::Known(77), ..Connect::new(0) });
}

fn frames_that_are_no_requests(w: &mut Writer) {
    let frames: &[&[u8]] = &[
        &[0, 0, 0, 0],
        &[0, 0, 0, 1, 9],
        &[0, 0, 0, 4, 0, 0, 0, 1],
        &[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0, 0x10, 0, 0],
        b"ruok",
        b"stat",
        b"GET / HTTP/1.0\r\n\r\n",
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    ];
    for bytes in frames {
        w.connect_afresh(0);
        w.raw(0, bytes);
    }
}

fn frames_up_to_the_limit(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    let big = |len: usize| set("/d", &"b".repeat(len));
    // xid, operation, path, data length and version take 26 bytes.
    w.send(0, big(1_048_575 - 26));
    w.send(0, exists("/d"));
    w.send(0, get("/d"));
    w.send(0, big(1_048_576 - 26));
    w.connect(0, 2);
    w.send(0, exists("/d"));
    w.send(0, set("/d", ""));
}

fn small_frames(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for len in [4096 - 26, 4095 - 26, 1] {
        w.send(0, set("/d", &"b".repeat(len)));
        w.send(0, get("/d"));
    }
    // The batch is larger than the frame limit, each of its frames is not.
    let value = "b".repeat(3000);
    w.batch(0, vec![set("/d", &value), get("/d"), set("/d", &value), get("/d")]);
    w.send(0, multi_reading(vec![get("/d"), get("/d"), get("/d")]));
    // Lengths of fields that exceed the frame.
    for len in [4097, 5120, 5121, 8192, 8193, 1 << 20] {
        let mut body = Vec::new();
        body.put_i32(len);
        body.put_raw(b"/d");
        body.put_bool(false);
        w.send(0, Request::Bytes { op: 4, body });
    }
    w.send(0, set("/d", &"b".repeat(4097 - 26)));
    w.connect(0, 2);
    w.send(0, exists("/d"));
    w.handshake(0, Connect { password: Password::Len(4096 - 29), ..Connect::new(3) });
    w.handshake(0, Connect { password: Password::Len(4096 - 28), ..Connect::new(4) });
}

fn strangers_are_turned_away(w: &mut Writer) {
    w.connect(0, 1);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    for request in [
        Request::Ping,
        get("/d"),
        create("/d/x"),
        Request::WhoAmI,
        Request::CloseSession,
        multi(vec![create("/d/x")]),
        multi_reading(vec![get("/d")]),
        Request::Bytes { op: 99, body: Vec::new() },
        Request::Bytes { op: 4, body: Vec::new() },
        Request::Auth { kind: 0, scheme: "ip".into(), auth: "x".into() },
        Request::Auth { kind: 0, scheme: "nosuch".into(), auth: "x".into() },
        Request::Sasl { token: "x".into() },
    ] {
        w.labels += 1;
        let connect = Connect::new(w.labels);
        w.steps.push(Step::Greet { slot: 1, connect, frames: vec![request.into()] });
    }
    w.connect(2, 2);
    w.send(0, list("/d"));
}

fn every_operation_code(w: &mut Writer) {
    w.connect_afresh(1);
    for op in (-20..=130).chain([1000, -1000, i32::MAX, i32::MIN]) {
        // createContainer and createTTL are covered by other scenarios and by the rules.
        if [20, -10].contains(&op) {
            continue;
        }
        w.connect_afresh(0);
        w.send(0, Request::Bytes { op, body: Vec::new() });
        w.send(0, Request::Ping);
        w.close(0);
    }
}

fn numbers_of_requests_are_echoed(w: &mut Writer) {
    w.connect(0, 1);
    for xid in [0, 1, 1, -2, -3, -4, -5, -8, i32::MAX, i32::MIN] {
        for request in [
            exists("/"),
            delete("/none"),
            Request::Ping,
            Request::WhoAmI,
            Request::SetWatches {
                op: 101,
                relative: ZxidRef::Seen(0),
                lists: vec![Some(Vec::new()); 3],
            },
            Request::Auth { kind: 0, scheme: "ip".into(), auth: Text::NULL },
            Request::Bytes { op: 4, body: Vec::new() },
        ] {
            w.frame(0, Frame { xid: Some(xid), request, damage: Damage::None });
        }
    }
}

fn bodies_cut_at_every_byte(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for request in good_requests() {
        for cut in 0..encoded(&request).len() {
            w.frame(0, Frame { xid: None, request: request.clone(), damage: Damage::Cut(cut) });
        }
        w.send(0, request);
    }
    for request in [
        Request::Auth { kind: 0, scheme: "digest".into(), auth: "u:p".into() },
        Request::Sasl { token: "t".into() },
    ] {
        for cut in 0..encoded(&request).len() {
            w.connect_afresh(1);
            w.frame(1, Frame { xid: None, request: request.clone(), damage: Damage::Cut(cut) });
        }
    }
}

fn bodies_with_more_behind(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for request in good_requests() {
        w.frame(0, Frame { xid: None, request, damage: Damage::Tail(vec![0, 1, 2, 0xff, 0xff]) });
    }
    w.frame(
        0,
        Frame { xid: None, request: Request::CloseSession, damage: Damage::Tail(vec![1, 2, 3]) },
    );
}

fn counts_that_lie(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for count in [-1, -2, i32::MIN, 0, 2, 1000, i32::MAX] {
        let mut body = Vec::new();
        body.put_str("/d/lie");
        body.put_buf(Some(b"x"));
        body.put_i32(count);
        body.put_i32(31);
        body.put_str("world");
        body.put_str("anyone");
        body.put_i32(0);
        w.send(0, Request::Bytes { op: 1, body: body.clone() });
        w.send(0, Request::Bytes { op: 15, body });
        w.send(0, delete("/d/lie"));
        let mut body = Vec::new();
        body.put_i64(0);
        body.put_i32(count);
        body.put_str("/d");
        body.put_i32(0);
        body.put_i32(0);
        w.send(0, Request::Bytes { op: 101, body });
        let mut body = Vec::new();
        body.put_i32(count);
        body.put_raw(b"/d");
        body.put_bool(false);
        for op in [3, 4, 6, 8, 9, 12, 103, 104] {
            w.send(0, Request::Bytes { op, body: body.clone() });
        }
    }
}

fn null_fields(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    let null_create = |op, path: Text, acl| Request::Create {
        op,
        path,
        data: Text::NULL,
        acl,
        flags: if op == 19 { 4 } else { 0 },
        ttl: 0,
    };
    let requests = |null: Text| {
        vec![
            null_create(1, null.clone(), open()),
            null_create(15, null.clone(), None),
            null_create(19, null.clone(), open()),
            Request::Delete { path: null.clone(), version: -1 },
            Request::SetData { path: null.clone(), data: "x".into(), version: -1 },
            Request::SetAcl { path: null.clone(), acl: open(), version: -1 },
            Request::SetAcl { path: null.clone(), acl: None, version: -1 },
            Request::GetAcl { path: null.clone() },
            Request::Sync { path: null.clone() },
            Request::GetAllChildrenNumber { path: null.clone() },
            Request::GetEphemerals { prefix: null.clone() },
            Request::Watches { op: 17, path: null.clone(), kind: 3 },
            Request::Watches { op: 18, path: null.clone(), kind: 3 },
            Request::Watches { op: 17, path: null.clone(), kind: 9 },
            Request::Read { op: 3, path: null.clone(), watch: true },
            Request::Read { op: 4, path: null.clone(), watch: true },
            Request::Read { op: 8, path: null.clone(), watch: true },
            Request::Read { op: 12, path: null.clone(), watch: true },
            multi(vec![create("/d/m"), null_create(1, null.clone(), open())]),
            multi(vec![create("/d/m"), Request::Delete { path: null.clone(), version: -1 }]),
            multi(vec![
                create("/d/m"),
                Request::SetData { path: null.clone(), data: Text::NULL, version: -1 },
            ]),
            multi(vec![create("/d/m"), Request::Check { path: null.clone(), version: -1 }]),
            multi_reading(vec![Request::Read { op: 4, path: null.clone(), watch: false }]),
            multi_reading(vec![get("/d"), Request::Read { op: 8, path: null, watch: false }]),
        ]
    };
    for request in requests(Text::NULL) {
        w.send(0, request);
    }
    for request in requests("".into()) {
        w.send(0, request);
    }
    w.send(0, null_create(1, "/d/noacl".into(), None));
    w.send(0, null_create(1, "/d/nodata".into(), open()));
    w.send(0, Request::SetAcl { path: "/d".into(), acl: None, version: -1 });
    w.send(0, Request::SetAcl { path: "/d".into(), acl: Some(Vec::new()), version: -1 });
    w.send(
        0,
        Request::Reconfig {
            joining: Text::NULL,
            leaving: Text::NULL,
            members: Text::NULL,
            config: 0,
        },
    );
}

fn stat_rules(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    let look = |w: &mut Writer| {
        for path in ["/d", "/d/n", "/d/n/x"] {
            w.send(1, exists(path));
        }
    };
    for request in [
        create("/d"),
        create_data("/d/n", "12345"),
        create("/d/n/x"),
        delete("/d/n/x"),
        create("/d/n/x"),
        set("/d/n", "1"),
        set_at("/d/n", "22", 1),
        set_at("/d/n", "22", 1),
        set_acl("/d/n", open()),
        Request::SetAcl { path: "/d/n".into(), acl: open(), version: 1 },
        Request::SetAcl { path: "/d/n".into(), acl: open(), version: 1 },
        create_flags_of("/d/n/e", 1),
        create("/d/n"),
        create("/nowhere/x"),
        delete("/d/n"),
        delete_at("/d/n/x", 5),
        delete_at("/d/n/x", 0),
        multi(vec![set("/d/n", "a"), set("/d/n", "b"), create("/d/n/y"), create("/d/n/z")]),
        multi(vec![set("/d/n", "c"), create("/d/n/y")]),
        multi(vec![create("/d/n/t"), delete("/d/n/t")]),
        create_with(15, "/d/n/c2", 0, 0),
        create_with(19, "/d/n/con", 4, 0),
        create("/d/n/con/x"),
    ] {
        w.send(0, request);
        look(w);
    }
    w.close(0);
    look(w);
}

fn null_and_empty_data(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for (name, data) in [("null", Text::NULL), ("empty", "".into()), ("some", "x".into())] {
        let path = format!("/d/{name}");
        let text = Text::from(path.as_str());
        w.send(
            0,
            Request::Create { op: 1, path: text.clone(), data, acl: open(), flags: 0, ttl: 0 },
        );
        w.send(0, get(&path));
        for data in [Text::NULL, "".into(), "yy".into(), Text::NULL] {
            w.send(0, Request::SetData { path: text.clone(), data, version: -1 });
            w.send(0, get(&path));
            w.send(0, multi_reading(vec![get(&path)]));
        }
    }
}

fn sequence_numbers(w: &mut Writer) {
    w.connect(0, 1);
    for request in [
        create("/d"),
        create("/d/q"),
        create_flags_of("/d/q/n-", 2),
        create_flags_of("/d/q/n-", 2),
        delete("/d/q/n-0000000001"),
        create_flags_of("/d/q/n-", 2),
        create("/d/q/plain"),
        create_flags_of("/d/q/n-", 3),
        create("/d/q/plain"),
        create_flags_of("/d/q/", 2),
        create_flags_of("/d/q/.", 2),
        create_flags_of("/d/q/..", 2),
        create_flags_of("/d/q//", 2),
        create_flags_of("/d/q/\u{1}", 2),
        create_flags_of("/d/q", 2),
        create_flags_of("/d/none/n-", 2),
        create_with(15, "/d/q/m-", 2, 0),
        create_with(15, "/d/q/m-", 3, 0),
        multi(vec![
            create_flags_of("/d/q/k-", 2),
            create_flags_of("/d/q/k-", 2),
            create("/d/q/plain"),
        ]),
        create_flags_of("/d/q/k-", 2),
        multi(vec![
            create_flags_of("/d/q/k-", 2),
            create_flags_of("/d/q/k-", 2),
            delete("/d/q/plain"),
            create_flags_of("/d/q/k-", 2),
        ]),
        create("/d/q/z0000000016"),
        create("/d/q/z0000000017"),
        create("/d/q/z0000000018"),
        create_flags_of("/d/q/z", 2),
        create_flags_of("/d/q/z", 2),
        set("/d/q", "a change of the data does not count"),
        create_flags_of("/d/q/n-", 2),
        create_flags_of("/d/q/n-", 3),
        list("/d/q"),
    ] {
        w.send(0, request);
    }
    w.close(0);
    w.connect(0, 2);
    w.send(0, create_flags_of("/d/q/n-", 2));
    w.batch(0, (0..5).map(|_| create_flags_of("/d/q/b-", 2)).collect());
    w.send(0, delete("/d/q"));
}

fn create_flags(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for op in [1, 15] {
        for flags in [0, 1, 2, 3, 5, 6, 7, 8, 255, -1, i32::MIN, i32::MAX] {
            w.send(0, create_with(op, "/d/n", flags, 0));
            w.send(0, exists("/d/n"));
            w.send(0, create_with(op, "/d/n/child", 0, 0));
            w.send(0, delete("/d/n/child"));
            w.send(0, delete("/d/n"));
        }
    }
    for flags in [4, 5, 6, 7, -1] {
        w.send(0, create_with(19, "/d/n", flags, 0));
        w.send(0, create("/d/n/child"));
        w.send(0, delete("/d/n/child"));
        w.send(0, exists("/d/n"));
        w.send(0, delete("/d/n"));
    }
    for flags in [5, 6, 7, -1] {
        w.send(0, create_with(21, "/d/n", flags, 1000));
        w.send(0, create("/d/n/child"));
        w.send(0, delete("/d/n/child"));
        w.send(0, exists("/d/n"));
        w.send(0, delete("/d/n"));
    }
    w.send(0, list("/d"));
}

fn times_to_live(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    let longest = (1i64 << 40) - 1;
    for ttl in [1, 1000, longest, longest + 1, 0, -1, i64::MAX, i64::MIN] {
        w.send(0, create_with(21, "/d/n", 5, ttl));
        w.send(0, delete("/d/n"));
        w.send(0, create_with(21, "/d/n", 6, ttl));
        w.send(0, multi(vec![create_with(21, "/d/n", 5, ttl), delete("/d/n")]));
    }
    // In a multi a createTTL whose flag has no TTL is an ordinary create.
    for flags in [0, 1, 2, 3, 4, 7] {
        for ttl in [1000, -1] {
            w.send(0, multi(vec![create_with(21, "/d/m", flags, ttl)]));
            w.send(0, delete("/d/m"));
        }
    }
    w.send(0, list("/d"));
}

fn errors_of_create(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    w.send(
        0,
        create_acl("/d/locked", Some(vec![entry(31, "auth", ""), entry(1, "world", "anyone")])),
    );
    w.send(0, create("/d/locked/taken"));
    w.send(0, create_flags_of("/d/eph", 1));
    w.send(0, create_acl("/d/full", open()));
    let bad_acl: AclList = Some(vec![entry(31, "world", "nobody")]);
    let faults: &[(&str, i32, AclList)] = &[
        ("relative", 99, bad_acl.clone()),
        ("relative", 0, bad_acl.clone()),
        ("/d/\0", 0, bad_acl.clone()),
        ("/d/none/x", 0, bad_acl.clone()),
        ("/d/none/x", 0, open()),
        ("/d/locked/\u{1}", 0, open()),
        ("/d/locked/taken", 0, open()),
        ("/d/locked/taken", 2, open()),
        ("/d/locked/new", 0, bad_acl.clone()),
        ("/d/eph/x", 0, open()),
        ("/d/eph/\u{1}", 0, open()),
        ("/d/eph/x", 0, bad_acl),
        ("/d/full/\u{1}", 0, open()),
        ("/d/full/", 0, open()),
        ("/d/full/.", 0, open()),
        ("/d/full/..", 0, open()),
        ("/d/full//x", 0, open()),
        ("/d/./x", 0, open()),
        ("/d/full", 0, open()),
        ("/d/none/x", 5, open()),
        ("relative", 5, None),
        ("relative", 7, None),
        ("/", 0, open()),
        ("/", 2, open()),
        ("", 0, open()),
        ("", 2, open()),
        ("d", 2, open()),
    ];
    for (path, flags, acl) in faults {
        let request = Request::Create {
            op: 1,
            path: (*path).into(),
            data: "x".into(),
            acl: acl.clone(),
            flags: *flags,
            ttl: 0,
        };
        w.send(1, request.clone());
        w.send(1, multi(vec![request]));
    }
    w.send(1, list("/d"));
}

fn errors_of_delete(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    w.send(
        0,
        create_acl("/d/locked", Some(vec![entry(31, "auth", ""), entry(1, "world", "anyone")])),
    );
    w.send(0, create("/d/locked/child"));
    w.send(0, create("/d/locked/child/leaf"));
    w.send(0, create("/d/open"));
    w.send(0, create("/d/open/child"));
    for path in [
        "relative",
        "",
        "/",
        "/d/\0",
        "/zookeeper",
        "/zookeeper/quota",
        "/zookeeper/config",
        "/zookeeper/",
        "/d/none",
        "/d/none/none",
        "/d/locked/child",
        "/d/locked/none",
        "/d/locked/\u{1}",
        "/d/locked/child/leaf",
        "/d/open",
        "/d/open/child/",
        "/d/open//child",
        "/d/open/./child",
        "d/open/child",
    ] {
        for version in [7, -1] {
            w.send(1, delete_at(path, version));
            w.send(1, multi(vec![delete_at(path, version)]));
        }
    }
    w.send(1, delete_at("/d/open/child", 0));
    w.send(1, list("/d"));
}

fn locked(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    w.send(0, create_acl("/d/locked", Some(vec![entry(31, "auth", "")])));
    w.send(0, create("/d/open"));
}

const ANY_PATHS: &[&str] = &[
    "relative",
    "",
    "/",
    "/d/\0",
    "/d/\u{1}",
    "/d/none",
    "/d/none/none",
    "/d/locked",
    "/d/locked/none",
    "/d/open",
    "/d/open/",
    "/d//open",
    "/d/./open",
    "d/open",
    "/zookeeper/config",
];

fn errors_of_set_data(w: &mut Writer) {
    locked(w);
    for path in ANY_PATHS.iter().filter(|path| **path != "/") {
        for version in [7, 0, -1] {
            w.send(1, set_at(path, "y", version));
            w.send(1, multi(vec![set_at(path, "y", version)]));
        }
    }
    w.send(1, set_at("/", "y", 77));
}

fn errors_of_set_acl(w: &mut Writer) {
    locked(w);
    for path in ANY_PATHS.iter().filter(|path| **path != "/") {
        for acl in [open(), None, Some(vec![entry(31, "world", "nobody")])] {
            for version in [7, 0] {
                w.send(1, Request::SetAcl { path: (*path).into(), acl: acl.clone(), version });
            }
        }
    }
    w.send(1, Request::SetAcl { path: "/".into(), acl: open(), version: 77 });
    w.send(1, get_acl("/d/open"));
}

fn errors_of_check(w: &mut Writer) {
    locked(w);
    for path in ANY_PATHS {
        for version in [7, 0, -1] {
            w.send(1, multi(vec![check_at(path, version)]));
        }
    }
    w.send(
        1,
        multi(vec![create("/d/n"), check_at("/d/n", 0), set("/d/n", ""), check_at("/d/n", 1)]),
    );
    w.send(1, multi(vec![delete("/d/n"), check_at("/d/n", 1)]));
    w.send(1, multi(vec![delete("/d/n")]));
    w.send(1, check_at("/d", 0));
}

fn errors_of_reads(w: &mut Writer) {
    locked(w);
    for path in ANY_PATHS {
        for op in [3, 4, 8, 12] {
            w.send(1, Request::Read { op, path: (*path).into(), watch: true });
            w.send(1, Request::Watches { op: 17, path: (*path).into(), kind: 3 });
            w.send(1, Request::Watches { op: 18, path: (*path).into(), kind: 3 });
        }
        w.send(1, get_acl(path));
        w.send(1, Request::GetAllChildrenNumber { path: (*path).into() });
        w.send(1, Request::Sync { path: (*path).into() });
        w.send(1, multi_reading(vec![get(path), get("/d")]));
    }
}

fn errors_of_reconfig(w: &mut Writer) {
    w.connect(0, 1);
    for joining in [Text::NULL, "server.2=127.0.0.1:2888:3888;2181".into(), "nonsense".into()] {
        for (members, config) in [(Text::NULL, -1), ("".into(), -1), ("x".into(), 5)] {
            w.send(
                0,
                Request::Reconfig {
                    joining: joining.clone(),
                    leaving: "1".into(),
                    members: members.clone(),
                    config,
                },
            );
        }
    }
    w.auth(0, "super:test");
    w.send(
        0,
        Request::Reconfig {
            joining: Text::NULL,
            leaving: "1".into(),
            members: Text::NULL,
            config: -1,
        },
    );
    w.send(0, get("/zookeeper/config"));
}

fn paths(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for name in [
        "a",
        "...",
        ".a",
        "a.",
        " ",
        "\u{e4}",
        "\u{4e2d}",
        "\u{0}",
        "\u{1}",
        "\u{1f}",
        "\u{20}",
        "\u{7e}",
        "\u{7f}",
        "\u{80}",
        "\u{9f}",
        "\u{a0}",
        "\u{d7ff}",
        "\u{e000}",
        "\u{f8ff}",
        "\u{f900}",
        "\u{ffef}",
        "\u{fff0}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10000}",
        "\u{1f600}",
        ".",
        "..",
        "",
        "a/",
        "/a",
        "a//b",
        "a/./b",
        "a/../b",
    ] {
        let path = format!("/d/{name}");
        for request in [
            create(&path),
            exists(&path),
            set(&path, ""),
            set_acl(&path, open()),
            multi(vec![check_at(&path, -1)]),
            Request::SetWatches {
                op: 101,
                relative: ZxidRef::Absolute(0),
                lists: vec![Some(vec![path.as_str().into()]), Some(Vec::new()), Some(Vec::new())],
            },
            delete(&path),
        ] {
            w.send(0, request);
        }
    }
}

fn the_root_and_what_is_zookeepers_own(w: &mut Writer) {
    w.connect(0, 1);
    let own = ["/", "", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];
    let look = |w: &mut Writer| {
        for path in own {
            for request in [exists(path), get(path), list(path), get_acl(path)] {
                w.send(0, request);
            }
            w.send(0, Request::GetAllChildrenNumber { path: path.into() });
        }
    };
    look(w);
    for path in own {
        for request in [create(path), delete(path), set(path, "changed"), set(path, "")] {
            w.send(0, request);
        }
    }
    look(w);
    w.send(0, create("/zookeeper/mine"));
    w.send(0, set("/zookeeper/mine", "x"));
    w.send(0, delete("/zookeeper/mine"));
    w.send(0, create("/zookeeper/config/x"));
    w.send(0, create("/zookeeper/quota/x"));
    w.send(0, delete("/zookeeper/quota/x"));
    w.send(0, set_acl("/zookeeper/config", open()));
    w.auth(0, "super:test");
    w.send(0, get_acl("/zookeeper/config"));
    w.send(0, set("/zookeeper/config", "by the super user"));
    w.send(0, get("/zookeeper/config"));
    w.send(0, set("/zookeeper/config", ""));
    // A root ACL that allows no creates, and back.
    w.connect(1, 2);
    w.send(0, set_acl("/", Some(vec![entry(1, "world", "anyone")])));
    w.send(1, create("/d"));
    w.send(0, set_acl("/", open()));
    w.send(1, create("/d"));
    w.send(1, get_acl("/"));
    look(w);
}

fn acl_entries(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(1, "u:p");
    w.send(0, create("/d"));
    for (scheme, id) in [
        ("world", "anyone"),
        ("world", "any"),
        ("world", ""),
        ("World", "anyone"),
        ("auth", ""),
        ("auth", "x:y"),
        ("digest", "a"),
        ("digest", "a:b"),
        ("digest", "a:b:c"),
        ("digest", ":b"),
        ("digest", "a:"),
        ("digest", ":"),
        ("digest", "::"),
        ("digest", ""),
        ("digest", "a:b::"),
        ("digest", "a::b"),
        ("digest", "\u{1f600}:\u{e4}"),
        ("digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
        ("super", ""),
        ("super", "x"),
        ("sasl", "x"),
        ("x509", "CN=a"),
        ("ensemble", "x"),
        ("key", "x"),
        ("nosuch", "x"),
        ("", ""),
    ] {
        let acl = Some(vec![entry(31, scheme, id)]);
        for slot in [0, 1] {
            w.send(slot, create_acl("/d/n", acl.clone()));
            w.send(slot, get_acl("/d/n"));
            w.send(1 - slot, get_acl("/d/n"));
            w.send(
                slot,
                set_acl("/d/n", Some(vec![entry(31, scheme, id), entry(1, "world", "anyone")])),
            );
            w.send(slot, delete("/d/n"));
        }
    }
    for (scheme, id) in [
        ("world".into(), Text::NULL),
        ("digest".into(), Text::NULL),
        ("ip".into(), Text::NULL),
        ("auth".into(), Text::NULL),
        ("nosuch".into(), Text::NULL),
        (Text::NULL, "anyone".into()),
        (Text::NULL, Text::NULL),
    ] {
        let acl = Some(vec![Entry { perms: 31, scheme, id }]);
        w.send(0, create_acl("/d/n", acl.clone()));
        w.send(1, create_acl("/d/n", acl.clone()));
        w.send(1, delete("/d/n"));
        w.send(0, set_acl("/d", acl));
    }
}

fn acl_addresses(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for id in [
        "127.0.0.1",
        "127.0.0.1/32",
        "127.0.0.1/8",
        "127.0.0.0/8",
        "127.0.0.2/31",
        "127.0.0.2/30",
        "10.0.0.0/8",
        "10.0.0.0/0",
        "127.0.0.1/0",
        "127.0.0.1/33",
        "127.0.0.1/-1",
        "127.0.0.1/x",
        "127.0.0.1/",
        "127.0.0.1/8/8",
        "127.0.0.1/08",
        "127.0.0.1/+8",
        "127.0.0.1/ 8",
        "127.0.0.01",
        "127.0.0.001",
        "0x7f.0.0.1",
        "127.1",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.",
        "1.2..4",
        ".1.2.3",
        "256.1.1.1",
        "-1.1.1.1",
        "+1.1.1.1",
        "a.b.c.d",
        " 127.0.0.1",
        "127.0.0.1 ",
        "",
        "/8",
        "/",
        "localhost",
        "::1",
        "::1/128",
        "::1/129",
        "::1/0",
        "::/0",
        "::",
        "::0",
        "fe80::1",
        "fe80::1%lo",
        "fe80::1/64",
        "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1::8",
        "1::2::3",
        ":::",
        ":1",
        "1:",
        "12345::",
        "g::",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "ABCD::EF01",
        "1:2:3:4:5:6:1.2.3.4",
        "0:0:0:0:0:0:0:1",
        "1:2:3:4::5:6:7:8",
        "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8",
        "00001::",
    ] {
        w.send(0, create_acl("/d/n", Some(vec![entry(31, "ip", id)])));
        w.send(0, get("/d/n"));
        w.send(0, get_acl("/d/n"));
        w.send(0, delete("/d/n"));
    }
}

fn acl_lists_keep_their_order(w: &mut Writer) {
    w.connect(0, 1);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    let lists: Vec<Vec<Entry>> = vec![
        vec![entry(1, "world", "anyone"), entry(31, "auth", ""), entry(2, "ip", "127.0.0.1")],
        vec![entry(31, "digest", "b:x"), entry(31, "world", "anyone"), entry(31, "digest", "a:x")],
        vec![
            entry(31, "world", "anyone"),
            entry(31, "world", "anyone"),
            entry(1, "world", "anyone"),
        ],
        vec![entry(31, "auth", "x"), entry(31, "auth", "y")],
        vec![entry(31, "auth", ""), entry(31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=")],
        vec![entry(31, "world", "anyone"), entry(31, "digest", "bad")],
    ];
    for list in lists {
        w.send(0, create_acl("/d/n", Some(list.clone())));
        w.send(0, get_acl("/d/n"));
        w.send(0, set_acl("/d/n", Some(list.into_iter().rev().collect())));
        w.send(0, get_acl("/d/n"));
        w.send(0, delete("/d/n"));
    }
    // Two identities: `auth` expands to both.
    w.auth(0, "v:q");
    w.send(0, create_acl("/d/two", Some(vec![entry(31, "auth", "")])));
    w.send(0, get_acl("/d/two"));
}

fn permissions_one_by_one(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    for perms in [1, 2, 4, 8, 16, 0, 30, 15, 32, 64, -1, i32::MIN] {
        let acl = Some(vec![entry(31, "auth", ""), entry(perms, "world", "anyone")]);
        w.send(0, create_acl("/d/n", acl));
        w.send(0, create("/d/n/old"));
        for request in [
            exists("/d/n"),
            get("/d/n"),
            list("/d/n"),
            Request::Read { op: 8, path: "/d/n".into(), watch: false },
            get_acl("/d/n"),
            Request::GetAllChildrenNumber { path: "/d/n".into() },
            set("/d/n", "y"),
            create("/d/n/new"),
            create_flags_of("/d/n/s", 2),
            delete("/d/n/old"),
            multi(vec![check_at("/d/n", -1)]),
            multi_reading(vec![
                get("/d/n"),
                Request::Read { op: 8, path: "/d/n".into(), watch: false },
            ]),
            Request::SetAcl {
                path: "/d/n".into(),
                acl: Some(vec![entry(31, "auth", "")]),
                version: 9,
            },
        ] {
            w.send(1, request);
        }
        w.send(1, set_acl("/d/n", Some(vec![entry(31, "world", "anyone")])));
        for path in ["/d/n/old", "/d/n/new", "/d/n/s0000000001", "/d/n/s0000000002", "/d/n"] {
            w.send(0, delete(path));
        }
    }
    // The super user passes all checks.
    w.send(0, create_acl("/d/n", Some(vec![entry(31, "auth", "")])));
    w.auth(1, "super:wrong");
    w.send(1, get("/d/n"));
    w.auth(1, "super:test");
    w.send(1, get("/d/n"));
    w.send(1, set("/d/n", "by super"));
    w.send(1, create("/d/n/x"));
    w.send(1, set_acl("/d/n", Some(vec![entry(31, "auth", "")])));
    w.send(1, get_acl("/d/n"));
}

fn digests_are_masked(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.auth(0, "u:p");
    w.send(0, create("/d"));
    for perms in [1, 16, 17, 2] {
        let acl = Some(vec![
            entry(31, "auth", ""),
            entry(31, "digest", "a:b"),
            entry(1, "digest", "x:y::"),
            entry(2, "digest", ":y"),
            entry(31, "ip", "10.0.0.1"),
            entry(perms, "world", "anyone"),
        ]);
        w.send(0, create_acl("/d/n", acl));
        w.send(0, get_acl("/d/n"));
        w.send(1, get_acl("/d/n"));
        w.send(0, delete("/d/n"));
    }
}

fn authentication(w: &mut Writer) {
    let text = |text: &str| Text::from(text);
    for (scheme, auth) in [
        (text("digest"), text("u:p")),
        (text("digest"), text("u")),
        (text("digest"), text("")),
        (text("digest"), text(":")),
        (text("digest"), text(":p")),
        (text("digest"), text("u:")),
        (text("digest"), text("a:b:c")),
        (text("digest"), Text::NULL),
        (text("Digest"), text("u:p")),
        (text("digest"), text("super:test")),
        (text("digest"), text("super:wrong")),
        (text("ip"), text("1.2.3.4")),
        (text("ip"), text("")),
        (text("ip"), Text::NULL),
        (text("world"), text("anyone")),
        (text("auth"), text("")),
        (text("sasl"), text("x")),
        (text("x509"), text("x")),
        (text("super"), text("x")),
        (text("ensemble"), text("x")),
        (text("nosuch"), text("x")),
        (text(""), text("x")),
        (Text::NULL, text("x")),
        (Text::NULL, Text::NULL),
    ] {
        w.connect_afresh(0);
        w.send(0, Request::Auth { kind: 0, scheme, auth });
        w.send(0, Request::WhoAmI);
        w.send(0, create_acl("/d", Some(vec![entry(31, "auth", "")])));
        w.send(0, get_acl("/d"));
        w.send(0, delete("/d"));
    }
    w.connect(1, 1);
    for kind in [1, -1, i32::MAX] {
        w.send(1, Request::Auth { kind, scheme: "digest".into(), auth: "u:p".into() });
    }
    w.auth(1, "u:p");
    w.auth(1, "u:other");
    w.auth(1, "v:q");
    w.send(1, Request::WhoAmI);
    // Identities belong to the connection.
    w.handshake(2, Connect::again(1));
    w.send(2, Request::WhoAmI);
}

fn sasl_without_sasl(w: &mut Writer) {
    for token in [Text::from("token"), "".into(), Text::NULL] {
        w.connect_afresh(0);
        w.send(0, Request::Sasl { token });
        w.send(0, Request::WhoAmI);
    }
}

fn text_that_is_not_utf8(w: &mut Writer) {
    let texts: &[&[u8]] = &[
        b"\xff",
        b"\xfe\xff",
        b"\x80",
        b"\x80\x80",
        b"\xbf",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xc3",
        b"\xc3\x28",
        b"\xc3\xa4",
        b"\xe0\x80\x80",
        b"\xe0\x9f\xbf",
        b"\xe0\xa0",
        b"\xe2\x82",
        b"\xe2\x28\xa1",
        b"\xe2\x82\x28",
        b"\xed\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xa0\xbd\xed\xb8\x80",
        b"\xed\xbf\xbf",
        b"\xee\x80\x80",
        b"\xf0\x80\x80\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xf0\x9f\x98",
        b"\xf0\x9f",
        b"\xf0\x28\x8c\xbc",
        b"\xf0\x90\x28\xbc",
        b"\xf0\x90\x8c\x28",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"a\xffb\xfec",
        b"\xf0\x9f\x98\x80\xed\xa0\xbd\xff\xc3\xa4",
    ];
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    for bytes in texts {
        w.send(0, Request::Sync { path: Text(Some(bytes.to_vec())) });
        let path = Text(Some([b"/d/", *bytes].concat()));
        w.send(
            0,
            Request::SetWatches {
                op: 101,
                relative: ZxidRef::Absolute(0),
                lists: vec![Some(vec![path.clone()]), Some(Vec::new()), Some(Vec::new())],
            },
        );
        w.send(
            0,
            Request::Create {
                op: 1,
                path: path.clone(),
                data: "".into(),
                acl: open(),
                flags: 0,
                ttl: 0,
            },
        );
        w.send(0, Request::Delete { path, version: -1 });
        let id = Text(Some([bytes, &b":x"[..]].concat()));
        let acl =
            vec![entry(31, "world", "anyone"), Entry { perms: 1, scheme: "digest".into(), id }];
        w.send(0, create_acl("/d/n", Some(acl)));
        w.send(0, get_acl("/d/n"));
        w.send(0, delete("/d/n"));
        let auth = Text(Some([bytes, &b":p"[..]].concat()));
        w.connect_afresh(1);
        w.send(1, Request::Auth { kind: 0, scheme: "digest".into(), auth });
        w.send(1, Request::WhoAmI);
        if exceptions::is_beyond_plane_0(&Text(Some(bytes.to_vec()))) {
            continue;
        }
        w.send(1, create_acl("/d/n", Some(vec![entry(31, "auth", "")])));
        w.send(1, get_acl("/d/n"));
        w.send(1, delete("/d/n"));
    }
}

/// Sends the request that registers one kind of watch on a path.
fn watch(w: &mut Writer, slot: Slot, kind: char, path: &str) {
    w.send(
        slot,
        match kind {
            'x' => watching(3, path),
            'd' => watching(4, path),
            'c' => watching(8, path),
            'C' => watching(12, path),
            'p' => add_watch(path, 0),
            _ => add_watch(path, 1),
        },
    );
}

/// Changes nodes around /d/p/n, with every kind of watch on the node, its parent and an ancestor.
fn events_of_every_change(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for kinds in ["x", "d", "c", "C", "p", "r", "dc", "dp", "dr", "cp", "cr", "pr", "xdcpr"] {
        for target in ["/d/p/n", "/d/p", "/d"] {
            w.send(0, create("/d/p"));
            w.send(0, create("/d/p/n"));
            w.connect_afresh(1);
            for kind in kinds.chars() {
                watch(w, 1, kind, target);
            }
            for request in [
                set("/d/p/n", "1"),
                set_acl("/d/p/n", open()),
                create("/d/p/n/child"),
                set("/d/p/n/child", ""),
                delete("/d/p/n/child"),
                create("/d/p/n"),
                delete("/d/p/n"),
                create("/d/p/n"),
                set("/d/p/n", "2"),
                delete("/d/p/n"),
                delete("/d/p"),
            ] {
                w.send(0, request);
            }
            w.close(1);
        }
    }
}

fn events_across_connections(w: &mut Writer) {
    for slot in 0..4 {
        w.connect(slot, 1 + slot as Label);
    }
    w.send(0, create("/d"));
    w.send(0, create("/d/n"));
    for (slot, kinds) in [(0, "dcpr"), (1, "dc"), (2, "p"), (3, "r")] {
        for kind in kinds.chars() {
            watch(w, slot, kind, "/d/n");
            watch(w, slot, kind, "/d");
        }
    }
    // The session that changes a node receives the event before the reply.
    w.send(0, set("/d/n", "1"));
    w.send(0, create_flags_of("/d/n/e", 1));
    w.send(1, create_flags_of("/d/n/s", 3));
    w.close(1);
    w.send(0, delete("/d/n/e"));
    w.send(0, delete("/d/n"));
    w.batch(0, vec![create("/d/n"), get("/d/n"), set("/d/n", "2"), get("/d/n"), delete("/d/n")]);
}

fn events_of_a_multi(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    for kinds in ["d", "c", "p", "r", "dcpr"] {
        w.send(0, create("/d/a"));
        for kind in kinds.chars() {
            for path in ["/d", "/d/a"] {
                watch(w, 1, kind, path);
                watch(w, 0, kind, path);
            }
            watch(w, 1, 'x', "/d/b");
        }
        w.send(
            0,
            multi(vec![
                set("/d/a", "1"),
                create("/d/b"),
                set("/d/b", "2"),
                check_at("/d/b", 1),
                create("/d/a/x"),
                delete("/d/a/x"),
                delete("/d/a"),
                set("/d", "3"),
            ]),
        );
        w.send(0, multi(vec![set("/d", "4"), delete("/d/none")]));
        w.send(0, delete("/d/b"));
    }
}

fn events_need_permission_to_read(w: &mut Writer) {
    w.connect(0, 1);
    w.auth(0, "u:p");
    w.connect(1, 2);
    w.connect(2, 3);
    w.auth(2, "u:p");
    let mine = || Some(vec![entry(31, "auth", "")]);
    w.send(0, create("/d"));
    for slot in [1, 2] {
        for kind in "dcpr".chars() {
            watch(w, slot, kind, "/d");
        }
        w.send(slot, watching(3, "/d/s"));
    }
    w.send(0, create_acl("/d/s", mine()));
    w.send(1, Request::Watches { op: 17, path: "/d/s".into(), kind: 2 });
    for slot in [1, 2] {
        watch(w, slot, 'd', "/d/s");
        watch(w, slot, 'c', "/d/s");
        watch(w, slot, 'p', "/d/s");
    }
    w.send(0, set("/d/s", "1"));
    w.send(0, create("/d/s/open"));
    w.send(0, set("/d/s/open", "1"));
    w.send(0, delete("/d/s/open"));
    w.send(0, delete("/d/s"));
    w.send(0, set_acl("/d", mine()));
    w.send(0, create("/d/o"));
    w.send(0, set("/d", "2"));
    w.send(0, delete("/d/o"));
    for kind in [1, 2, 4, 5] {
        w.send(1, Request::Watches { op: 17, path: "/d".into(), kind });
    }
    // After authentication, watches registered before receive events again.
    w.auth(1, "u:p");
    w.send(0, set("/d", "3"));
    w.connect(3, 4);
    w.send(
        3,
        Request::SetWatches {
            op: 101,
            relative: ZxidRef::Absolute(0),
            lists: vec![Some(vec!["/d".into()]), Some(vec!["/d".into()]), Some(vec!["/d".into()])],
        },
    );
    w.send(0, delete("/d"));
}

fn watches_on_the_root(w: &mut Writer) {
    w.connect(0, 1);
    for kinds in ["x", "d", "c", "p", "r", "xdcpr"] {
        for target in ["/", ""] {
            w.connect_afresh(1);
            for kind in kinds.chars() {
                watch(w, 1, kind, target);
            }
            for request in [
                create("/d"),
                create("/d/x"),
                set("/d/x", ""),
                delete("/d/x"),
                delete("/d"),
                set("/", ""),
            ] {
                w.send(0, request);
            }
            for kind in 1..=5 {
                w.send(1, Request::Watches { op: 17, path: target.into(), kind });
            }
            w.close(1);
        }
    }
    // A path with a common name prefix is not a descendant.
    w.connect(1, 2);
    watch(w, 1, 'r', "/d/a");
    watch(w, 1, 'r', "/d/");
    watch(w, 1, 'r', "d");
    for request in
        [create("/d"), create("/d/ab"), create("/d/a"), create("/d/a/b"), set("/d/ab", "")]
    {
        w.send(0, request);
    }
}

fn watches_are_removed_by_kind(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    for kinds in ["d", "c", "p", "r", "dc", "dp", "dr", "cp", "cr", "pr", "dcpr"] {
        for kind in [0, 1, 2, 3, 4, 5, 6] {
            w.connect_afresh(1);
            for watched in kinds.chars() {
                watch(w, 1, watched, "/d");
            }
            for other in ["/d/n", "/"] {
                w.send(1, Request::Watches { op: 18, path: other.into(), kind });
            }
            w.send(1, Request::Watches { op: 17, path: "/d".into(), kind });
            w.send(1, Request::Watches { op: 18, path: "/d".into(), kind });
            w.send(1, Request::Watches { op: 18, path: "/d".into(), kind });
            for left in 1..=5 {
                w.send(1, Request::Watches { op: 17, path: "/d".into(), kind: left });
            }
            w.send(0, set("/d", ""));
            w.send(0, create("/d/n"));
            w.send(0, delete("/d/n"));
            w.close(1);
        }
    }
}

fn watches_end_with_their_connection(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    for kind in "dcpr".chars() {
        watch(w, 1, kind, "/d");
    }
    w.handshake(2, Connect::again(2));
    w.send(0, set("/d", "1"));
    w.send(2, Request::Watches { op: 17, path: "/d".into(), kind: 3 });
    w.send(
        2,
        Request::SetWatches {
            op: 105,
            relative: ZxidRef::Seen(-1),
            lists: vec![
                Some(vec!["/d".into()]),
                Some(Vec::new()),
                Some(vec!["/d".into()]),
                Some(vec!["/d".into()]),
                Some(vec!["/d".into()]),
            ],
        },
    );
    w.send(0, set("/d", "2"));
    w.send(0, create("/d/x"));
    w.send(0, delete("/d/x"));
}

fn watches_are_set_again(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    w.send(0, create("/d/old"));
    w.send(0, create("/d/set"));
    w.send(0, create("/d/parent"));
    // Five transactions from here to `exists`.
    w.send(0, set("/d/set", "1"));
    w.send(0, create("/d/parent/x"));
    w.send(0, delete("/d/parent/x"));
    w.send(0, create("/d/new"));
    w.send(0, set_acl("/d/old", open()));
    w.send(0, exists("/d"));
    let everything = || -> Option<Vec<Text>> {
        Some(
            ["/d/old", "/d/set", "/d/parent", "/d/new", "/d/gone", "/d", "/", "", "bad", "/d/old"]
                .iter()
                .map(|path| Text::from(*path))
                .collect(),
        )
    };
    for back in 0..8 {
        for op in [101, 105] {
            for filled in 0..if op == 101 { 3 } else { 5 } {
                w.connect_afresh(1);
                let mut lists = vec![Some(Vec::new()); if op == 101 { 3 } else { 5 }];
                lists[filled] = everything();
                w.send(1, Request::SetWatches { op, relative: ZxidRef::Seen(-back), lists });
                for path in ["/d/old", "/d/set", "/d/parent", "/d/gone", "/"] {
                    w.send(1, Request::Watches { op: 17, path: path.into(), kind: 3 });
                }
                // Drop, not close: a closeSession transaction would move the zxid that `Seen` is
                // relative to.
                w.steps.push(Step::Drop { slot: 1 });
            }
        }
    }
    w.connect(1, 2);
    w.send(
        1,
        Request::SetWatches {
            op: 105,
            relative: ZxidRef::Absolute(0),
            lists: vec![everything(); 5],
        },
    );
    w.send(
        1,
        Request::SetWatches {
            op: 105,
            relative: ZxidRef::Absolute(i64::MAX),
            lists: vec![everything(); 5],
        },
    );
    for request in [
        set("/d/old", "2"),
        create("/d/gone"),
        create("/d/old/x"),
        delete("/d/old/x"),
        delete("/d/old"),
        delete("/d/gone"),
    ] {
        w.send(0, request);
    }
}

fn watch_counts(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    w.watch_counts();
    watch(w, 1, 'd', "/d");
    w.watch_counts();
    watch(w, 1, 'x', "/d/none");
    watch(w, 1, 'c', "/d");
    w.watch_counts();
    watch(w, 1, 'p', "/d");
    watch(w, 1, 'r', "/d");
    w.watch_counts();
    watch(w, 0, 'r', "/d");
    w.watch_counts();
    w.send(0, set("/d", ""));
    w.send(0, create("/d/none"));
    w.watch_counts();
    w.send(1, Request::Watches { op: 18, path: "/d".into(), kind: 3 });
    w.watch_counts();
    w.close(0);
    w.watch_counts();
    w.close(1);
    w.watch_counts();
}

fn failed_reads_and_watches(w: &mut Writer) {
    locked(w);
    for path in ["/d/none", "/d/locked", "/d/open"] {
        for op in [3, 4, 8, 12] {
            w.send(1, watching(op, path));
            for kind in 1..=3 {
                w.send(1, Request::Watches { op: 17, path: path.into(), kind });
            }
            w.send(1, Request::Watches { op: 18, path: path.into(), kind: 3 });
        }
        for mode in [0, 1, 2, -1, 5] {
            w.send(1, add_watch(path, mode));
            for kind in 1..=5 {
                w.send(1, Request::Watches { op: 17, path: path.into(), kind });
            }
            w.send(1, Request::Watches { op: 18, path: path.into(), kind: 3 });
        }
    }
}

fn multi_results(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, multi(Vec::new()));
    w.send(0, multi(vec![create("/d")]));
    w.send(0, multi(vec![create_with(15, "/d/c2", 0, 0)]));
    w.send(0, multi(vec![create_with(19, "/d/con", 4, 0)]));
    w.send(0, multi(vec![create_with(21, "/d/ttl", 5, 100_000)]));
    w.send(0, multi(vec![create_with(21, "/d/ttl", 6, 100_000)]));
    // In a multi the flag has precedence: an ordinary create with flag 4 creates a container.
    w.send(0, multi(vec![create_with(1, "/d/con4", 4, 0)]));
    w.send(0, multi(vec![create_with(15, "/d/con15", 4, 0)]));
    for flags in [1, 2, 3] {
        w.send(0, multi(vec![create_with(1, "/d/f", flags, 0), create_with(15, "/d/g", flags, 0)]));
    }
    w.send(0, Request::GetEphemerals { prefix: "/d".into() });
    w.send(0, multi(vec![set("/d", "1"), set("/d", "2"), set_at("/d", "3", 2)]));
    w.send(0, multi(vec![check_at("/d", 3)]));
    w.send(0, multi(vec![create("/d/x"), create("/d/x/y"), delete("/d/x/y"), delete("/d/x")]));
    w.send(0, multi(vec![create("/d/x"), delete("/d/x"), create("/d/x")]));
    w.send(0, multi(vec![delete("/d/x"), create_flags_of("/d/x", 1)]));
    w.send(0, multi(vec![create_data("/d/n", "1"), set("/d/n", "22"), create("/d/n/x")]));
    w.send(0, list("/d"));
    w.send(0, exists("/d/n"));
}

fn multi_fails_as_one(w: &mut Writer) {
    locked(w);
    let good =
        || vec![create("/d/x"), set("/d/open", "y"), delete("/d/x"), check_at("/d/open", -1)];
    for bad in [
        delete("/d/none"),
        delete_at("/d/open", 9),
        delete("/d"),
        delete("/"),
        create("/d/open"),
        create("/d/none/x"),
        create("relative"),
        create("/d/\u{1}"),
        create_acl("/d/y", None),
        create("/d/locked/x"),
        set("/d/none", ""),
        set("/d/locked", ""),
        set_at("/d/open", "", 9),
        check_at("/d/none", -1),
        check_at("/d/locked", -1),
        check_at("/d/open", 9),
    ] {
        for at in 0..=4 {
            let mut operations = good();
            operations.insert(at, bad.clone());
            w.send(1, multi(operations));
        }
    }
    // Failed multis do not affect later requests of the same write.
    w.batch(
        1,
        vec![
            multi(vec![create("/d/x"), delete("/d/none")]),
            create("/d/x"),
            multi(vec![delete("/d/x"), delete("/d/none")]),
            get("/d/x"),
            create("/d/x"),
            multi(vec![create_flags_of("/d/s", 2), delete("/d/none")]),
            create_flags_of("/d/s", 2),
        ],
    );
    w.send(1, list("/d"));
}

fn multi_refuses(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    let kinds = [
        0, 3, 4, 6, 7, 8, 9, 11, 12, 14, 16, 17, 18, 20, 22, 99, 100, 101, 103, 104, 105, 106, 107,
        -1, -10, -11,
    ];
    for kind in kinds {
        for operation in [
            get("/d"),
            Request::SetAcl { path: "/d".into(), acl: open(), version: -1 },
            Request::Bytes { op: 0, body: Vec::new() },
        ] {
            let operations = vec![(1, create("/d/x")), (kind, operation)];
            w.send(0, Request::Multi { op: 14, operations, ended: true });
        }
    }
    for flags in [5, 6, 7, -1, i32::MAX] {
        for op in [1, 15, 19] {
            w.send(0, multi(vec![create("/d/x"), create_with(op, "/d/y", flags, 0)]));
        }
    }
    w.send(0, Request::Multi { op: 14, operations: vec![(1, create("/d/x"))], ended: false });
    w.send(0, Request::Multi { op: 14, operations: Vec::new(), ended: false });
    w.send(0, multi(vec![get("/d")]));
    w.send(0, multi(vec![get("/d"), create("/d/x")]));
    w.send(0, list("/d"));
}

fn multi_read(w: &mut Writer) {
    locked(w);
    let children = |path: &str| Request::Read { op: 8, path: path.into(), watch: true };
    w.send(1, multi_reading(Vec::new()));
    w.send(1, multi_reading(vec![get("/d"), children("/d"), get("/d/none"), children("/d/none")]));
    w.send(1, multi_reading(vec![get("/d/locked"), children("/d/locked"), get("/d/open")]));
    w.send(1, multi_reading(vec![watching(4, "/d"), watching(8, "/d")]));
    w.send(1, Request::Watches { op: 17, path: "/d".into(), kind: 3 });
    w.send(1, multi_reading(vec![get("bad"), get(""), get("/"), children(""), get("/d/")]));
    for kind in [0, 1, 2, 3, 5, 6, 7, 9, 12, 13, 14, 15, 19, 20, 22, 99, -1] {
        let operations = vec![(4, get("/d")), (kind, create("/d/x"))];
        w.send(1, Request::Multi { op: 22, operations, ended: true });
        let operations = vec![(kind, create("/d/x"))];
        w.send(1, Request::Multi { op: 22, operations, ended: true });
    }
    w.send(1, Request::Multi { op: 22, operations: vec![(4, get("/d"))], ended: false });
    w.send(1, list("/d"));
}

fn requests_in_one_write(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    watch(w, 1, 'r', "/d");
    w.batch(
        0,
        vec![
            create("/d/a"),
            exists("/d/a"),
            set("/d/a", "1"),
            get("/d/a"),
            create("/d/a/b"),
            list("/d/a"),
            delete("/d/a"),
            delete("/d/a/b"),
            list("/d/a"),
            delete("/d/a"),
            exists("/d/a"),
            Request::Ping,
            create("/d/a"),
            Request::Sync { path: "/d".into() },
            get("/d/a"),
        ],
    );
    w.batch(
        0,
        vec![
            watching(4, "/d/a"),
            set("/d/a", "2"),
            watching(4, "/d/a"),
            set("/d/a", "3"),
            get("/d/a"),
        ],
    );
    w.batch(
        0,
        vec![get("/d/a"), get("/d/none"), set("/d/a", "4"), get("/d/a"), set_at("/d/a", "5", 77)],
    );
    w.batch(
        0,
        vec![
            create_acl("/d/acl", Some(vec![entry(31, "digest", "nobody:x")])),
            get("/d/acl"),
            create("/d/acl/x"),
            set("/d/acl", ""),
            delete("/d/acl"),
        ],
    );
    w.batch(
        0,
        vec![
            create_flags_of("/d/e", 1),
            create("/d/e/x"),
            delete("/d/e"),
            create("/d/e"),
            create("/d/e/x"),
            Request::GetEphemerals { prefix: "/d".into() },
        ],
    );
    w.batch(
        0,
        vec![
            Request::Auth { kind: 0, scheme: "digest".into(), auth: "u:p".into() },
            create_acl("/d/auth", Some(vec![entry(31, "auth", "")])),
            get_acl("/d/auth"),
            set_acl("/d/auth", Some(vec![entry(1, "world", "anyone")])),
        ],
    );
    w.batch(0, (0..50).map(|n| set("/d/a", &n.to_string())).collect());
    w.batch(0, (0..100).map(|n| if n % 2 == 0 { get("/d/a") } else { set("/d/a", "z") }).collect());
    w.batch(0, vec![create_flags_of("/d/last", 1), set("/d/last", "x"), Request::CloseSession]);
    w.send(1, list("/d"));
}

fn ephemerals(w: &mut Writer) {
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    for request in [
        create_flags_of("/d/e1", 1),
        create_flags_of("/d/e12", 1),
        create_flags_of("/d/s", 3),
        create("/d/e1/x"),
        create_flags_of("/d/e1/x", 1),
        create_flags_of("/d/e1/x", 2),
        create("/d/sub"),
        create_with(15, "/d/sub/e", 1, 0),
        exists("/d/e1"),
    ] {
        w.send(0, request);
    }
    w.send(1, create_flags_of("/d/other", 1));
    for prefix in [
        Text::NULL,
        "".into(),
        " ".into(),
        "\t\n".into(),
        "/".into(),
        " /".into(),
        "/d".into(),
        "/d/".into(),
        "/d/e1".into(),
        "/d/e1/".into(),
        "/d/e12".into(),
        " /d".into(),
        "d".into(),
        "/d/other".into(),
        "/none".into(),
    ] {
        w.send(0, Request::GetEphemerals { prefix: prefix.clone() });
        w.send(1, Request::GetEphemerals { prefix });
    }
    // Other sessions may change ephemerals; a deletion ends the ownership.
    w.send(1, set("/d/e1", "by another"));
    w.send(1, delete("/d/e12"));
    w.send(0, Request::GetEphemerals { prefix: "/d".into() });
    for kind in "dcpr".chars() {
        watch(w, 1, kind, "/d");
        watch(w, 1, kind, "/d/e1");
        watch(w, 1, kind, "/d/sub/e");
    }
    w.close(0);
    w.send(1, list("/d"));
    w.send(1, list("/d/sub"));
    w.connect(0, 3);
    w.send(0, create_flags_of("/d/e1", 1));
    w.send(0, delete("/d/e1"));
    w.send(0, create("/d/e1"));
    w.close(0);
    w.send(1, exists("/d/e1"));
}

fn counting_descendants(w: &mut Writer) {
    w.connect(0, 1);
    for path in ["/d", "/d/a", "/d/a/b", "/d/a/b/c", "/d/ab", "/d/b"] {
        w.send(0, create(path));
    }
    for path in ["/", "", "/d", "/d/a", "/d/a/", "/d/a/b", "/d/ab", "/d/none", "/zookeeper", "d"] {
        w.send(0, Request::GetAllChildrenNumber { path: path.into() });
    }
}

fn quota_nodes(w: &mut Writer, path: &str, limits: &str) {
    let mut at = "/zookeeper/quota".to_owned();
    for part in path.split('/').skip(1) {
        at = format!("{at}/{part}");
        w.send(0, create_data(&at, ""));
    }
    w.send(0, create_data(&format!("{at}/zookeeper_limits"), limits));
    w.send(0, create_data(&format!("{at}/zookeeper_stats"), "count=77,bytes=77"));
}

fn quota_bookkeeping(w: &mut Writer) {
    const STATS: &str = "/zookeeper/quota/d/zookeeper_stats";
    w.connect(0, 1);
    w.connect(1, 2);
    w.send(0, create("/d"));
    w.send(0, create_data("/d/a", "12345"));
    quota_nodes(w, "/d", "count=100,bytes=1000");
    watch(w, 1, 'd', STATS);
    watch(w, 1, 'p', "/zookeeper/quota/d");
    w.send(1, get(STATS));
    for request in [
        create_data("/d/b", "1234567890"),
        set("/d/b", "1"),
        set("/d/b", "1"),
        Request::SetData { path: "/d/b".into(), data: Text::NULL, version: -1 },
        set("/d", "1234"),
        create_flags_of("/d/e", 1),
        create_with(19, "/d/con", 4, 0),
        delete("/d/b"),
        multi(vec![create_data("/d/m", "123"), set("/d/m", "12345"), delete("/d/a")]),
        multi(vec![create_data("/d/m2", "123"), delete("/d/none")]),
        create("/dd"),
        delete("/dd"),
        create_data("/d/m/deep", "1"),
        set(STATS, "count=5,bytes=5"),
        create_data("/d/m/deeper", "1"),
    ] {
        w.send(0, request);
        w.send(1, get(STATS));
    }
    // The nearest quota above a node counts the nodes below it.
    quota_nodes(w, "/d/m", "count=-1,bytes=-1");
    w.send(0, create_data("/d/m/under", "123"));
    w.send(1, get(STATS));
    w.send(1, get("/zookeeper/quota/d/m/zookeeper_stats"));
    w.send(0, delete("/zookeeper/quota/d/m/zookeeper_limits"));
    w.send(0, create_data("/d/m/under2", "123"));
    w.send(1, get(STATS));
    w.send(1, get("/zookeeper/quota/d/m/zookeeper_stats"));
    // Without a limits node nothing is counted; without a stats node the count cannot be stored.
    w.send(0, delete("/zookeeper/quota/d/zookeeper_limits"));
    w.send(0, create_data("/d/x", "123"));
    w.send(1, get(STATS));
    w.send(0, create_data("/zookeeper/quota/d/zookeeper_limits", "count=1,bytes=1"));
    w.send(0, delete(STATS));
    w.send(0, create_data("/d/y", "123"));
    w.send(0, create_data(STATS, ""));
    w.send(1, get(STATS));
    w.close(0);
    w.send(1, get(STATS));
    w.send(1, list("/zookeeper/quota/d"));
}

fn quota_limits(w: &mut Writer) {
    const STATS: &str = "/zookeeper/quota/d/zookeeper_stats";
    w.connect(0, 1);
    for limits in [
        "count=2,bytes=10",
        "count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=-1",
        "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3",
        "count=2,bytes=5=;byteHardLimit=10;countHardLimit=3",
        "countHardLimit=3,byteHardLimit=10",
        "count=-1,bytes=-1=;byteHardLimit=0;countHardLimit=0",
        "count=-1,bytes=-1=;countHardLimit=3",
    ] {
        w.send(0, create_data("/d", ""));
        quota_nodes(w, "/d", limits);
        for request in [
            create_data("/d/a", "1234"),
            create_data("/d/b", "1234"),
            create_data("/d/c", "1234"),
            set("/d/a", "123456"),
            set("/d/a", "1234567"),
            set("/d/a", "7654321"),
            set_at("/d/a", "12345678901", 99),
            set("/d/a", "12345678901"),
            set("/d/a", ""),
            create_data("/d/a", "12345678901234567890"),
            create_data("/d/none/x", "12345678901234567890"),
            create_data("/d/c", "1"),
            create_flags_of("/d/s", 2),
            multi(vec![delete("/d/b"), create_data("/d/z", "12")]),
            multi(vec![set("/d/a", "1"), create_data("/d/zz", "12345678901")]),
            set("/zookeeper/quota/d/zookeeper_limits", "count=-1,bytes=-1"),
            create_data("/d/free", "12345678901234567890"),
        ] {
            w.send(0, request);
            w.send(0, get(STATS));
        }
        for path in [
            "/d/a",
            "/d/b",
            "/d/c",
            "/d/z",
            "/d/free",
            "/d/s0000000001",
            "/d/s0000000002",
            "/d/s0000000003",
            "/d/s0000000004",
            "/d",
            STATS,
            "/zookeeper/quota/d/zookeeper_limits",
            "/zookeeper/quota/d",
        ] {
            w.send(0, delete(path));
        }
    }
}

fn short(label: Label) -> Connect {
    Connect { timeout_ms: 500, ..Connect::new(label) }
}

fn a_silent_session_expires(w: &mut Writer) {
    w.connect(1, 2);
    w.send(1, create("/d"));
    w.handshake(0, short(1));
    w.batch(0, vec![create_flags_of("/d/e", 1), create_flags_of("/d/s", 3), create("/d/stays")]);
    w.batch(1, vec![watching(3, "/d/e"), watching(8, "/d")]);
    w.steps.push(Step::AwaitExpired { slot: 0, watcher: 1 });
    w.send(1, list("/d"));
    w.handshake(0, Connect::again(1));
    w.handshake(0, Connect { read_only: None, ..Connect::again(1) });
}

fn a_dropped_session_expires(w: &mut Writer) {
    w.connect(1, 2);
    w.send(1, create("/d"));
    w.handshake(0, short(1));
    w.batch(0, vec![create_flags_of("/d/e", 1)]);
    w.batch(1, vec![watching(3, "/d/e")]);
    w.steps.push(Step::Drop { slot: 0 });
    w.steps.push(Step::AwaitEvent { slot: 1 });
    w.send(1, list("/d"));
    w.handshake(0, Connect::again(1));
}

fn containers_are_reaped(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    // A container that never had children is not reaped.
    w.send(0, create_with(19, "/d/unused", 4, 0));
    w.send(0, create_with(19, "/d/used", 4, 0));
    w.send(0, create("/d/used/x"));
    w.send(0, watching(3, "/d/used"));
    w.send(0, delete("/d/used/x"));
    w.steps.push(Step::AwaitEvent { slot: 0 });
    w.send(0, list("/d"));
    w.send(0, create("/d/used"));
    w.send(0, exists("/d/unused"));
}

fn times_to_live_run_out(w: &mut Writer) {
    w.connect(0, 1);
    w.send(0, create("/d"));
    w.send(0, create_with(21, "/d/long", 5, 100_000));
    w.send(0, create_with(21, "/d/held", 5, 1));
    w.batch(0, vec![create_with(21, "/d/parent", 5, 1_000), create("/d/parent/x")]);
    w.batch(0, vec![create_with(21, "/d/short", 5, 700), watching(3, "/d/short")]);
    w.steps.push(Step::AwaitEvent { slot: 0 });
    w.send(0, exists("/d/short"));
    w.send(0, exists("/d/parent"));
    w.batch(0, vec![watching(3, "/d/parent"), delete("/d/parent/x")]);
    w.steps.push(Step::AwaitEvent { slot: 0 });
    w.send(0, list("/d"));
    w.send(0, exists("/d/long"));
}
