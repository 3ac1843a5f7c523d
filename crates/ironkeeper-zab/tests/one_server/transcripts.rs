//! Transcripts of one server: `testdata/promises/*.txt` contains commands, each followed by all
//! outputs, one in a line. `UPDATE_TRANSCRIPTS=1 cargo test -p ironkeeper-zab promises` rewrites the
//! outputs; review them as a diff. Pings and what concerns the election port are omitted.
//!
//! Commands begin with `- `; a zxid is `epoch:counter`, a link has a name:
//! - `server <id> last <counter> accepted <epoch> current <epoch> [counter-max <counter>]`: a server
//!   whose log contains 1:1 to 1:`last`. The members are 1, 2, 3 and the observer 4.
//! - `elected <last> <epoch> [round <round>]`: servers 1 and 2 vote for server 3, which is this one.
//! - `established <link> <link>`: this is the established leader 3 of epoch 3, whose log ends at
//!   1:2, and has followers 1 and 2.
//! - `follows <link>`: servers 2 and 3 vote for server 3, which this one dials.
//! - `greet <link> <id> <epoch>`: a learner connects and sends FOLLOWERINFO or OBSERVERINFO.
//! - `accept <link>`, `dialed <link>`, `close <link>`: the quorum port.
//! - `<link> <PACKET> ...`: a packet arrives.
//! - `received <link>`: a snapshot is complete.
//! - `accepted <epoch>`, `current <epoch>`, `flushed <zxid>`, `cannot-truncate <zxid>`,
//!   `installed <zxid>`: a durable step is complete.
//! - `after <ms>`: time passes. `propose`: the leader proposes the next transaction. `vote`: the end
//!   of the history that this server votes with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ironkeeper_proto::quorum_packet::PROTOCOL_VERSION;
use ironkeeper_proto::{Epoch, Packet, ServerId, Zxid};
use ironkeeper_zab::{Durable, Input, LinkId, Port, Settings};

use crate::server::*;

struct World {
    server: Server,
    links: BTreeMap<String, LinkId>,
}

fn epoch(text: &str) -> Epoch {
    Epoch(number(text))
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn counter(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a counter"))
}

fn zxid(text: &str) -> Zxid {
    let (epoch, last) = text.split_once(':').unwrap_or_else(|| panic!("{text:?} is not a zxid"));
    z(number(epoch), counter(last))
}

fn packet(words: &[&str]) -> Packet {
    match *words {
        ["LEADERINFO", of] => Packet::LeaderInfo { epoch: epoch(of), protocol: PROTOCOL_VERSION },
        ["ACKEPOCH", last, "none"] => Packet::AckEpoch { last: zxid(last), current: None },
        ["ACKEPOCH", last, of] => Packet::AckEpoch { last: zxid(last), current: Some(epoch(of)) },
        ["ACK", at] => Packet::Ack { zxid: zxid(at) },
        ["DIFF", at] => Packet::Diff { zxid: zxid(at) },
        ["TRUNC", at] => Packet::Trunc { zxid: zxid(at) },
        ["SNAP", at] => Packet::Snap { zxid: zxid(at) },
        ["PROPOSAL", at] => proposal(zxid(at)),
        ["COMMIT", at] => Packet::Commit { zxid: zxid(at) },
        ["NEWLEADER", of] => Packet::NewLeader { epoch: epoch(of), config: None },
        ["UPTODATE"] => Packet::UpToDate,
        ["PING", at] => Packet::Ping { zxid: zxid(at) },
        _ => panic!("{words:?} is not a packet"),
    }
}

impl World {
    fn new() -> World {
        World { server: Server::new(1, 0, 0, 0), links: BTreeMap::new() }
    }

    fn begin(&mut self, server: Server) {
        *self = World { server, links: BTreeMap::new() };
    }

    /// Omits that the smaller id does not keep the link between the election ports.
    fn forget_election_port(&mut self) {
        self.server.said.retain(|said| said != "hangup LargerIdDials");
    }

    fn named(&mut self, name: &str, link: LinkId) {
        self.links.insert(name.to_owned(), link);
    }

    fn run(&mut self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            [
                "server",
                id,
                "last",
                last,
                "accepted",
                accepted,
                "current",
                current,
                ref rest @ ..,
            ] => {
                let usual = Settings::default();
                let settings = match *rest {
                    [] => usual,
                    ["counter-max", max] => Settings { counter_max: counter(max), ..usual },
                    _ => panic!("{rest:?} is not a setting"),
                };
                let (accepted, current) = (number(accepted), number(current));
                let server = Server::with(number(id), counter(last), accepted, current, settings);
                self.begin(server);
            }
            ["elected", last, of, ref rest @ ..] => {
                if let ["round", round] = *rest {
                    self.server.round = number(round);
                }
                self.server.elect(counter(last), number(of));
                self.forget_election_port();
            }
            ["established", one, two] => {
                let (server, first, second) = established();
                self.begin(server);
                self.server.said.clear();
                self.named(one, first);
                self.named(two, second);
            }
            ["follows", name] => {
                let link = self.server.follows();
                self.named(name, link);
                self.forget_election_port();
            }
            ["greet", name, id, accepted] => {
                let (link, _) = self.server.greet(number(id), number(accepted));
                self.named(name, link);
            }
            ["accept", name] => {
                let link = self.server.link();
                self.named(name, link);
                self.server.input(Input::Accepted { link });
            }
            ["dialed", name] => {
                let link = self.server.link();
                self.named(name, link);
                let peer = ServerId(3);
                self.server.input(Input::Dialed { peer, port: Port::Quorum, link: Some(link) });
            }
            ["close", name] => {
                self.server.input(Input::Closed { link: self.links[name] });
            }
            ["received", name] => {
                self.server.input(Input::SnapshotReceived { link: self.links[name] });
            }
            ["accepted", of] => {
                self.server.done(Durable::AcceptedEpoch(epoch(of)));
            }
            ["current", of] => {
                self.server.done(Durable::CurrentEpoch(epoch(of)));
            }
            ["flushed", at] => {
                self.server.done(Durable::Flushed(zxid(at)));
            }
            ["cannot-truncate", at] => {
                self.server.done(Durable::CannotTruncate(zxid(at)));
            }
            ["installed", at] => {
                self.server.done(Durable::Installed { zxid: zxid(at), state: () });
            }
            ["after", ms] => {
                self.server.now_ms += ms.parse::<u64>().expect("milliseconds");
                self.server.input(Input::Timer);
            }
            ["vote"] => {
                let last = self.server.zab.last_proposed();
                self.server.said.push(format!("votes with {}:{}", last.epoch(), last.counter()));
            }
            ["propose"] => match self.server.zab.proposer().map(|proposer| proposer.zxid()) {
                Some(zxid) => {
                    self.server.propose(zxid);
                }
                None => self.server.said.push("refused".to_owned()),
            },
            [name, ref words @ ..] => {
                self.server.packet(self.links[name], packet(words));
            }
            [] => panic!("a command without words"),
        }
    }
}

/// Runs the commands of a file and compares the outputs.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the test compares a file and can rewrite it")]
pub fn check(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/promises").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut world = World::new();
    let mut actual = String::new();
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            writeln!(actual, "{line}").unwrap();
        } else if let Some(command) = line.strip_prefix("- ") {
            writeln!(actual, "{line}").unwrap();
            world.server.said.clear();
            world.run(command);
            for output in &world.server.said {
                writeln!(actual, "    {output}").unwrap();
            }
        }
    }
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&file, actual).unwrap();
    } else {
        assert_eq!(text, actual, "{name}; rerun with UPDATE_TRANSCRIPTS=1 and look at the diff");
    }
}
