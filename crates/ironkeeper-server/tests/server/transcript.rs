//! The requests and received frames of one connection, and a checker that uses nothing else.
//!
//! The checker first collects every change from the replies to writes of all connections. From that
//! history it derives for each reply the tree at the zxid in its header, and for each watch the
//! change that it has to report. The rules, for each connection:
//!
//! - replies arrive in the order of the requests, and their zxids never decrease;
//! - a reply shows the tree exactly as it was at the zxid in its header, so the header is never
//!   older than the data, and a multi is visible completely or not at all;
//! - a write's zxid is above that of every reply before it: earlier reads did not see the write;
//! - an event's zxid is above that of every reply before it: events precede newer data;
//! - an event belongs to a watch whose registration got its reply before, and reports the first
//!   change after the zxid of that reply: watches are set together with the read;
//! - no reply has a zxid at or above a change that a set watch has not reported: no event is lost;
//! - a recursive watch reports every change in its tree, once, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{Stat, Zxid, path};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Get {
        path: &'static str,
        watch: bool,
    },
    Exists {
        path: &'static str,
        watch: bool,
    },
    Children {
        path: &'static str,
        watch: bool,
    },
    /// Several nodes read at one moment.
    GetTogether(Vec<&'static str>),
    Set {
        path: &'static str,
        value: u64,
    },
    /// Several nodes written with one value at one moment.
    SetTogether {
        paths: Vec<&'static str>,
        value: u64,
    },
    Create {
        path: String,
        value: u64,
    },
    Delete {
        path: String,
    },
    /// A sync or a ping: only its position in the order matters.
    Nothing,
    WatchBelow {
        path: &'static str,
    },
}

/// A node in a reply; `None` if the reply does not contain the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    pub value: Option<u64>,
    pub stat: Stat,
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The requested nodes in the order of the request.
    Nodes(Vec<Sight>),
    Names(Vec<String>),
    Nothing,
    NoNode,
    NodeExists,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `place` is the index of the request among all requests of the connection.
    Answer {
        place: usize,
        asked: Asked,
        zxid: Zxid,
        shown: Shown,
    },
    Event {
        kind: EventType,
        path: String,
        zxid: Zxid,
    },
}

/// Everything that one connection received.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    pub name: String,
    pub lines: Vec<Line>,
}

/// Checks transcripts against each other and the rules; returns descriptions of the violations.
pub fn violations(transcripts: &[Transcript]) -> Vec<String> {
    let mut history = History::default();
    let mut found = Vec::new();
    for transcript in transcripts {
        for line in &transcript.lines {
            if let Line::Answer { asked, zxid, shown, .. } = line {
                history.take(asked, *zxid, shown);
            }
        }
    }
    for transcript in transcripts {
        let mut listener = Listener::new(&history);
        for (at, line) in transcript.lines.iter().enumerate() {
            if let Err(what) = listener.hear(line) {
                let from = at.saturating_sub(3);
                let before = &transcript.lines[from..at];
                found.push(format!(
                    "{}: {what}\n  at {line:?}\n  after {before:?}",
                    transcript.name
                ));
                // The rest of this transcript cannot be checked.
                break;
            }
        }
    }
    found
}

/// The state of a node at one zxid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeThen {
    value: u64,
    version: i32,
    czxid: Zxid,
    mzxid: Zxid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Data,
    Child,
}

/// A transaction and the index in it, if it is a multi.
type Place = (Zxid, usize);
/// The event of a change for a recursive watch.
type Told = (EventType, String);

/// All changes that were acknowledged to any connection.
#[derive(Debug, Default)]
struct History {
    nodes: BTreeMap<String, BTreeMap<Zxid, Option<NodeThen>>>,
    /// By parent.
    names: BTreeMap<String, BTreeMap<Zxid, (String, bool)>>,
    events: BTreeMap<Place, Told>,
}

impl History {
    fn take(&mut self, asked: &Asked, zxid: Zxid, shown: &Shown) {
        match (asked, shown) {
            (Asked::Set { path, value }, Shown::Nodes(sights)) => {
                self.take_set(zxid, 0, path, *value, &sights[0].stat);
            }
            (Asked::SetTogether { paths, value }, Shown::Nodes(sights)) => {
                for (place, (path, sight)) in paths.iter().zip(sights).enumerate() {
                    self.take_set(zxid, place, path, *value, &sight.stat);
                }
            }
            (Asked::Create { path, value }, Shown::Nodes(_)) => {
                let node = NodeThen { value: *value, version: 0, czxid: zxid, mzxid: zxid };
                self.nodes.entry(path.clone()).or_default().insert(zxid, Some(node));
                self.events.insert((zxid, 0), (EventType::NodeCreated, path.clone()));
                self.take_name(zxid, path, true);
            }
            (Asked::Delete { path }, Shown::Nothing) => {
                self.nodes.entry(path.clone()).or_default().insert(zxid, None);
                self.events.insert((zxid, 0), (EventType::NodeDeleted, path.clone()));
                self.take_name(zxid, path, false);
            }
            _ => {}
        }
    }

    fn take_set(&mut self, zxid: Zxid, place: usize, path: &str, value: u64, stat: &Stat) {
        let Stat { version, czxid, mzxid, .. } = *stat;
        let node = NodeThen { value, version, czxid, mzxid };
        self.nodes.entry(path.to_owned()).or_default().insert(zxid, Some(node));
        self.events.insert((zxid, place), (EventType::NodeDataChanged, path.to_owned()));
    }

    fn take_name(&mut self, zxid: Zxid, path: &str, there: bool) {
        let parent = path::parent(path).expect("the root is never created or deleted");
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.names.entry(parent.to_owned()).or_default().insert(zxid, (name, there));
    }

    fn node_at(&self, path: &str, zxid: Zxid) -> Option<NodeThen> {
        *self.nodes.get(path)?.range(..=zxid).next_back()?.1
    }

    fn names_at(&self, path: &str, zxid: Zxid) -> Vec<String> {
        let mut names = BTreeSet::new();
        for (name, there) in
            self.names.get(path).iter().flat_map(|all| all.range(..=zxid)).map(|(_, change)| change)
        {
            if *there {
                names.insert(name.clone());
            } else {
                names.remove(name);
            }
        }
        names.into_iter().collect()
    }

    /// Returns the first change after `zxid` that a watch of this kind reports.
    fn next_change(&self, kind: Kind, path: &str, zxid: Zxid) -> Option<Zxid> {
        let after = (Bound::Excluded(zxid), Bound::Unbounded);
        match kind {
            Kind::Data => self.nodes.get(path)?.range(after).next().map(|(zxid, _)| *zxid),
            Kind::Child => self.names.get(path)?.range(after).next().map(|(zxid, _)| *zxid),
        }
    }
}

/// The checker of one transcript.
struct Listener<'a> {
    history: &'a History,
    next_place: usize,
    /// The zxids of the last reply and of the last event.
    answered: Zxid,
    told: Zxid,
    /// Set watches, each with the zxid of the change it has to report, if there was one.
    watches: BTreeMap<(Kind, String), Option<Zxid>>,
    /// A recursive watch, and the last change it reported.
    below: Option<(&'static str, Place)>,
}

impl<'a> Listener<'a> {
    fn new(history: &'a History) -> Listener<'a> {
        Listener {
            history,
            next_place: 0,
            answered: Zxid::ZERO,
            told: Zxid::ZERO,
            watches: BTreeMap::new(),
            below: None,
        }
    }

    fn hear(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Answer { place, asked, zxid, shown } => {
                self.hear_answer(*place, asked, *zxid, shown)
            }
            Line::Event { kind, path, zxid } => self.hear_event(*kind, path, *zxid),
        }
    }

    fn hear_answer(
        &mut self,
        place: usize,
        asked: &Asked,
        zxid: Zxid,
        shown: &Shown,
    ) -> Result<(), String> {
        if place != self.next_place {
            return Err(format!("the answer to request {place} instead of {}", self.next_place));
        }
        self.next_place += 1;
        let is_write = matches!(
            asked,
            Asked::Set { .. }
                | Asked::SetTogether { .. }
                | Asked::Create { .. }
                | Asked::Delete { .. }
        );
        if is_write && zxid <= self.answered {
            return Err(format!("a write at {zxid} after an answer at {}", self.answered));
        }
        if zxid < self.answered {
            return Err(format!("an answer at {zxid} after one at {}", self.answered));
        }
        self.answered = zxid;
        self.check_shown(asked, zxid, shown)?;
        for ((kind, path), change) in &self.watches {
            if let Some(change) = change.filter(|change| *change <= zxid) {
                return Err(format!("the {kind:?} watch on {path} has not told of {change}"));
            }
        }
        if let Some(((change, _), _)) = self.next_below()
            && change <= zxid
        {
            return Err(format!("the watch over the tree has not told of {change}"));
        }
        self.set_watch(asked, zxid, shown);
        Ok(())
    }

    fn check_shown(&self, asked: &Asked, zxid: Zxid, shown: &Shown) -> Result<(), String> {
        let paths: Vec<&str> = match asked {
            Asked::Get { path, .. } | Asked::Exists { path, .. } | Asked::Set { path, .. } => {
                vec![path]
            }
            Asked::GetTogether(paths) | Asked::SetTogether { paths, .. } => paths.clone(),
            Asked::Create { path, .. } | Asked::Delete { path } => vec![path],
            Asked::Children { path, .. } => {
                let expected = self.history.names_at(path, zxid);
                return match shown {
                    Shown::Names(names) if *names == expected => Ok(()),
                    _ => Err(format!("the children of {path} were {expected:?}")),
                };
            }
            Asked::Nothing | Asked::WatchBelow { .. } => return Ok(()),
        };
        let Shown::Nodes(sights) = shown else {
            let there = self.history.node_at(paths[0], zxid).is_some();
            let right = match shown {
                Shown::NoNode => !there,
                Shown::NodeExists => there,
                // A delete.
                _ => !there,
            };
            return if right { Ok(()) } else { Err(format!("was it there? {there}")) };
        };
        for (path, Sight { value, stat }) in paths.into_iter().zip(sights) {
            let Some(then) = self.history.node_at(path, zxid) else {
                return Err(format!("{path} was not there"));
            };
            let Stat { version, czxid, mzxid, .. } = *stat;
            let seen = NodeThen { value: value.unwrap_or(then.value), version, czxid, mzxid };
            if seen != then {
                return Err(format!("{path} was {then:?}"));
            }
        }
        Ok(())
    }

    fn set_watch(&mut self, asked: &Asked, zxid: Zxid, shown: &Shown) {
        let (kind, path) = match asked {
            // A getData without a node sets no watch; an exists does.
            Asked::Get { watch: true, .. } if *shown == Shown::NoNode => return,
            Asked::Get { path, watch: true } | Asked::Exists { path, watch: true } => {
                (Kind::Data, *path)
            }
            Asked::Children { path, watch: true } => (Kind::Child, *path),
            Asked::WatchBelow { path } => {
                self.below = Some((path, (zxid, usize::MAX)));
                return;
            }
            _ => return,
        };
        let change = self.history.next_change(kind, path, zxid);
        self.watches.entry((kind, path.to_owned())).or_insert(change);
    }

    fn hear_event(&mut self, kind: EventType, path: &str, zxid: Zxid) -> Result<(), String> {
        if zxid <= self.answered {
            return Err(format!("an event of {zxid} after an answer at {}", self.answered));
        }
        if zxid < self.told {
            return Err(format!("an event of {zxid} after one of {}", self.told));
        }
        self.told = zxid;
        if self.below.is_some() {
            let expected = self.next_below().map(|((zxid, _), event)| (zxid, event.clone()));
            if expected != Some((zxid, (kind, path.to_owned()))) {
                return Err(format!("the next change below the watch was {expected:?}"));
            }
            let (at, _) = self.next_below().expect("it was just seen");
            self.below = self.below.map(|(root, _)| (root, at));
            return Ok(());
        }
        let watch = match kind {
            EventType::NodeChildrenChanged => Kind::Child,
            _ => Kind::Data,
        };
        match self.watches.remove(&(watch, path.to_owned())) {
            None => Err("no watch asked for this event".to_owned()),
            Some(Some(change)) if change == zxid => self.check_kind(kind, path, zxid),
            Some(change) => Err(format!("the watch had to tell of {change:?}")),
        }
    }

    fn check_kind(&self, kind: EventType, path: &str, zxid: Zxid) -> Result<(), String> {
        let before = self.history.node_at(path, Zxid(zxid.0 - 1)).is_some();
        let after = self.history.node_at(path, zxid).is_some();
        let expected = match (before, after) {
            _ if kind == EventType::NodeChildrenChanged => kind,
            (false, _) => EventType::NodeCreated,
            (true, false) => EventType::NodeDeleted,
            (true, true) => EventType::NodeDataChanged,
        };
        if kind == expected { Ok(()) } else { Err(format!("it was {expected:?}")) }
    }

    /// Returns the change that the recursive watch reports next.
    fn next_below(&self) -> Option<(Place, &'a Told)> {
        let (root, told) = self.below?;
        self.history
            .events
            .range((Bound::Excluded(told), Bound::Unbounded))
            .find(|(_, (_, path))| path.starts_with(root))
            .map(|(at, event)| (*at, event))
    }
}

/// Tests of the checker: a correct transcript passes, and each small falsification is detected.
mod tests {
    use super::*;

    fn stat(version: i32, zxid: i64) -> Stat {
        Stat { version, czxid: Zxid(1), mzxid: Zxid(zxid), ..Stat::default() }
    }

    fn answer(place: usize, zxid: i64, asked: Asked, shown: Shown) -> Line {
        Line::Answer { place, asked, zxid: Zxid(zxid), shown }
    }

    fn sight(value: u64, version: i32, zxid: i64) -> Shown {
        Shown::Nodes(vec![Sight { value: Some(value), stat: stat(version, zxid) }])
    }

    fn writer() -> Transcript {
        let create = Asked::Create { path: "/a".to_owned(), value: 0 };
        let set = |value| Asked::Set { path: "/a", value };
        Transcript {
            name: "writer".to_owned(),
            lines: vec![
                answer(0, 1, create, sight(0, 0, 1)),
                answer(1, 2, set(10), sight(10, 1, 2)),
                answer(2, 3, set(20), sight(20, 2, 3)),
            ],
        }
    }

    fn reader() -> Transcript {
        let get = |watch| Asked::Get { path: "/a", watch };
        let event =
            Line::Event { kind: EventType::NodeDataChanged, path: "/a".to_owned(), zxid: Zxid(2) };
        Transcript {
            name: "reader".to_owned(),
            lines: vec![
                answer(0, 1, get(true), sight(0, 0, 1)),
                event,
                answer(1, 3, get(false), sight(20, 2, 3)),
            ],
        }
    }

    #[track_caller]
    fn check(lie: impl FnOnce(&mut Vec<Line>), expected: &str) {
        let mut reader = reader();
        lie(&mut reader.lines);
        let found = violations(&[writer(), reader]).concat();
        assert!(found.contains(expected), "found: {found}");
    }

    #[test]
    fn a_faithful_transcript_passes() {
        assert_eq!(violations(&[writer(), reader()]), Vec::<String>::new());
    }

    #[test]
    fn a_lost_event_is_found() {
        check(|lines| drop(lines.remove(1)), "has not told of 0x2");
    }

    #[test]
    fn an_event_behind_newer_data_is_found() {
        check(|lines| lines.swap(1, 2), "has not told of 0x2");
    }

    #[test]
    fn an_event_before_its_registration_is_found() {
        check(|lines| lines.swap(0, 1), "no watch asked");
    }

    #[test]
    fn an_event_told_twice_is_found() {
        check(|lines| lines.insert(1, lines[1].clone()), "no watch asked");
    }

    #[test]
    fn a_header_older_than_the_data_is_found() {
        check(
            |lines| {
                let Line::Answer { zxid, .. } = &mut lines[2] else { unreachable!() };
                *zxid = Zxid(2);
            },
            "/a was",
        );
    }

    #[test]
    fn an_answer_out_of_order_is_found() {
        check(|lines| lines.swap(0, 2), "the answer to request 1 instead of 0");
    }

    #[test]
    fn half_a_multi_is_found() {
        let paths = vec!["/a", "/b"];
        let both = |value, version, zxid| {
            let sight = Sight { value: Some(value), stat: stat(version, zxid) };
            vec![sight, sight]
        };
        let create = |path: &str| Asked::Create { path: path.to_owned(), value: 0 };
        let set = Asked::SetTogether { paths: paths.clone(), value: 7 };
        let mut lines = vec![
            answer(0, 1, create("/a"), sight(0, 0, 1)),
            answer(1, 2, create("/b"), sight(0, 0, 2)),
            answer(2, 3, set, Shown::Nodes(both(7, 1, 3))),
        ];
        let Line::Answer { shown: Shown::Nodes(sights), .. } = &mut lines[2] else {
            unreachable!()
        };
        sights[1].stat.czxid = Zxid(2);
        let mut sights = sights.clone();
        sights[1] = Sight { value: Some(0), stat: Stat { czxid: Zxid(2), ..stat(0, 2) } };
        lines.push(answer(3, 3, Asked::GetTogether(paths), Shown::Nodes(sights)));
        let found = violations(&[Transcript { name: "one".to_owned(), lines }]).concat();
        assert!(found.contains("/b was"), "found: {found}");
    }
}
