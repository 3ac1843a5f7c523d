//! Transcripts of the machine: `testdata/session/*.txt` contains commands, each followed by all
//! outputs of the machine. `UPDATE_TRANSCRIPTS=1 cargo test -p ironkeeper-client transcripts`
//! rewrites the outputs; review them as a diff.
//!
//! Commands begin with `- `:
//! - `after <ms>`: time passes; `asleep <ms>`: time passes and the process is suspended.
//! - `opened`, `closed`: the transport; `greet <session> <timeout> [ro]`, `refuse`: the handshake.
//! - `submit <token> <op> <path> [data|exist|child|persistent|recursive <watcher>]`,
//!   `auth <scheme> <text> [token]`: requests.
//! - `reply <xid> <zxid> <err>`, `ping-reply <zxid>`, `auth-reply <err>`, `event <type> <path>`,
//!   `frame <hex>`, `oversize <len> <xid>`: packets of the server.
//! - `write`: the driver has written all outgoing bytes; `write <n>`: only `n` bytes.
//! - `forget <kind> <path> <watcher>`, `unwatch <kind> <path>`, `remove <token> <code> <path>`:
//!   watches.
//! - `probed <host> rw|ro|none`: the result of a probe; `close [token]`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::reply::{ReplyHeader, finish_frame, start_frame};
use ironkeeper_proto::request::{DataWatch, RequestHeader};
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{OpCode, Reader, Request, SessionId, Xid, Zxid};

use super::machine::{Failure, Machine, Output, Received, Settings, WatchRequest};
use super::watches::{WatchKind, WatcherId};
use crate::hosts::Host;
use crate::random::Random;

pub(super) fn settings() -> Settings {
    Settings {
        session_timeout: Duration::from_secs(9),
        attempt_timeout: None,
        read_only: true,
        reply_bytes_max: 1 << 20,
        request_bytes_max: 1 << 20,
        waiting_bytes_max: 1 << 20,
    }
}

struct World {
    machine: Machine<u32, u64>,
    start: Instant,
    now: Instant,
    /// The bytes that the driver has taken and not written.
    taken: Vec<u8>,
    greeted: bool,
}

impl World {
    fn new() -> World {
        let now = Instant::now();
        let servers = vec![Host::new("one", 1), Host::new("two", 2)];
        let machine = Machine::new(settings(), servers, Random::from_seed(1), now);
        World { machine, start: now, now, taken: Vec::new(), greeted: false }
    }

    fn run(&mut self, command: &str) -> String {
        let mut out = String::new();
        let words: Vec<&str> = command.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        match words[0] {
            "after" => {
                self.now += Duration::from_millis(number(1) as u64);
                self.machine.handle_timeout(self.now);
            }
            "asleep" => self.now += Duration::from_millis(number(1) as u64),
            "opened" => {
                self.greeted = false;
                self.machine.handle_opened(self.now);
            }
            "closed" => {
                self.taken.clear();
                self.machine.handle_closed(self.now);
            }
            "greet" => {
                let mut frame = Vec::new();
                ConnectResponse {
                    timeout_ms: number(2) as i32,
                    session: SessionId(number(1)),
                    password: SessionId(number(1)).password(),
                    read_only: Some(words.get(3) == Some(&"ro")),
                }
                .encode(&mut frame);
                self.receive(&frame, &mut out);
            }
            "refuse" => {
                let mut frame = Vec::new();
                ConnectResponse::refused(Some(false)).encode(&mut frame);
                self.receive(&frame, &mut out);
            }
            "submit" => self.submit(&words, &mut out),
            "auth" => {
                let token = words.get(3).map(|token| token.parse().unwrap());
                let added = self.machine.authenticate(words[1], words[2].as_bytes(), token);
                if let Err((token, failure)) = added {
                    writeln!(out, "refused {token:?} {failure:?}").unwrap();
                }
            }
            "reply" => {
                let mut frame = Vec::new();
                let (xid, zxid) = (Xid(number(1) as i32), Zxid(number(2)));
                ReplyHeader { xid, zxid, err: number(3) as i32 }.encode(&mut frame);
                self.receive(&frame, &mut out);
            }
            "ping-reply" => {
                let mut frame = Vec::new();
                ReplyHeader { xid: Xid::PING, zxid: Zxid(number(1)), err: 0 }.encode(&mut frame);
                self.receive(&frame, &mut out);
            }
            "auth-reply" => {
                let mut frame = Vec::new();
                let err = number(1) as i32;
                ReplyHeader { xid: Xid::AUTH, zxid: Zxid(0), err }.encode(&mut frame);
                self.receive(&frame, &mut out);
            }
            "event" => {
                let kind = EventType::from_code(number(1) as i32).unwrap();
                let mut frame = Vec::new();
                watch_event::encode_frame(kind, words[2], Zxid(77), &mut frame);
                self.receive(&frame[4..], &mut out);
            }
            "frame" => {
                let hex = words.get(1).copied().unwrap_or_default();
                let bytes: Vec<u8> = (0..hex.len() / 2)
                    .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                    .collect();
                self.receive(&bytes, &mut out);
            }
            "oversize" => {
                let may_skip =
                    self.machine.handle_oversize(self.now, number(1) as usize, number(2) as i32);
                writeln!(out, "may skip: {may_skip}").unwrap();
            }
            "write" => {
                let count = words.get(1).map_or(self.taken.len(), |_| number(1) as usize);
                self.taken.drain(..count);
                self.machine.handle_written(self.now, count);
            }
            "forget" => {
                let id = WatcherId(number(3) as u64);
                let found = self.machine.forget_watch(kind(words[1]), words[2], id);
                writeln!(out, "found: {found}").unwrap();
            }
            "unwatch" => self.machine.unwatch(kind(words[1]), words[2]),
            "remove" => {
                let (token, code) = (number(1) as u32, number(2) as i32);
                if let Err(refused) = self.machine.remove_watches(code, words[3], token) {
                    writeln!(out, "refused {refused:?}").unwrap();
                }
            }
            "probed" => {
                let host = [Host::new("one", 1), Host::new("two", 2)]
                    .into_iter()
                    .find(|host| host.name() == words[1])
                    .unwrap();
                let takes_writes = match words[2] {
                    "rw" => Some(true),
                    "ro" => Some(false),
                    _ => None,
                };
                self.machine.handle_probed(self.now, &host, takes_writes);
            }
            "close" => {
                let token = words.get(1).map(|token| token.parse().unwrap());
                if let Some(token) = self.machine.close(token) {
                    writeln!(out, "closed already {token}").unwrap();
                }
            }
            other => panic!("{other}?"),
        }
        self.look(&mut out);
        out
    }

    fn submit(&mut self, words: &[&str], out: &mut String) {
        let token: u32 = words[1].parse().unwrap();
        let op = match words[2] {
            "get" => OpCode::GetData,
            "exists" => OpCode::Exists,
            "children" => OpCode::GetChildren2,
            "delete" => OpCode::Delete,
            "watch" => OpCode::AddWatch,
            other => panic!("{other}?"),
        };
        let path = words[3];
        let watch = words.get(4).map(|name| WatchRequest {
            kind: kind(name),
            path: path.into(),
            watcher: words[5].parse().unwrap(),
        });
        let watching = watch.is_some();
        let submitted = self.machine.submit(op, token, watch, |body| {
            body.put_str(path);
            match op {
                OpCode::Delete => body.put_i32(-1),
                OpCode::AddWatch => body.put_i32(i32::from(words[4] == "recursive")),
                _ => body.put_bool(watching),
            }
        });
        if let Err((token, failure)) = submitted {
            writeln!(out, "refused {token} {}", failed(failure)).unwrap();
        }
    }

    fn receive(&mut self, frame: &[u8], out: &mut String) {
        if let Received::Reply { token, err, .. } = self.machine.handle_frame(self.now, frame) {
            writeln!(out, "done {token} {err}").unwrap();
        }
    }

    fn look(&mut self, out: &mut String) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect(host) => writeln!(out, "connect to {host}"),
                Output::Disconnect => {
                    self.taken.clear();
                    writeln!(out, "disconnect")
                }
                Output::State(state) => writeln!(out, "state: {state}"),
                Output::Failed(token, failure) => {
                    writeln!(out, "failed {token} {}", failed(failure))
                }
                Output::Event(event, to) => {
                    writeln!(out, "event {:?} {} to {to:?}", event.kind, event.path)
                }
                Output::Gap(to) => writeln!(out, "gap to {to:?}"),
                Output::Ended(mut to) => {
                    to.sort_unstable();
                    writeln!(out, "ended {to:?}")
                }
                Output::Removed(to) => writeln!(out, "removed {to:?}"),
                Output::Probe(host) => writeln!(out, "ask {host} whether it takes writes"),
                Output::Authenticated(token) => writeln!(out, "authenticated {token}"),
            }
            .unwrap();
        }
        let mut fresh = Vec::new();
        self.machine.take_outgoing(&mut fresh);
        self.taken.extend_from_slice(&fresh);
        let mut rest = &fresh[..];
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let (frame, behind) = behind.split_at(u32::from_be_bytes(*len) as usize);
            rest = behind;
            writeln!(out, "> {}", self.frame(frame)).unwrap();
        }
        match self.machine.deadline() {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(self.now).as_millis();
                let at = self.now.duration_since(self.start).as_millis();
                writeln!(out, "at {at}, wake in {left}").unwrap();
            }
            None => writeln!(out, "over").unwrap(),
        }
    }

    fn frame(&mut self, frame: &[u8]) -> String {
        if !self.greeted {
            self.greeted = true;
            let hello = ConnectRequest::decode(frame).unwrap();
            return format!(
                "hello, session {} after {}, timeout {}, read-only {:?}",
                hello.session, hello.last_zxid_seen, hello.timeout_ms, hello.read_only
            );
        }
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).unwrap();
        let op = OpCode::from_code(header.op).unwrap();
        let text = match Request::decode(op, reader).unwrap() {
            Request::SetWatches(set) | Request::SetWatches2(set) => {
                let list = |paths: Option<ironkeeper_proto::jute::StrVec<'_>>| {
                    let mut paths: Vec<_> = paths.iter().flat_map(|list| list.iter()).collect();
                    paths.sort();
                    paths.join(" ")
                };
                format!(
                    "since {} data [{}] exist [{}] child [{}] persistent [{}] recursive [{}]",
                    set.relative_zxid,
                    list(Some(set.data)),
                    list(Some(set.exist)),
                    list(Some(set.child)),
                    list(set.persistent),
                    list(set.persistent_recursive),
                )
            }
            Request::Auth { scheme, auth, .. } => {
                format!("{} {}", scheme.unwrap(), String::from_utf8_lossy(auth.unwrap()))
            }
            Request::GetData { path, watch } => {
                format!("{path}{}", if watch == DataWatch::None { "" } else { " watched" })
            }
            Request::Exists { path, watch } | Request::GetChildren2 { path, watch } => {
                format!("{path}{}", if watch { " watched" } else { "" })
            }
            Request::Delete { path, .. } => path.into_owned(),
            Request::AddWatch { path, mode } => format!("{path} mode {mode}"),
            Request::RemoveWatches { path, kind } => format!("{} kind {kind}", path.unwrap()),
            Request::Ping | Request::CloseSession => String::new(),
            other => panic!("{other:?}"),
        };
        format!("{} {op:?} {text}", header.xid.0).trim_end().to_owned()
    }
}

fn kind(name: &str) -> WatchKind {
    match name {
        "data" => WatchKind::Data,
        "exist" => WatchKind::Exist,
        "child" => WatchKind::Child,
        "persistent" => WatchKind::Persistent,
        "recursive" => WatchKind::Recursive,
        other => panic!("{other}?"),
    }
}

fn failed(failure: Failure) -> String {
    format!("{failure:?}")
}

#[track_caller]
fn check(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/session").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut world = World::new();
    let mut actual = String::new();
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            writeln!(actual, "{line}").unwrap();
        } else if let Some(command) = line.strip_prefix("- ") {
            writeln!(actual, "{line}").unwrap();
            for reaction in world.run(command).lines() {
                writeln!(actual, "    {reaction}").unwrap();
            }
        }
    }
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&file, actual).unwrap();
    } else {
        assert_eq!(text, actual, "{name}; rerun with UPDATE_TRANSCRIPTS=1 and look at the diff");
    }
}

#[test]
fn transcripts_first_connection_and_requests() {
    check("first_connection.txt");
}

#[test]
fn transcripts_lost_connection() {
    check("lost_connection.txt");
}

#[test]
fn transcripts_watches_come_back() {
    check("watches_come_back.txt");
    check("watches_refused.txt");
}

#[test]
fn transcripts_session_ends() {
    check("session_expires_unheard.txt");
    check("session_refused.txt");
    check("session_swapped.txt");
}

#[test]
fn transcripts_pings_and_silence() {
    check("pings_and_silence.txt");
    check("stood_still.txt");
}

#[test]
fn transcripts_credentials() {
    check("credentials.txt");
    check("credentials_refused.txt");
}

#[test]
fn transcripts_broken_servers() {
    check("broken_servers.txt");
}

#[test]
fn transcripts_read_only_servers() {
    check("read_only.txt");
}

#[test]
fn transcripts_close() {
    check("close.txt");
    check("close_unconnected.txt");
    check("close_cut_short.txt");
}

#[test]
fn transcripts_removed_watches() {
    check("removed_watches.txt");
}

#[test]
fn request_numbers_start_over_before_they_become_negative() {
    let mut world = World::new();
    world.run("after 0");
    world.run("opened");
    world.run("greet 5 9000");
    world.machine.set_next_xid(i32::MAX - 2);
    let sent: String = (1..=3).map(|at| world.run(&format!("submit {at} get /x"))).collect();
    assert!(
        sent.contains("> 2147483645 ") && sent.contains("> 2147483646 ") && sent.contains("> 1 ")
    );
    assert!(world.run("reply 2147483645 1 0").contains("done 1"));
    assert!(world.run("reply 2147483646 1 0").contains("done 2"));
    assert!(world.run("reply 1 1 0").contains("done 3"));
}

#[test]
fn what_is_too_large_takes_no_place_in_line() {
    let mut world = World::new();
    world.run("after 0");
    world.run("opened");
    world.run("greet 5 9000");
    let body = vec![0; settings().request_bytes_max];
    let refused =
        world.machine.submit(OpCode::SetData, 1, None, |out| out.extend_from_slice(&body));
    assert!(matches!(refused, Err((1, Failure::RequestTooLarge { .. }))));
    assert_eq!(world.run("submit 2 get /x").lines().next(), Some("> 2 GetData /x"));
    assert!(world.run("reply 2 1 0").contains("done 2"));
}

#[test]
fn what_waits_to_be_sent_is_bounded() {
    let mut world = World::new();
    let body = vec![0; settings().request_bytes_max / 2];
    let outcomes: Vec<bool> = (0..4)
        .map(|at| {
            world
                .machine
                .submit(OpCode::SetData, at, None, |out| out.extend_from_slice(&body))
                .is_ok()
        })
        .collect();
    assert_eq!(outcomes, [true, true, false, false]);
}

/// Random bytes at any point of a connection must not cause anything but a lost connection.
#[test]
fn garbage_never_panics_and_never_sticks() {
    let mut random = Random::from_seed(11);
    for _ in 0..3000 {
        let mut world = World::new();
        world.run("after 0");
        world.run("submit 1 get /x data 1");
        world.run("opened");
        if random.below(3) > 0 {
            world.run("greet 5 9000");
        }
        let mut frame = Vec::new();
        if random.below(2) == 0 {
            // A plausible header, so that more of the decoder runs.
            let xid = [-1, -2, -4, 1, 2][random.below(5) as usize];
            let start = start_frame(&mut frame, Xid(xid), Zxid(random.next() as i64));
            finish_frame(&mut frame, start);
            frame.drain(..4);
        }
        frame.extend((0..random.below(60)).map(|_| random.next() as u8));
        let mut out = String::new();
        world.receive(&frame, &mut out);
        // In any state, the request ends after all servers have become unreachable.
        for _ in 0..3 {
            out += &world.run("closed");
            out += &world.run("after 10000");
        }
        assert_eq!(out.matches("done 1").count() + out.matches("failed 1").count(), 1, "{out}");
    }
}
