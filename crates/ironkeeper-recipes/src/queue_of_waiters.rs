//! The algorithm behind the mutex, the read/write lock, the latch and the selector: contenders are
//! ephemeral sequential children of a path, and each contender watches only the contender that
//! blocks it.
//!
//! ```text
//! /path                                     container
//!   _c_<uuid>-lock-0000000007               the first contender holds the lock
//!   _c_<uuid>-lock-0000000008               watches 7
//!   _c_<uuid>-lock-0000000009               watches 8
//! ```
//!
//! Steps: create the contender; list the children; decide by the sorted list alone; if another
//! contender blocks, read its node with a watch (a read of a missing node leaves no watch, unlike
//! `exists`), wait for the event and list again, whatever the event is. When the predecessor is
//! deleted, a contender lists again and never creates a new node: two contenders that create new
//! nodes whenever the other one does would do so for ever.
//!
//! Two shortcuts. Ironkeeper's servers add the czxid of the oldest remaining child to the event
//! (oldest-sibling watch): the contender with that czxid need not list again. Among contenders of
//! one session the holder passes the lock on in memory, by a handover (`heirs.rs`).
//!
//! Children that are not contenders are ignored. Sequence numbers are compared with wrap-around:
//! after 2^31 creations they continue with negative numbers.

use std::cmp::Reverse;

use ironkeeper_client::{Client, ErrorKind, SessionId, WatchEvent, Zxid};

use crate::error::{RecipeError, Result};
use crate::heirs::{Heir, Inheritance};
use crate::other_recipes;
use crate::place::{Place, join, name_of, patient};
use crate::reads::{children_or_none, get_children};

/// The endings of the contenders' names, without the number. The index in the list is the kind of
/// contender.
pub(crate) type Bases = &'static [&'static str];

/// A child of a lock's path that stands for one request to acquire the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    /// The index of the base in its name.
    pub(crate) kind: usize,
    pub(crate) sequence: i32,
}

impl<'a> Contender<'a> {
    pub(crate) fn parse(name: &'a str, bases: Bases) -> Option<Contender<'a>> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (before, number) = name.split_at(name.len() - digits);
        let (kind, number) = match kind_of(before, bases) {
            Some(kind) => (kind, number),
            // Negative numbers, after the overflow.
            None => (kind_of(before.strip_suffix('-')?, bases)?, &name[before.len() - 1..]),
        };
        // Java pads to ten characters, including the minus.
        let sequence = if number.len() < 10 { return None } else { number.parse().ok()? };
        Some(Contender { name, kind, sequence })
    }
}

fn kind_of(before: &str, bases: Bases) -> Option<usize> {
    bases.iter().rposition(|base| before.ends_with(base))
}

/// Returns the contenders among `names`, sorted by sequence number relative to `me` (or to any of
/// them).
///
/// Equal numbers come from downgrades: the reader that a writer has become is sorted directly
/// behind the writer.
pub(crate) fn line_up<'a>(
    names: impl IntoIterator<Item = &'a String>,
    bases: Bases,
    me: Option<&str>,
) -> Vec<Contender<'a>> {
    let mut line: Vec<Contender<'_>> =
        names.into_iter().filter_map(|name| Contender::parse(name, bases)).collect();
    let reference = me
        .and_then(|me| Contender::parse(me, bases))
        .or_else(|| line.first().copied())
        .map_or(0, |contender| contender.sequence);
    line.sort_unstable_by_key(|contender| {
        (contender.sequence.wrapping_sub(reference), Reverse(contender.kind), contender.name)
    });
    line
}

/// Kind 0 is a reader and kind 1 a writer, in recipes that distinguish them.
pub(crate) const READER: usize = 0;
pub(crate) const WRITER: usize = 1;

/// The condition under which a contender is granted the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It is the first contender.
    First,
    /// No writer precedes it.
    Reader,
}

/// The decision about one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Granted,
    /// Blocked as long as this contender exists.
    WaitFor(Contender<'a>),
    /// Its node is not in the list.
    Missing,
}

/// Decides about the contender `me`. A pure function of the sorted list.
pub(crate) fn decide<'a>(line: &[Contender<'a>], me: &str, rule: Rule) -> Verdict<'a> {
    let Some(at) = line.iter().position(|contender| contender.name == me) else {
        return Verdict::Missing;
    };
    let before = &line[..at];
    let in_the_way = match rule {
        Rule::First => before.last(),
        // The nearest writer, not the first one: it is granted last, so the reader wakes up once.
        Rule::Reader => before.iter().rev().find(|contender| contender.kind == WRITER),
    };
    in_the_way.map_or(Verdict::Granted, |contender| Verdict::WaitFor(*contender))
}

/// Rejects a path with nodes of another recipe: the two recipes would ignore each other's nodes.
pub(crate) fn refuse_other_recipes(path: &str, names: &[String], bases: Bases) -> Result<()> {
    let is_ours = |name: &str| {
        other_recipes::marked(name).is_some() && Contender::parse(name, bases).is_some()
    };
    other_recipes::refuse(path, names, is_ours)
}

/// A contender of this client, which waits for the lock.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) place: &'a Place,
    pub(crate) bases: Bases,
    pub(crate) rule: Rule,
    /// Whether to watch the data of the own node, into which the deadlock detector writes. The
    /// watch costs one read when the wait begins, and one event when the node is deleted.
    pub(crate) heeds_deadlocks: bool,
    /// Whether a holder of the same session may hand the lock over to this contender.
    pub(crate) inherits: bool,
}

/// The prefix of the data of a waiting node whose owner is the deadlock victim and has to abandon
/// the wait. The cycle follows.
pub(crate) const DEADLOCK_MESSAGE: &[u8] = b"__DEADLOCK__ ";

/// The prefix of the data of a waiting node whose owner is part of a deadlock, but not the victim.
/// The cycle, a line break and the node's own data follow.
const NOTICE: &[u8] = b"__IN_DEADLOCK__ ";

/// Returns the data that notifies the owner of a node of a deadlock.
pub(crate) fn notice(cycle: &str, data: &[u8]) -> Vec<u8> {
    let line = cycle.replace('\n', " ");
    [NOTICE, line.as_bytes(), b"\n", own_data(data)].concat()
}

/// Splits a notice into the cycle and the node's own data.
fn read_notice(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = data.strip_prefix(NOTICE)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    Some((&rest[..end], &rest[end + 1..]))
}

/// Returns the node's own data, without a notice.
pub(crate) fn own_data(data: &[u8]) -> &[u8] {
    read_notice(data).map_or(data, |(_, own)| own)
}

impl<'a> Standing<'a> {
    /// Returns a contender with [`Rule::First`], without deadlock notices and without handover.
    pub(crate) fn plain(place: &'a Place, bases: Bases) -> Standing<'a> {
        Standing { place, bases, rule: Rule::First, heeds_deadlocks: false, inherits: false }
    }

    /// Lists the children. Returns `None` if the lock is granted, else the path of the blocking
    /// contender.
    pub(crate) async fn look(&self) -> Result<Option<String>> {
        let (client, parent) = (self.place.client(), self.place.parent());
        let names = match client.retry(&patient(), || client.children(parent)).await {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NoNode => return Err(self.gone()),
            Err(error) => return Err(error.into()),
        };
        self.judge(&names)
    }

    /// Decides by a list of the children, and returns the same as [`Standing::look`].
    pub(crate) fn judge(&self, names: &[String]) -> Result<Option<String>> {
        let parent = self.place.parent();
        let line = line_up(names, self.bases, Some(self.place.name()));
        if line.len() < names.len() {
            refuse_other_recipes(parent, names, self.bases)?;
        }
        match decide(&line, self.place.name(), self.rule) {
            Verdict::Granted if self.place.is_of_this_session() => Ok(None),
            Verdict::Granted => {
                Err(RecipeError::ForeignSession { path: self.place.path().to_owned() })
            }
            Verdict::WaitFor(other) => Ok(Some(join(parent, other.name))),
            Verdict::Missing => Err(self.gone()),
        }
    }

    /// Returns whether the deletion of the blocking contender has made this contender the first,
    /// according to the server's event. A new list would give the same result: the own node exists,
    /// no sibling is older, and among contenders of one kind the older node has the smaller number.
    /// (That does not hold with readers: a downgrade creates a new node with an old number.)
    fn is_first_after(&self, event: &WatchEvent) -> bool {
        self.bases.len() == 1
            && event.oldest_sibling == Some(self.place.czxid())
            && self.place.is_of_this_session()
            && self.place.client().is_in_touch()
    }

    fn gone(&self) -> RecipeError {
        RecipeError::NodeGone { path: self.place.path().to_owned() }
    }

    /// Waits until the lock is granted. Calls `on_wait` with the path of each contender that it
    /// waits for.
    pub(crate) async fn wait(&self, on_wait: impl FnMut(&str)) -> Result<()> {
        self.wait_telling(None, on_wait, |_| {}).await.map(drop)
    }

    /// Waits as [`Standing::wait`] does, beginning with the children in `listed`, if given. Calls
    /// `on_deadlock` with every cycle that contains this contender without making it the victim.
    /// Returns the [`Inheritance`] if the lock was handed over.
    pub(crate) async fn wait_telling(
        &self,
        listed: Option<Vec<String>>,
        mut on_wait: impl FnMut(&str),
        on_deadlock: impl Fn(&str),
    ) -> Result<Option<Inheritance>> {
        let client = self.place.client();
        let mut found = match listed {
            Some(names) => self.judge(&names)?,
            None => self.look().await?,
        };
        while let Some(in_the_way) = found {
            let watched =
                client.retry(&patient(), || client.get_and_watch_in_line(&in_the_way)).await;
            let watch = match watched {
                // No session owns this node, so the server would never delete it.
                Ok((node, _)) if node.stat.ephemeral_owner == 0 => {
                    let why = "stands in line, but is not ephemeral: its turn would never end";
                    return Err(RecipeError::Malformed { path: in_the_way, why: why.to_owned() });
                }
                Ok((_, watch)) => watch,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    found = self.look().await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let mut heir =
                self.inherits.then(|| Heir::of(name_of(&in_the_way), client, self.place.path()));
            on_wait(&in_the_way);
            tokio::select! {
                // A grant takes precedence over a deadlock notice.
                biased;
                inheritance = inherited(heir.as_mut()) => return Ok(Some(inheritance)),
                event = watch => {
                    if self.is_first_after(&event?) {
                        return Ok(None);
                    }
                }
                told = told_to_give_up(self.place, &on_deadlock), if self.heeds_deadlocks => {
                    return Err(told);
                }
            }
            found = self.look().await?;
        }
        Ok(None)
    }
}

/// Waits until the own waiting node contains [`DEADLOCK_MESSAGE`] or is deleted, and returns the
/// error. Calls `on_deadlock` with every cycle that contains this contender without making it the
/// victim.
pub(crate) async fn told_to_give_up(place: &Place, on_deadlock: impl Fn(&str)) -> RecipeError {
    let (client, path) = (place.client(), place.path());
    loop {
        let (node, watch) = match client.retry(&patient(), || client.get_and_watch(path)).await {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NoNode => {
                return RecipeError::NodeGone { path: path.to_owned() };
            }
            Err(error) => return error.into(),
        };
        if let Some(cycle) = node.data.strip_prefix(DEADLOCK_MESSAGE) {
            let cycle = String::from_utf8_lossy(cycle).into_owned();
            return RecipeError::Deadlock { path: path.to_owned(), cycle };
        }
        if let Some((cycle, ours)) = read_notice(&node.data) {
            on_deadlock(&String::from_utf8_lossy(cycle));
            // Restores the node's own data, which other clients read. If the write fails, the next
            // change fires the watch, and the node is read again.
            let _ = client.set(path, ours, node.stat.version).await;
        }
        if let Err(error) = watch.await {
            return error.into();
        }
    }
}

async fn inherited(heir: Option<&mut Heir>) -> Inheritance {
    match heir {
        Some(heir) => heir.inherited().await,
        None => std::future::pending().await,
    }
}

/// A contender, as read by any client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The path of its node.
    pub path: String,
    /// The data that its owner has written.
    pub data: Vec<u8>,
    /// The session that owns the node.
    pub session: SessionId,
    /// The zxid of its creation; also its fencing token.
    pub czxid: Zxid,
    /// Whether it holds the lock or the leadership.
    pub is_granted: bool,
}

impl Participant {
    /// Returns the data as text; invalid UTF-8 is replaced.
    pub fn id(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }
}

/// Returns the contenders of a path, in order, without those that are deleted during the reads.
pub(crate) async fn participants(
    client: &Client,
    path: &str,
    bases: Bases,
) -> Result<Vec<Participant>> {
    let names = children_or_none(client, path).await?;
    let line = line_up(&names, bases, None);
    let nodes = get_children(client, path, line.iter().map(|one| one.name)).await?;
    let mut found: Vec<(Contender<'_>, Participant)> = line
        .into_iter()
        .zip(nodes)
        .filter_map(|(contender, node)| {
            let (path, node) = (join(path, contender.name), node?);
            let participant = Participant {
                path,
                data: own_data(&node.data).to_vec(),
                session: SessionId(node.stat.ephemeral_owner),
                czxid: node.stat.czxid,
                is_granted: false,
            };
            Some((contender, participant))
        })
        .collect();
    let line: Vec<Contender<'_>> = found.iter().map(|(contender, _)| *contender).collect();
    for (contender, participant) in &mut found {
        let reads = bases.len() > 1 && contender.kind == READER;
        let rule = if reads { Rule::Reader } else { Rule::First };
        participant.is_granted = decide(&line, contender.name, rule) == Verdict::Granted;
    }
    Ok(found.into_iter().map(|(_, participant)| participant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTEX: Bases = &["lock-"];
    const READ_WRITE: Bases = &["__READ__", "__WRIT__"];

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[track_caller]
    fn check(bases: Bases, list: &[&str], me: &str, rule: Rule, expected: &str) {
        let list = names(list);
        let line = line_up(&list, bases, Some(me));
        let said = match decide(&line, me, rule) {
            Verdict::Granted => "granted".to_owned(),
            Verdict::WaitFor(other) => other.name.to_owned(),
            Verdict::Missing => "missing".to_owned(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn the_number_decides_not_the_mark() {
        let line = ["b-lock-0000000001", "a-lock-0000000002", "c-lock-0000000003"];
        check(MUTEX, &line, "b-lock-0000000001", Rule::First, "granted");
        check(MUTEX, &line, "a-lock-0000000002", Rule::First, "b-lock-0000000001");
        check(MUTEX, &line, "c-lock-0000000003", Rule::First, "a-lock-0000000002");
        check(MUTEX, &line, "c-lock-0000000004", Rule::First, "missing");
    }

    #[test]
    fn curator_43_foreign_children_are_not_counted() {
        let line = ["config", "lock-", "lock-abc", "lock-1", "x-lock-0000000007"];
        check(MUTEX, &line, "x-lock-0000000007", Rule::First, "granted");
    }

    #[test]
    fn kazoo_730_numbers_go_on_after_the_overflow() {
        let line = ["a-lock-2147483646", "b-lock-2147483647", "c-lock--2147483648"];
        check(MUTEX, &line, "a-lock-2147483646", Rule::First, "granted");
        check(MUTEX, &line, "c-lock--2147483648", Rule::First, "b-lock-2147483647");
        let later = ["c-lock--2147483648", "d-lock--2147483647"];
        check(MUTEX, &later, "c-lock--2147483648", Rule::First, "granted");
        check(MUTEX, &later, "d-lock--2147483647", Rule::First, "c-lock--2147483648");
        // Small negative numbers are padded to ten characters.
        let last = ["e-lock--000000002", "f-lock--000000001", "g-lock-0000000000"];
        check(MUTEX, &last, "g-lock-0000000000", Rule::First, "f-lock--000000001");
    }

    #[test]
    fn readers_wait_for_the_nearest_writer_and_writers_for_everybody() {
        let line = [
            "r-__READ__0000000001",
            "w-__WRIT__0000000002",
            "w-__WRIT__0000000003",
            "r-__READ__0000000004",
            "r-__READ__0000000005",
        ];
        check(READ_WRITE, &line, line[0], Rule::Reader, "granted");
        check(READ_WRITE, &line, line[1], Rule::First, line[0]);
        check(READ_WRITE, &line, line[2], Rule::First, line[1]);
        check(READ_WRITE, &line, line[3], Rule::Reader, line[2]);
        check(READ_WRITE, &line, line[4], Rule::Reader, line[2]);
    }

    #[test]
    fn curator_621_a_downgraded_reader_stands_where_the_writer_stood() {
        let line = ["w-__WRIT__0000000005", "r-__READ__0000000005", "w-__WRIT__0000000006"];
        check(READ_WRITE, &line, "w-__WRIT__0000000006", Rule::First, "r-__READ__0000000005");
        check(READ_WRITE, &line[1..], "w-__WRIT__0000000006", Rule::First, "r-__READ__0000000005");
    }

    #[test]
    fn a_notice_keeps_what_the_node_said() {
        let told = notice("one waits\nfor two", b"task\n1");
        assert_eq!(read_notice(&told), Some((&b"one waits for two"[..], &b"task\n1"[..])));
        // A second notice replaces the first.
        assert_eq!(own_data(&notice("again", &told)), b"task\n1");
        assert_eq!(own_data(b"task"), b"task");
        assert_eq!(read_notice(NOTICE), None);
    }

    #[test]
    fn another_recipe_on_the_path_is_refused() {
        let mark = "_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-";
        let other = names(&["readme", &format!("{mark}__WRIT__0000000001")]);
        let refused = refuse_other_recipes("/p", &other, MUTEX).unwrap_err();
        assert!(refused.to_string().contains("read/write lock"), "{refused}");
        assert!(refuse_other_recipes("/p", &other, READ_WRITE).is_ok());
        assert!(refuse_other_recipes("/p", &names(&["leases", "locks"]), MUTEX).is_err());
    }

    #[test]
    fn names_of_kazoo_are_refused_where_nobody_else_has_them() {
        const KAZOO: Bases = &["__lock__"];
        const KAZOO_READ_WRITE: Bases = &["__rlock__", "__lock__"];
        let theirs =
            |base: &str| names(&[&format!("0b7c6a0e5d4f4c3b8a291807f6e5d4c3{base}0000000001")]);
        let (lock, reader) = (theirs("__lock__"), theirs("__rlock__"));
        for bases in [MUTEX, READ_WRITE] {
            assert!(refuse_other_recipes("/p", &lock, bases).is_err());
            assert!(refuse_other_recipes("/p", &reader, bases).is_err());
        }
        assert!(refuse_other_recipes("/p", &lock, KAZOO).is_ok());
        // A lock that ignores readers is rejected beside them.
        assert!(refuse_other_recipes("/p", &reader, KAZOO).is_err());
        assert!(refuse_other_recipes("/p", &[lock, reader].concat(), KAZOO_READ_WRITE).is_ok());
        let nobody = names(&["__lock__0000000001", "readme__lock__0000000001"]);
        assert!(refuse_other_recipes("/p", &nobody, MUTEX).is_ok());
    }

    proptest::proptest! {
        /// Exactly one contender is granted, and each of the others waits for its direct
        /// predecessor.
        #[test]
        fn whoever_waits_waits_for_somebody_before_it(start: i32, count in 1..40_i32, seed: u64) {
            let mut list: Vec<String> = (0..count)
                .map(|at| format!("{}-lock-{:010}", at * 7 % 13, start.wrapping_add(at)))
                .collect();
            let len = list.len();
            list.rotate_left(seed as usize % len);
            let mut granted = 0;
            for name in &list {
                let line = line_up(&list, MUTEX, Some(name));
                match decide(&line, name, Rule::First) {
                    Verdict::Granted => granted += 1,
                    Verdict::WaitFor(other) => {
                        let me = Contender::parse(name, MUTEX).unwrap();
                        assert_eq!(other.sequence.wrapping_add(1), me.sequence);
                    }
                    Verdict::Missing => panic!("{name} is in the list"),
                }
            }
            assert_eq!(granted, 1);
        }
    }
}
