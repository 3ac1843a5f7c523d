//! Generates scripts from seeds.
//!
//! There are few names, so that random requests refer to the same nodes; most requests are valid,
//! so that nodes exist; every field also gets values that no client would send.

use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::op::OpCode;

use super::exceptions;
use super::script::{
    AclList, Connect, Damage, Entry, Frame, Label, Password, Request, SLOTS, Script, Slot, Step,
    Text, ZxidRef, Zxids, open,
};

/// Returns the script of a seed.
pub fn script(seed: u64, steps: usize) -> Script {
    let mut generator = Generator::new(seed);
    generator.open();
    while generator.steps.len() < steps {
        generator.step();
    }
    Script { root: generator.root, steps: generator.steps, zxids: Zxids::Compared }
}

/// Returns a script in which all connections write concurrently, each below its own node, so that
/// the replies to one connection do not depend on the others.
pub fn concurrent(seed: u64, steps: usize) -> Script {
    const FRAMES: usize = 25;
    let mut generator = Generator::new(seed);
    generator.apart = true;
    let root = generator.root.clone();
    let mut frames = vec![Generator::plain_create(root.clone())];
    for slot in 0..SLOTS {
        let connect = Connect::new(generator.label());
        generator.steps.push(Step::Connect { slot, connect });
        frames.push(Generator::plain_create(format!("{root}/{slot}")));
    }
    generator.steps.push(Step::Send { slot: 0, frames });
    for _ in 0..steps.div_ceil(FRAMES) {
        let mut sends = Vec::new();
        for slot in 0..SLOTS {
            generator.root = format!("{root}/{slot}");
            let mut frames = Vec::new();
            while frames.len() < FRAMES {
                let frame = generator.frame();
                let unfit = exceptions::must_be_alone(&frame.request)
                    || ends_connection(&frame.request)
                    || (exceptions::must_be_first(&frame.request) && !frames.is_empty())
                    || exceptions::must_be_last(&frame.request)
                    || matches!(frame.request, Request::SetWatches { .. })
                    || touches_root(&frame.request);
                if !unfit {
                    frames.push(frame);
                }
            }
            sends.push((slot, frames));
        }
        generator.steps.push(Step::Together { sends });
    }
    Script { root, steps: generator.steps, zxids: Zxids::Hidden }
}

/// Splits every batch of a script into writes of one request each.
pub fn one_by_one(mut script: Script) -> Script {
    let mut steps = Vec::new();
    for step in script.steps {
        match step {
            Step::Send { slot, frames } => steps
                .extend(frames.into_iter().map(|frame| Step::Send { slot, frames: vec![frame] })),
            other => steps.push(other),
        }
    }
    script.steps = steps;
    script
}

struct Generator {
    rng: Rng,
    root: String,
    steps: Vec<Step>,
    /// The probable session of each slot. A wrong guess only wastes a step.
    attached: [Option<Label>; SLOTS],
    labels: Label,
    closed: Vec<Label>,
    /// Whether every path stays below the root of the script.
    apart: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    One,
    Batch,
    Auth,
    Connect,
    Again,
    Drop,
    Raw,
    Unknown,
    Close,
    Quota,
}

/// Byte strings that Java and Rust must decode alike: truncated, overlong, surrogate and invalid
/// UTF-8 sequences.
const ODD_BYTES: &[&[u8]] = &[
    b"\xff",
    b"\xc3",
    b"\xc3\xa4",
    b"\xe4\xb8\xad",
    b"\xed\xa0\xbd",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xf0\x9f\x98\x80",
    b"\xf0\x9f\x98",
    b"\xe2\x82",
    b"\xc0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xe0\x80\x80",
    b"\x80\x80",
    b"a\xffb\xfec",
    b"\xe2\x28\xa1",
    b"\xf0\x28\x8c\xbc",
    b"\xef\xbf\xbd",
    b"\xee\x80\x80",
    b"\xef\xbf\xb0",
    b"\xef\xbf\xaf",
];

impl Generator {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1)),
            root: format!("/t{seed}"),
            steps: Vec::new(),
            attached: [None; SLOTS],
            labels: 0,
            closed: Vec::new(),
            apart: false,
        }
    }

    /// Opens two to four sessions and creates the first nodes.
    fn open(&mut self) {
        for slot in 0..2 + self.rng.below(SLOTS - 1) {
            let connect = Connect::new(self.label());
            self.attached[slot] = Some(self.labels);
            self.steps.push(Step::Connect { slot, connect });
        }
        let mut frames = Vec::new();
        for path in ["", "/a", "/b", "/a/a", "/a/b", "/b/a"] {
            frames.push(Self::plain_create(format!("{}{path}", self.root)));
        }
        self.steps.push(Step::Send { slot: 0, frames });
        for (slot, auth) in [(0, "u:p"), (1, "v:q")] {
            if self.rng.percent(60) {
                let request = Request::Auth { kind: 0, scheme: "digest".into(), auth: auth.into() };
                self.steps.push(Step::Send { slot, frames: vec![request.into()] });
            }
        }
    }

    fn plain_create(path: String) -> Frame {
        let op = OpCode::Create.code();
        Request::Create { op, path: path.into(), data: "x".into(), acl: open(), flags: 0, ttl: 0 }
            .into()
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels
    }

    fn slot(&mut self) -> Slot {
        let open: Vec<Slot> = (0..SLOTS).filter(|slot| self.attached[*slot].is_some()).collect();
        if open.is_empty() { 0 } else { self.rng.pick(&open) }
    }

    /// Records that a connection ends with this request, and that its session may end too.
    fn leave(&mut self, slot: Slot, last: &Request) {
        if let Some(label) = self.attached[slot].take()
            && *last == Request::CloseSession
        {
            self.closed.push(label);
        }
    }

    fn step(&mut self) {
        let open = self.attached.iter().flatten().count();
        let kind = if open < 2 {
            self.rng.pick(&[Kind::Connect, Kind::Again])
        } else {
            self.rng.weighted(&[
                (620, Kind::One),
                (160, Kind::Batch),
                (60, Kind::Auth),
                (25, Kind::Connect),
                (40, Kind::Again),
                (20, Kind::Drop),
                (15, Kind::Raw),
                (10, Kind::Unknown),
                (15, Kind::Close),
                (35, Kind::Quota),
            ])
        };
        match kind {
            Kind::One => {
                let slot = self.slot();
                let frame = self.frame();
                if ends_connection(&frame.request) {
                    self.leave(slot, &frame.request);
                }
                self.steps.push(Step::Send { slot, frames: vec![frame] });
            }
            Kind::Batch => self.batch(),
            Kind::Auth => {
                let slot = self.slot();
                let request = loop {
                    let request = self.auth();
                    if !exceptions::is_hazard(&request) {
                        break request;
                    }
                };
                if ends_connection(&request) {
                    self.attached[slot] = None;
                }
                let frame = Frame { xid: Some(-4), request, damage: Damage::None };
                self.steps.push(Step::Send { slot, frames: vec![frame] });
            }
            Kind::Connect => self.connect(),
            Kind::Again => self.again(),
            Kind::Drop => {
                let slot = self.slot();
                self.attached[slot] = None;
                self.steps.push(Step::Drop { slot });
            }
            Kind::Raw => {
                let slot = self.slot();
                self.attached[slot] = None;
                let bytes = self.rng.pick(&[
                    vec![0, 0, 0, 0],
                    vec![0, 0, 0, 4, 0, 0, 0, 1],
                    vec![0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0],
                    vec![0xff, 0xff, 0xff, 0xff],
                    vec![0x80, 0, 0, 0],
                    vec![0x7f, 0xff, 0xff, 0xff],
                    vec![0x00, 0x10, 0, 0],
                    b"ruok".to_vec(),
                    b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                ]);
                self.steps.push(Step::Raw { slot, bytes });
            }
            Kind::Unknown => {
                let slot = self.slot();
                self.attached[slot] = None;
                let op =
                    self.rng.pick(&[0, 10, 13, 23, 99, 108, 1000, -1, -2, -9, -12, -100, i32::MAX]);
                let len = self.rng.below(12);
                let body = self.rng.bytes(len);
                let frame = Frame::from(Request::Bytes { op, body });
                self.steps.push(Step::Send { slot, frames: vec![frame] });
            }
            Kind::Close => {
                let slot = self.slot();
                self.leave(slot, &Request::CloseSession);
                self.steps.push(Step::Send { slot, frames: vec![Request::CloseSession.into()] });
            }
            Kind::Quota => self.quota(),
        }
    }

    /// Adds a write of several requests.
    fn batch(&mut self) {
        let slot = self.slot();
        let mut frames: Vec<Frame> = Vec::new();
        for _ in 0..2 + self.rng.below(5) {
            let frame = self.frame();
            let alone = exceptions::must_be_alone(&frame.request)
                || ends_connection(&frame.request)
                || (exceptions::must_be_first(&frame.request) && !frames.is_empty());
            if !alone && !touches_root(&frame.request) {
                let last = exceptions::must_be_last(&frame.request);
                frames.push(frame);
                if last {
                    break;
                }
            }
        }
        let open_ended = frames.last().is_none_or(|last| !exceptions::must_be_last(&last.request));
        if open_ended && self.rng.percent(5) {
            frames.push(Request::CloseSession.into());
            self.leave(slot, &Request::CloseSession);
        }
        if !frames.is_empty() {
            self.steps.push(Step::Send { slot, frames });
        }
    }

    fn connect(&mut self) {
        let slot = self.rng.below(SLOTS);
        let mut connect = Connect::new(self.label());
        self.attached[slot] = Some(self.labels);
        if self.rng.percent(50) {
            connect.timeout_ms = self.rng.pick(&[
                0,
                -1,
                1,
                29_999,
                30_000,
                30_001,
                59_999,
                60_001,
                i32::MAX,
                i32::MIN,
            ]);
            connect.password = self.rng.pick(&[
                Password::Usual,
                Password::Null,
                Password::Len(0),
                Password::Len(20),
            ]);
            connect.read_only = self.rng.pick(&[None, Some(0), Some(1), Some(7)]);
            connect.version = self.rng.pick(&[0, 1, -1, i32::MAX]);
        }
        if self.rng.percent(10) {
            connect.last_zxid = self.rng.pick(&[
                ZxidRef::Seen(0),
                ZxidRef::Seen(1),
                ZxidRef::Seen(1 << 33),
                ZxidRef::Absolute(-1),
                ZxidRef::Absolute(i64::MAX),
            ]);
            if !matches!(connect.last_zxid, ZxidRef::Absolute(-1) | ZxidRef::Seen(0)) {
                self.attached[slot] = None;
            }
        }
        if self.rng.percent(6) {
            connect.damage = self.rng.pick(&[
                Damage::Cut(0),
                Damage::Cut(27),
                Damage::Cut(28),
                Damage::Cut(40),
                Damage::Tail(vec![1, 2, 3]),
                Damage::Poke(24, 0xff),
                Damage::Poke(27, 0x7f),
            ]);
            if !matches!(connect.damage, Damage::Tail(_)) {
                self.attached[slot] = None;
            }
        }
        self.steps.push(Step::Connect { slot, connect });
    }

    /// Reconnects to a session that exists, that existed, or that never existed.
    fn again(&mut self) {
        let slot = self.rng.below(SLOTS);
        let mut label = 1 + self.rng.below(self.labels as usize + 1) as Label;
        if self.closed.contains(&label) && self.rng.percent(70) {
            label = 1 + self.rng.below(self.labels as usize) as Label;
        }
        let mut connect = Connect::again(label);
        let connected = self.attached.contains(&Some(label));
        if self.rng.percent(20) && !connected {
            connect.password = self.rng.pick(&[
                Password::Wrong,
                Password::Null,
                Password::Len(0),
                Password::Len(15),
            ]);
        }
        connect.timeout_ms = self.rng.pick(&[30_000, 30_000, 0, 45_000, 99_999]);
        connect.read_only = self.rng.pick(&[Some(0), Some(0), None, Some(1)]);
        connect.last_zxid =
            self.rng.pick(&[ZxidRef::Absolute(0), ZxidRef::Seen(0), ZxidRef::Seen(5)]);
        for attached in &mut self.attached {
            if *attached == Some(label) {
                *attached = None;
            }
        }
        let alive = label <= self.labels && !self.closed.contains(&label);
        let good =
            alive && connect.password == Password::Usual && connect.last_zxid != ZxidRef::Seen(5);
        self.attached[slot] = good.then_some(label);
        self.steps.push(Step::Connect { slot, connect });
    }

    /// Adds writes to the nodes that define and record a quota, in an order that usually works.
    fn quota(&mut self) {
        let slot = self.slot();
        let below = self.rng.pick(&["", "", "/a", "/b"]);
        let top = format!("/zookeeper/quota{}", self.root);
        let node = format!("{top}{below}");
        let limits = self.rng.pick(&[
            "count=5,bytes=30",
            "count=-1,bytes=-1",
            "count=3,bytes=-1=;byteHardLimit=-1;countHardLimit=6",
            "count=-1,bytes=10=;byteHardLimit=20;countHardLimit=-1",
            "count=-1,bytes=-1=;byteHardLimit=12;countHardLimit=5",
            "bytes=5,count=1",
        ]);
        let mut frames = Vec::new();
        let mut add = |path: &str, data: &str| {
            frames.push(Frame::from(Request::Create {
                op: OpCode::Create.code(),
                path: path.into(),
                data: data.into(),
                acl: open(),
                flags: 0,
                ttl: 0,
            }));
        };
        add(&top, "");
        if !below.is_empty() {
            add(&node, "");
        }
        add(&format!("{node}/zookeeper_limits"), limits);
        add(&format!("{node}/zookeeper_stats"), "count=0,bytes=0");
        if self.rng.percent(30) {
            frames.pop();
        }
        if self.rng.percent(25) {
            let leaf = self.rng.pick(&["zookeeper_limits", "zookeeper_stats"]);
            let path = Text::from(format!("{node}/{leaf}"));
            frames = vec![if self.rng.percent(50) {
                Request::Delete { path, version: -1 }.into()
            } else {
                Request::SetData { path, data: limits.into(), version: -1 }.into()
            }];
        }
        // One request per write: Apache counts committed usage, so a second request in flight may
        // exceed the limit.
        for frame in frames {
            self.steps.push(Step::Send { slot, frames: vec![frame] });
        }
    }

    fn frame(&mut self) -> Frame {
        let request = loop {
            let request = self.request();
            if !exceptions::is_hazard(&request) {
                break request;
            }
        };
        let xid =
            self.rng.percent(3).then(|| self.rng.pick(&[0, -2, -4, -8, -5, 1, i32::MAX, i32::MIN]));
        let damage = match self.rng.below(100) {
            0..=2 => Damage::Cut(self.rng.below(40)),
            3..=6 => Damage::Tail(self.rng.bytes(5)),
            7..=8 => self.poke(&request),
            _ => Damage::None,
        };
        Frame { xid, request, damage }
    }

    /// Changes one byte, where this cannot turn the request into an excluded one.
    fn poke(&mut self, request: &Request) -> Damage {
        let reach = match request {
            _ if self.apart => return Damage::None,
            Request::Multi { .. } => return Damage::None,
            Request::Create { op, path: Text(Some(path)), .. }
                if *op == OpCode::Create.code() || *op == OpCode::Create2.code() =>
            {
                4 + path.len()
            }
            Request::Create { .. } => return Damage::None,
            Request::SetData { path, .. } if exceptions::is_quota_node(path) => {
                return Damage::None;
            }
            _ => 64,
        };
        let at = self.rng.below(reach);
        Damage::Poke(at, self.rng.next_u64() as u8)
    }

    fn request(&mut self) -> Request {
        let op = self.rng.weighted(&[
            (230, OpCode::Create),
            (80, OpCode::Delete),
            (60, OpCode::Exists),
            (60, OpCode::GetData),
            (110, OpCode::SetData),
            (30, OpCode::GetAcl),
            (45, OpCode::SetAcl),
            (35, OpCode::GetChildren),
            (40, OpCode::GetChildren2),
            (10, OpCode::Sync),
            (8, OpCode::Ping),
            (110, OpCode::Multi),
            (20, OpCode::MultiRead),
            (6, OpCode::Reconfig),
            (25, OpCode::CheckWatches),
            (30, OpCode::RemoveWatches),
            (30, OpCode::SetWatches),
            (25, OpCode::SetWatches2),
            (15, OpCode::GetEphemerals),
            (15, OpCode::GetAllChildrenNumber),
            (60, OpCode::AddWatch),
            (8, OpCode::WhoAmI),
            (8, OpCode::Auth),
            (12, OpCode::Error),
        ]);
        let watch = self.rng.percent(50);
        match op {
            OpCode::Create => self.create(),
            OpCode::Delete => Request::Delete { path: self.path(), version: self.version() },
            OpCode::Exists | OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 => {
                Request::Read { op: op.code(), path: self.path(), watch }
            }
            OpCode::SetData => self.set_data(),
            OpCode::GetAcl => Request::GetAcl { path: self.path() },
            OpCode::SetAcl => {
                let version = self.version();
                Request::SetAcl { path: self.own_path(), acl: self.acl(), version }
            }
            OpCode::Sync => Request::Sync { path: self.path() },
            OpCode::Multi => self.multi(),
            OpCode::MultiRead => self.multi_read(),
            OpCode::Reconfig => Request::Reconfig {
                joining: self.rng.pick(&[Text::NULL, "server.2=127.0.0.1:2888:3888;2181".into()]),
                leaving: self.rng.pick(&[Text::NULL, "1".into()]),
                members: self.rng.pick(&[Text::NULL, "".into(), "server.1=x".into()]),
                config: self.rng.pick(&[-1, 0, 1]),
            },
            OpCode::CheckWatches | OpCode::RemoveWatches => {
                let kind = self.rng.pick(&[1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0, 6, -1]);
                Request::Watches { op: op.code(), path: self.path(), kind }
            }
            OpCode::SetWatches | OpCode::SetWatches2 => self.set_watches(op),
            OpCode::GetEphemerals => Request::GetEphemerals {
                prefix: match self.rng.below(4) {
                    0 => self.rng.pick(&[
                        Text::NULL,
                        "".into(),
                        "/".into(),
                        "  ".into(),
                        " / ".into(),
                    ]),
                    1 => Text::from(self.root.as_str()),
                    _ => self.path(),
                },
            },
            OpCode::GetAllChildrenNumber => Request::GetAllChildrenNumber { path: self.path() },
            OpCode::AddWatch => {
                let mode = self.rng.pick(&[0, 1, 0, 1, 0, 1, 2, -1]);
                Request::AddWatch { path: self.path(), mode }
            }
            OpCode::WhoAmI => Request::WhoAmI,
            OpCode::Auth => self.auth(),
            // A random body for an existing operation.
            OpCode::Error => {
                let op = self.rng.pick(&[
                    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 22, 101, 103, 104, 105,
                    106, 107,
                ]);
                let len = self.rng.below(24);
                let mut body = self.rng.bytes(len);
                // Small length fields let the decoder read further into the record.
                for byte in body.iter_mut().take(3) {
                    if self.rng.percent(80) {
                        *byte = 0;
                    }
                }
                Request::Bytes { op, body }
            }
            _ => Request::Ping,
        }
    }

    fn create(&mut self) -> Request {
        let (op, flags) = self.rng.weighted(&[
            (30, (OpCode::Create, 0)),
            (15, (OpCode::Create, 1)),
            (12, (OpCode::Create, 2)),
            (8, (OpCode::Create, 3)),
            (12, (OpCode::Create2, 0)),
            (6, (OpCode::Create2, 1)),
            (6, (OpCode::Create2, 2)),
            (4, (OpCode::Create2, 3)),
            (2, (OpCode::Create, 5)),
            (1, (OpCode::Create2, 6)),
            (1, (OpCode::Create, 7)),
            (1, (OpCode::Create2, -1)),
            (1, (OpCode::Create, 1 << 20)),
            (10, (OpCode::CreateContainer, 4)),
            (1, (OpCode::CreateContainer, 5)),
            (1, (OpCode::CreateContainer, 9)),
            (6, (OpCode::CreateTtl, 5)),
            (4, (OpCode::CreateTtl, 6)),
            (1, (OpCode::CreateTtl, 7)),
        ]);
        let ttl = self.rng.pick(&[
            1,
            1000,
            100_000,
            100_000,
            0,
            -1,
            i64::MAX,
            i64::MIN,
            (1 << 40) - 1,
            1 << 40,
        ]);
        let mut path = self.own_path();
        if flags & 2 != 0
            && self.rng.percent(80)
            && let Text(Some(bytes)) = &mut path
        {
            bytes.extend_from_slice(self.rng.pick(&["/s", "/", "/s-"]).as_bytes());
        }
        Request::Create { op: op.code(), path, data: self.data(), acl: self.acl(), flags, ttl }
    }

    fn set_data(&mut self) -> Request {
        Request::SetData { path: self.path(), data: self.data(), version: self.version() }
    }

    fn multi(&mut self) -> Request {
        let mut operations = Vec::new();
        for _ in 0..self.rng.below(6) {
            let operation = match self.rng.below(10) {
                0..=3 => self.create(),
                4..=5 => Request::Delete { path: self.path(), version: self.version() },
                6..=7 => self.set_data(),
                _ => Request::Check { path: self.path(), version: self.version() },
            };
            operations.push((operation.op(), operation));
        }
        if self.rng.percent(8) {
            let operation = match self.rng.below(3) {
                0 => Request::SetAcl { path: self.own_path(), acl: open(), version: -1 },
                1 => Request::Read { op: 4, path: self.path(), watch: true },
                _ => Request::Multi { op: 14, operations: Vec::new(), ended: true },
            };
            let kind = if self.rng.percent(50) {
                operation.op()
            } else {
                self.rng.pick(&[0, 3, 8, 9, 11, 12, 14, 16, 20, 22, 99, -1, -11])
            };
            operations.push((kind, operation));
        }
        Request::Multi { op: OpCode::Multi.code(), operations, ended: !self.rng.percent(3) }
    }

    fn multi_read(&mut self) -> Request {
        let mut operations = Vec::new();
        for _ in 0..self.rng.below(5) {
            let op = self.rng.pick(&[OpCode::GetData.code(), OpCode::GetChildren.code()]);
            let watch = self.rng.percent(30);
            operations.push((op, Request::Read { op, path: self.path(), watch }));
        }
        if self.rng.percent(10) {
            let operation = Request::Check { path: self.path(), version: -1 };
            let at = self.rng.below(operations.len() + 1);
            operations.insert(at, (operation.op(), operation));
        }
        if self.rng.percent(5) {
            let operation =
                Request::Read { op: OpCode::Exists.code(), path: self.path(), watch: false };
            operations.push((operation.op(), operation));
        }
        Request::Multi { op: OpCode::MultiRead.code(), operations, ended: !self.rng.percent(3) }
    }

    fn set_watches(&mut self, op: OpCode) -> Request {
        let relative = self.rng.pick(&[
            ZxidRef::Seen(0),
            ZxidRef::Seen(0),
            ZxidRef::Seen(-1),
            ZxidRef::Seen(-3),
            ZxidRef::Seen(-10),
            ZxidRef::Seen(100),
            ZxidRef::Absolute(0),
            ZxidRef::Absolute(-1),
        ]);
        let count = if op == OpCode::SetWatches { 3 } else { 5 };
        let lists = (0..count)
            .map(|_| {
                if self.rng.percent(2) {
                    return None;
                }
                let len = self.rng.below(4);
                Some((0..len).map(|_| self.path()).collect())
            })
            .collect();
        Request::SetWatches { op: op.code(), relative, lists }
    }

    fn auth(&mut self) -> Request {
        let (scheme, auth): (Text, Text) = match self.rng.below(24) {
            0..=6 => ("digest".into(), "u:p".into()),
            7..=11 => ("digest".into(), "v:q".into()),
            12..=13 => ("digest".into(), "super:test".into()),
            14 => ("digest".into(), "super:wrong".into()),
            15 => {
                let mut auth = self.rng.pick(ODD_BYTES).to_vec();
                auth.extend_from_slice(b":p");
                ("digest".into(), Text(Some(auth)))
            }
            16 => ("digest".into(), self.rng.pick(&["", "u", ":", "a:b:c", ":p", "u:"]).into()),
            17 => ("digest".into(), Text::NULL),
            18..=19 => ("ip".into(), self.rng.pick(&[Text::NULL, "10.0.0.1".into()])),
            20 => (
                self.rng
                    .pick(&["world", "sasl", "x509", "super", "auth", "", "nosuch", "DIGEST"])
                    .into(),
                "x".into(),
            ),
            21 => (Text::NULL, "x".into()),
            _ => ("digest".into(), "u:p".into()),
        };
        Request::Auth { kind: self.rng.pick(&[0, 0, 0, 1, -7]), scheme, auth }
    }

    fn version(&mut self) -> i32 {
        self.rng.pick(&[-1, -1, -1, -1, -1, -1, 0, 0, 0, 1, 1, 2, 3, -2, i32::MAX, i32::MIN])
    }

    fn data(&mut self) -> Text {
        match self.rng.below(20) {
            0..=1 => Text::NULL,
            2..=4 => "".into(),
            5 => Text(Some(vec![b'z'; 2000])),
            6..=9 => {
                let len = self.rng.below(40);
                Text(Some(self.rng.bytes(len)))
            }
            _ => self.rng.pick(&["x", "yy", "hello", "count=1,bytes=2"]).into(),
        }
    }

    fn acl(&mut self) -> AclList {
        const U: &str = "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=";
        if self.rng.percent(62) {
            return open();
        }
        // ACLs that deny access to some clients, so that permissions matter.
        if self.rng.percent(55) {
            let world = self.rng.pick(&[1, 1, 3, 5, 17, 15, 30, 29, 27, 23]);
            let owner = self.rng.pick(&[("auth", ""), ("digest", U), ("ip", "127.0.0.1")]);
            let mut entries = vec![Entry::new(world, "world", "anyone")];
            if self.rng.percent(70) {
                entries.insert(0, Entry::new(31, owner.0, owner.1));
            }
            return Some(entries);
        }
        if self.rng.percent(8) {
            return self.rng.pick(&[None, Some(Vec::new())]);
        }
        let mut entries = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let perms =
                self.rng.pick(&[31, 31, 31, 1, 2, 4, 8, 16, 3, 5, 15, 30, 29, 27, 0, 64, -1]);
            let (scheme, id): (Text, Text) = match self.rng.below(30) {
                0..=8 => ("world".into(), "anyone".into()),
                9..=14 => ("auth".into(), self.rng.pick(&["", "ignored"]).into()),
                15..=17 => ("digest".into(), U.into()),
                18..=19 => (
                    "digest".into(),
                    self.rng
                        .pick(&["a:b", "a", "a:b:c", ":b", "a:", ":", "", "a:b::", "::"])
                        .into(),
                ),
                20..=22 => (
                    "ip".into(),
                    self.rng
                        .pick(&[
                            "127.0.0.1",
                            "127.0.0.0/8",
                            "127.0.0.2/31",
                            "127.0.0.2/30",
                            "10.0.0.0/8",
                            "0.0.0.0/0",
                            "127.0.0.1/32",
                            "127.0.0.1/33",
                            "127.0.0.1/-1",
                            "127.0.0.1/x",
                            "127.0.0.1/",
                            "127.0.0.1/8/8",
                            "127.0.0.01",
                            "127.0.0.1/08",
                            "127.0.0.1/+8",
                            "1.2.3",
                            "256.1.1.1",
                            "::1",
                            "::1/128",
                            "::1/129",
                            "::/0",
                            "1:2:3:4:5:6:7:8",
                            "1:2:3:4:5:6:7",
                            "1::2::3",
                            "::ffff:127.0.0.1",
                            "fe80::1%lo",
                            "12345::",
                            "",
                        ])
                        .into(),
                ),
                23 => ("world".into(), self.rng.pick(&["any", "", "Anyone", "anyone "]).into()),
                24 => (
                    self.rng
                        .pick(&["sasl", "x509", "super", "nosuch", "", "World", "ensemble"])
                        .into(),
                    "x".into(),
                ),
                25 => {
                    let mut id = self.rng.pick(ODD_BYTES).to_vec();
                    id.extend_from_slice(b":x");
                    ("digest".into(), Text(Some(id)))
                }
                26 => {
                    (self.rng.pick(&["world", "digest", "ip", "auth", "nosuch"]).into(), Text::NULL)
                }
                27 => (Text::NULL, self.rng.pick(&[Text::NULL, "anyone".into()])),
                _ => ("world".into(), "anyone".into()),
            };
            entries.push(Entry { perms, scheme, id });
            if self.rng.percent(10)
                && let Some(last) = entries.last().cloned()
            {
                entries.push(last);
            }
        }
        Some(entries)
    }

    /// Returns a path in the script's subtree, valid or invalid.
    fn own_path(&mut self) -> Text {
        let mut path = self.root.clone();
        let mut depth = self.rng.weighted(&[(6, 0), (46, 1), (38, 2), (10, 3)]);
        if self.apart {
            // All connections share the counter of sequential names directly below the common root.
            depth = depth.max(1);
        }
        for _ in 0..depth {
            path.push('/');
            path.push_str(self.rng.pick(&["a", "a", "b", "b", "c"]));
        }
        match self.rng.below(150) {
            0..=7 => {
                let number = self.rng.below(8);
                path.push_str(&format!("/s{number:010}"));
            }
            8 => path.push('/'),
            9 => {
                path.push_str(self.rng.pick(&["//x", "/./x", "/../x", "/.", "/..", "/...", "/.x"]));
            }
            10 => {
                path.push_str(self.rng.pick(&["/\0", "\0", "/\u{1}", "/\u{7f}", "/\u{9f}", "/ "]));
            }
            11 => {
                let mut bytes = path.into_bytes();
                bytes.push(b'/');
                bytes.extend_from_slice(self.rng.pick(ODD_BYTES));
                return Text(Some(bytes));
            }
            12 => path = path.trim_start_matches('/').to_owned(),
            13 => path.push_str(&format!("/{}", "n".repeat(300))),
            14 => return Text::NULL,
            _ => {}
        }
        path.into()
    }

    /// Returns any path, including the paths that all scripts share.
    fn path(&mut self) -> Text {
        if self.apart || !self.rng.percent(8) {
            return self.own_path();
        }
        let quota = format!("/zookeeper/quota{}", self.root);
        let limits = format!("{quota}/zookeeper_limits");
        let stats = format!("{quota}/zookeeper_stats");
        self.rng
            .pick(&[
                "/",
                "",
                "/zookeeper",
                "/zookeeper/config",
                "/zookeeper/quota",
                "zookeeper",
                "//",
                quota.as_str(),
                limits.as_str(),
                stats.as_str(),
            ])
            .into()
    }
}

/// Returns whether the server usually closes the connection after this request.
fn ends_connection(request: &Request) -> bool {
    match request {
        Request::CloseSession => true,
        Request::Auth { scheme: Text(scheme), auth: Text(auth), .. } => match scheme.as_deref() {
            Some(b"digest") => auth.is_none(),
            Some(b"ip") => false,
            _ => true,
        },
        _ => false,
    }
}

/// Returns whether a request names / or a child of /.
fn touches_root(request: &Request) -> bool {
    let shallow = |path: &Text| {
        path.0.as_ref().is_none_or(|path| path.iter().filter(|byte| **byte == b'/').count() < 2)
    };
    match request {
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::SetData { path, .. }
        | Request::SetAcl { path, .. } => shallow(path),
        Request::Multi { operations, .. } => operations.iter().any(|(_, op)| touches_root(op)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_script() {
        let (one, two) = (script(5, 60), script(5, 60));
        assert_eq!(one.steps, two.steps);
        assert_ne!(one.steps, script(6, 60).steps);
    }

    #[test]
    fn nothing_of_the_table_is_asked() {
        for seed in 0..300 {
            for step in script(seed, 60).steps {
                let Step::Send { frames, .. } = step else { continue };
                let together = frames.len() > 1;
                for (index, frame) in frames.iter().enumerate() {
                    assert!(!exceptions::is_hazard(&frame.request), "{frame:?}");
                    assert!(frame.xid != Some(-1));
                    assert!(!together || !exceptions::must_be_alone(&frame.request), "{frame:?}");
                    assert!(
                        index + 1 == frames.len() || !exceptions::must_be_last(&frame.request),
                        "{frame:?}"
                    );
                    assert!(index == 0 || !exceptions::must_be_first(&frame.request), "{frame:?}");
                }
            }
        }
    }
}
