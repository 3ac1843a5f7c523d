//! Deadlocks: who waits for whom over all locks below a path, the cycles in it, and a way out.
//!
//! # On the tree
//! Nothing of its own. It reads the nodes of [`Mutex`](super::Mutex) and
//! [`ReadWriteLock`](super::ReadWriteLock), Curator's too. To tell of a deadlock it writes
//! `__IN_DEADLOCK__` and the cycle into the waiting nodes, in front of what they said; whoever made its
//! lock with `heeding_deadlocks()` is told by [`LockEvent::Deadlocked`](super::LockEvent::Deadlocked) and
//! puts its own words back. To end a deadlock it writes `__DEADLOCK__` and the cycle into the node of the
//! victim, who gives up with [`RecipeError::Deadlock`](crate::RecipeError::Deadlock), and tells the others.
//!
//! # Steps
//! 1. Walk the subtree, and find the nodes whose children stand in line.
//! 2. Draw an edge from everybody who waits to those in its way: the holders, and the one right before
//!    it.
//! 3. Look for cycles. Read everything a second time, and keep the cycles that are still there: the
//!    reads are not one moment, but a deadlock stays.
//! 4. If asked to, tell everybody in the cycle; or choose a victim, and tell it and the others.
//!
//! # Who is who
//! A participant is a session, and within it whatever the data of its nodes says: `with_data("task 1")`
//! tells the tasks of one client apart. Nodes without data belong to the session as such, and a session
//! that waits for itself is then no deadlock: it may be two tasks.
//!
//! # Guarantees
//! Every deadlock among locks below the path that lasts while it is read twice is found. A cycle that
//! is reported was there at both looks; it may have been broken since by somebody who gave up. No
//! watches, and nothing held: broken connections are waited for, the end of the session is an error.
//! Telling costs one watch event at each participant that heeds deadlocks, and one at whoever waits right
//! behind it; a second one at both when the participant puts its words back.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ironkeeper_client::{Client, ErrorKind, SessionId, Version, Zxid};

use crate::error::Result;
use crate::guard::REVOKE_MESSAGE;
use crate::place::{name_of, patient};
use crate::queue_of_waiters::{
    Bases, Contender, DEADLOCK_MESSAGE, Participant, READER, WRITER, notice, participants,
};

/// The locks whose lines are understood.
const LINES: [Bases; 3] = [&["lock-"], &["__READ__", "__WRIT__"], &["-R-", "-W-"]];

/// Somebody waits for somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The path of the lock.
    pub lock: String,
    /// Who waits.
    pub waiter: Participant,
    /// Who is in the way.
    pub holder: Participant,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} waits at {} for {}",
            Party::of(&self.waiter),
            self.lock,
            Party::of(&self.holder)
        )
    }
}

/// Who waits for whom.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WaitGraph {
    /// All waits.
    pub waits: Vec<Wait>,
}

/// Participants who wait for each other in a circle: each holds what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waits, each by the participant that the one before is waiting for.
    pub waits: Vec<Wait>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, wait) in self.waits.iter().enumerate() {
            write!(f, "{}{wait}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Who gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Victim {
    /// Who began to wait last: probably it has done least.
    Youngest,
    /// Who began to wait first.
    Oldest,
    /// The waiter of this wait of the cycle.
    Wait(usize),
}

impl Deadlock {
    fn choose(&self, victim: Victim) -> Option<&Wait> {
        let since = |wait: &&Wait| -> Zxid { wait.waiter.czxid };
        match victim {
            Victim::Youngest => self.waits.iter().max_by_key(since),
            Victim::Oldest => self.waits.iter().min_by_key(since),
            Victim::Wait(at) => self.waits.get(at),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Party {
    session: i64,
    /// `None` if the node does not say.
    name: Option<Vec<u8>>,
}

impl Party {
    fn of(participant: &Participant) -> Party {
        let data = &participant.data;
        let is_message = data == REVOKE_MESSAGE || data.starts_with(DEADLOCK_MESSAGE);
        let name = (!data.is_empty() && !is_message).then(|| data.clone());
        Party { session: participant.session.0, name }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", SessionId(self.session))?;
        match &self.name {
            Some(name) => write!(f, " ({})", String::from_utf8_lossy(name)),
            None => Ok(()),
        }
    }
}

/// Finds deadlocks among the locks below a path.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let running = ironkeeper_testing::TestServer::start()?;
/// # let server = running.connect_string();
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::RecipeError;
/// use ironkeeper_recipes::lock::{DeadlockDetector, Mutex, Victim};
///
/// let client = Client::connect(&server).await?;
/// let lock = |path: &str, who: &'static str| {
///     Mutex::new(&client, path).with_data(who).heeding_deadlocks()
/// };
/// let (_a, _b) = (lock("/locks/a", "one").lock().await?, lock("/locks/b", "two").lock().await?);
/// let one = tokio::spawn({ let b = lock("/locks/b", "one"); async move { b.lock().await } });
/// let two = tokio::spawn({ let a = lock("/locks/a", "two"); async move { a.lock().await } });
///
/// let detector = DeadlockDetector::new(&client, "/locks");
/// let deadlock = loop {
///     if let Some(deadlock) = detector.detect().await?.pop() { break deadlock; }
/// };
/// detector.resolve(&deadlock, Victim::Wait(0)).await?;
/// let gave_up = tokio::select! { one = one => one?, two = two => two? };
/// assert!(matches!(gave_up, Err(RecipeError::Deadlock { .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DeadlockDetector {
    client: Client,
    roots: Vec<String>,
}

impl DeadlockDetector {
    /// Looks at all locks at and below `root`.
    pub fn new(client: &Client, root: impl Into<String>) -> DeadlockDetector {
        DeadlockDetector { client: client.clone(), roots: vec![root.into()] }
    }

    /// Looks at all locks at and below another path as well: a cycle may go over both.
    pub fn and(mut self, root: impl Into<String>) -> DeadlockDetector {
        self.roots.push(root.into());
        self
    }

    /// Who waits for whom.
    pub async fn graph(&self) -> Result<WaitGraph> {
        let mut graph = WaitGraph::default();
        for (lock, bases) in self.locks().await? {
            let line = participants(&self.client, &lock, bases).await?;
            graph.waits.extend(waits_of(&lock, &line, bases));
        }
        Ok(graph)
    }

    /// The deadlocks there are.
    pub async fn detect(&self) -> Result<Vec<Deadlock>> {
        let first = self.graph().await?;
        if first.cycles().is_empty() {
            return Ok(Vec::new());
        }
        let again = self.graph().await?;
        let lasting = |deadlock: &Deadlock| {
            deadlock.waits.iter().all(|wait| {
                let same = |other: &Wait| {
                    other.waiter.path == wait.waiter.path && other.holder.path == wait.holder.path
                };
                first.waits.iter().any(same)
            })
        };
        Ok(again.cycles().into_iter().filter(lasting).collect())
    }

    /// Tells everybody in a deadlock of it. Says how many were still waiting.
    pub async fn announce(&self, deadlock: &Deadlock) -> Result<usize> {
        self.announce_to(deadlock, |_| true).await
    }

    async fn announce_to(
        &self,
        deadlock: &Deadlock,
        is_meant: impl Fn(&Wait) -> bool,
    ) -> Result<usize> {
        let (client, cycle) = (&self.client, deadlock.to_string());
        let mut told = 0;
        for wait in deadlock.waits.iter().filter(|wait| is_meant(wait)) {
            let path = &wait.waiter.path;
            loop {
                let tell = async || {
                    let node = client.get(path).await?;
                    client.set(path, notice(&cycle, &node.data), node.stat.version).await
                };
                match client.retry(&patient(), tell).await {
                    Ok(_) => told += 1,
                    Err(error) if error.kind() == ErrorKind::NoNode => {}
                    // Its owner is just putting its words back.
                    Err(error) if error.kind() == ErrorKind::BadVersion => continue,
                    Err(error) => return Err(error.into()),
                }
                break;
            }
        }
        Ok(told)
    }

    /// Tells the victim of a deadlock to give way, and the others of the deadlock. Says whether the
    /// victim was still waiting.
    pub async fn resolve(&self, deadlock: &Deadlock, victim: Victim) -> Result<bool> {
        let Some(wait) = deadlock.choose(victim) else { return Ok(false) };
        self.announce_to(deadlock, |other| other.waiter.path != wait.waiter.path).await?;
        let message = [DEADLOCK_MESSAGE, deadlock.to_string().as_bytes()].concat();
        let (client, path) = (&self.client, &wait.waiter.path);
        match client.retry(&patient(), || client.set(path, &message, Version::Any)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn locks(&self) -> Result<Vec<(String, Bases)>> {
        let mut found: BTreeMap<String, Bases> = BTreeMap::new();
        for root in &self.roots {
            // A walk whose connection breaks begins anew.
            let walk = || locks_below(&self.client, root);
            found.extend(self.client.retry(&patient(), walk).await?);
        }
        Ok(found.into_iter().collect())
    }
}

async fn locks_below(
    client: &Client,
    root: &str,
) -> ironkeeper_client::Result<BTreeMap<String, Bases>> {
    let mut found: BTreeMap<String, Bases> = BTreeMap::new();
    let mut walk = client.walk(root);
    while let Some(node) = walk.next().await {
        let path = match node {
            Ok(node) => node.path,
            Err(error) if error.kind() == ErrorKind::NoNode => break,
            Err(error) => return Err(error),
        };
        let Some((parent, name)) = path.rsplit_once('/') else { continue };
        let line = LINES.into_iter().find(|bases| Contender::parse(name, bases).is_some());
        if let Some(bases) = line {
            let parent = if parent.is_empty() { "/" } else { parent };
            found.entry(parent.to_owned()).or_insert(bases);
        }
    }
    Ok(found)
}

/// Edges from everybody who waits to the holders in its way and to the one right before it, through
/// whom the rest of the line is reached.
fn waits_of(lock: &str, line: &[Participant], bases: Bases) -> Vec<Wait> {
    let kind = |participant: &Participant| {
        Contender::parse(name_of(&participant.path), bases).map_or(READER, |found| found.kind)
    };
    let granted: Vec<usize> = (0..line.len()).filter(|at| line[*at].is_granted).collect();
    let mut waits = Vec::new();
    for (at, waiter) in line.iter().enumerate().filter(|(_, waiter)| !waiter.is_granted) {
        let before = &line[..at];
        let in_the_way: Vec<&Participant> = if bases.len() > 1 && kind(waiter) == READER {
            before.iter().rev().find(|other| kind(other) == WRITER).into_iter().collect()
        } else {
            let holders = granted.iter().take_while(|holder| **holder < at);
            let right_before = before.last().filter(|other| !other.is_granted);
            holders.map(|holder| &line[*holder]).chain(right_before).collect()
        };
        waits.extend(in_the_way.into_iter().map(|holder| Wait {
            lock: lock.to_owned(),
            waiter: waiter.clone(),
            holder: holder.clone(),
        }));
    }
    waits
}

impl WaitGraph {
    /// Cycles, so many that breaking each of them leaves at most further ones to be found by the next
    /// look.
    pub fn cycles(&self) -> Vec<Deadlock> {
        let mut index: HashMap<Party, usize> = HashMap::new();
        let mut edges: Vec<Vec<(usize, usize)>> = Vec::new();
        for (at, wait) in self.waits.iter().enumerate() {
            let (waiter, holder) = (Party::of(&wait.waiter), Party::of(&wait.holder));
            // Whether a session without names waits for itself cannot be told.
            if waiter == holder && waiter.name.is_none() {
                continue;
            }
            let mut number = |party: Party| {
                let next = index.len();
                *index.entry(party).or_insert(next)
            };
            let (from, to) = (number(waiter), number(holder));
            edges.resize_with(index.len().max(edges.len()), Vec::new);
            edges[from].push((to, at));
        }
        self.cycles_of(&edges)
    }

    /// A depth-first search without recursion: the line of a lock may be long.
    fn cycles_of(&self, edges: &[Vec<(usize, usize)>]) -> Vec<Deadlock> {
        let mut cycles = Vec::new();
        let mut is_done = vec![false; edges.len()];
        let mut depth: Vec<Option<usize>> = vec![None; edges.len()];
        for start in 0..edges.len() {
            if is_done[start] {
                continue;
            }
            // Each step: a party, and how many of its edges have been followed.
            let mut steps = vec![(start, 0)];
            depth[start] = Some(0);
            while let Some((party, followed)) = steps.last_mut() {
                let party = *party;
                let Some(&(to, _)) = edges[party].get(*followed) else {
                    is_done[party] = true;
                    depth[party] = None;
                    steps.pop();
                    continue;
                };
                *followed += 1;
                if let Some(from) = depth[to] {
                    let waits = steps[from..]
                        .iter()
                        .map(|(party, followed)| self.waits[edges[*party][*followed - 1].1].clone())
                        .collect();
                    cycles.push(Deadlock { waits });
                } else if !is_done[to] {
                    depth[to] = Some(steps.len());
                    steps.push((to, 0));
                }
            }
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participant(lock: &str, who: &str, number: i32, is_granted: bool) -> Participant {
        Participant {
            path: format!("{lock}/{who}-lock-{number:010}"),
            data: who.as_bytes().to_vec(),
            session: SessionId(1),
            czxid: Zxid(i64::from(number)),
            is_granted,
        }
    }

    /// Each text is a lock and its line, as in "a: one two".
    fn graph(lines: &[&str]) -> WaitGraph {
        let mut graph = WaitGraph::default();
        for text in lines {
            let (lock, line) = text.split_once(": ").unwrap();
            let line: Vec<Participant> = line
                .split(' ')
                .enumerate()
                .map(|(at, who)| participant(lock, who, at as i32, at == 0))
                .collect();
            graph.waits.extend(waits_of(lock, &line, LINES[0]));
        }
        graph
    }

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str]) {
        let cycles: Vec<String> = graph(lines)
            .cycles()
            .iter()
            .map(|cycle| {
                let names = cycle.waits.iter().map(|wait| wait.waiter.id());
                names.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(cycles, expected);
    }

    #[test]
    fn cycles_are_found_and_mere_lines_are_not() {
        check(&["a: one two three", "b: two three"], &[]);
        check(&["a: one two", "b: two one"], &["two one"]);
        check(&["a: one two", "b: two three", "c: three one"], &["two one three"]);
        // A waiter in the middle of the line is in the way, too.
        check(&["a: one two three", "b: three two"], &["two three"]);
        check(&["a: one one"], &["one"]);
    }

    #[test]
    fn long_lines_do_not_exhaust_the_stack() {
        let names: Vec<String> = (0..20_000).map(|at| format!("p{at}")).collect();
        check(&[&format!("a: {}", names.join(" "))], &[]);
    }

    #[test]
    fn the_victim_is_the_one_asked_for() {
        let cycle = graph(&["a: one two", "b: two x one"]).cycles().remove(0);
        assert_eq!(cycle.choose(Victim::Youngest).unwrap().waiter.id(), "one");
        assert_eq!(cycle.choose(Victim::Oldest).unwrap().waiter.id(), "two");
        assert!(cycle.choose(Victim::Wait(7)).is_none());
    }
}
