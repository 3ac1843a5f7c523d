//! Deadlocks: who waits for whom over all locks below a path, the cycles in it, and a way out.
//!
//! # On the tree
//! Nothing of its own. It reads the nodes of [`Mutex`](super::Mutex), [`ReadWriteLock`](super::ReadWriteLock),
//! [`Semaphore`](super::Semaphore) and [`SemaphoreMutex`](super::SemaphoreMutex), Curator's too. To tell of
//! a deadlock it writes `__IN_DEADLOCK__` and the cycle into the waiting nodes, in front of what they said;
//! whoever made its lock with `heeding_deadlocks()` is told by
//! [`LockEvent::Deadlocked`](super::LockEvent::Deadlocked) and puts its own words back. To end a deadlock it
//! writes `__DEADLOCK__` and the cycle into the node of the victim, who gives up with
//! [`RecipeError::Deadlock`](crate::RecipeError::Deadlock), and tells the others. The waiting node
//! of whoever stands at the head of the line of a semaphore is its youngest lease.
//!
//! # Steps
//! 1. Walk the subtree, and find the nodes whose children stand in line.
//! 2. Draw an edge from everybody who waits to those in its way: the holders, and the one right before
//!    it. The head of the line of a semaphore that has a lease already waits for any one of the leases
//!    before it.
//! 3. Find who is stuck: everybody but those who wait for nobody, and those whose every wait is for somebody
//!    who is not stuck, be it one of several. Look for cycles among them. Read everything a second time, and
//!    keep the cycles that are still there: the reads are not one moment, but a deadlock stays.
//! 4. If asked to, tell everybody in the cycle; or choose a victim, and tell it and the others.
//!
//! # Who is who
//! A participant is a session, and within it whatever the data of its nodes says: `with_data("task 1")`
//! tells the tasks of one client apart. Nodes without data belong to the session as such, and a session
//! that waits for itself is then no deadlock: it may be two tasks.
//!
//! So with a semaphore: as long as a lease of the same session without a name is in the way, it may be given
//! back. When such a session asks for several leases at once, the first of them look the same: name the tasks. The
//! time of a lease that expires is no part of the name.
//!
//! The address of a host is no name: Curator writes it into all nodes that nobody has given data to, and so the
//! threads that share a client have it in common.
//!
//! # Guarantees
//! Every deadlock among locks below the path that lasts while it is read twice is found. A cycle that
//! is reported was there at both looks; it may have been broken since by somebody who gave up. No
//! watches, and nothing held: broken connections are waited for, the end of the session is an error.
//! Telling costs one watch event at each participant that heeds deadlocks, and one at whoever waits right
//! behind it; a second one at both when the participant puts its words back. Nobody but its owner watches
//! the lease that waits.
//!
//! # What semaphores do not show
//! - The limit is not on the tree. The head of the line counts as waiting if it has a lease and keeps its
//!   place over both looks, with the same leases in its way. One whose turn has come and who does not move
//!   on for so long, since its connection is broken, say, is taken for one who waits.
//! - Whoever asks for several leases may need several to be given back. It counts as stuck when all that are
//!   left in its way are.
//! - A lease that expires ends by itself, and so does a deadlock over it. Until then it is reported.
//! - Where Curator's `setNodeData` gives leases a name, the places in the line have another one, and only the
//!   head of the line is known to be the owner of both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use ironkeeper_client::{Client, ErrorKind, SessionId, Zxid};

use crate::error::Result;
use crate::guard::REVOKE_MESSAGE;
use crate::lock::{mutex, semaphore};
use crate::place::{join, name_of, patient};
use crate::queue_of_waiters::{
    Bases, Contender, DEADLOCK_MESSAGE, Participant, READER, WRITER, notice, own_data, participants,
};

/// The locks whose lines are understood. Leases are no line; see [`waits_for_a_lease`].
const LINES: [Bases; 4] =
    [mutex::BASES, &["__READ__", "__WRIT__"], &["-R-", "-W-"], semaphore::BASES];

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
    /// How many are in the way of which any one will do, this holder among them: each of them has a wait
    /// of its own, with the same node of the waiter. One, unless it is a semaphore.
    pub alternatives: usize,
}

impl Wait {
    fn is_for_a_lease(&self) -> bool {
        Contender::parse(name_of(&self.waiter.path), semaphore::BASES).is_some()
    }

    /// Whether it may be two tasks of one session, which nobody can tell apart.
    fn may_be_of_two_tasks(&self) -> bool {
        let (waiter, holder) = (Party::of(&self.waiter), Party::of(&self.holder));
        waiter == holder && waiter.name.as_deref().is_none_or(is_address)
    }

    /// What stays the same as long as the wait lasts. Where there are alternatives, one of them that goes is
    /// what was waited for, even if the others stay.
    fn identity(&self) -> (&str, &str, usize) {
        (&self.waiter.path, &self.holder.path, self.alternatives)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiter, holder) = (Party::of(&self.waiter), Party::of(&self.holder));
        write!(f, "{waiter} waits at {} for {holder}", self.lock)?;
        match self.alternatives {
            0 | 1 => Ok(()),
            2 => write!(f, " or another"),
            more => write!(f, " or any of {} others", more - 1),
        }
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
        let name = name_in(&participant.data).map(<[u8]>::to_vec);
        Party { session: participant.session.0, name }
    }
}

/// `None` if the data of a node does not say who it is.
fn name_in(data: &[u8]) -> Option<&[u8]> {
    let is_message = data == REVOKE_MESSAGE || data.starts_with(DEADLOCK_MESSAGE);
    (!data.is_empty() && !is_message).then_some(data)
}

/// Curator writes the address of the host into every node that nobody has given data to.
fn is_address(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|text| text.parse::<IpAddr>().is_ok())
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
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::RecipeError;
/// use ironkeeper_recipes::lock::{DeadlockDetector, Mutex, Victim};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let lock = |path: &str, who: &'static str| {
///         Mutex::new(&client, path).with_data(who).heeding_deadlocks()
///     };
///     let (_a, _b) =
///         (lock("/locks/a", "one").lock().await?, lock("/locks/b", "two").lock().await?);
///     let one = tokio::spawn({
///         let b = lock("/locks/b", "one");
///         async move { b.lock().await }
///     });
///     let two = tokio::spawn({
///         let a = lock("/locks/a", "two");
///         async move { a.lock().await }
///     });
///
///     let detector = DeadlockDetector::new(&client, "/locks");
///     let deadlock = loop {
///         if let Some(deadlock) = detector.detect().await?.pop() {
///             break deadlock;
///         }
///     };
///     detector.resolve(&deadlock, Victim::Wait(0)).await?;
///     let gave_up = tokio::select! { one = one => one?, two = two => two? };
///     assert!(matches!(gave_up, Err(RecipeError::Deadlock { .. })));
///     Ok(())
/// }
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
        let lines = self.locks().await?;
        for (lock, bases) in &lines {
            if *bases == semaphore::BASES {
                continue;
            }
            let mut line = participants(&self.client, lock, bases).await?;
            if let Some(semaphore) = lock.strip_suffix("/locks")
                && lines.contains_key(&format!("{semaphore}/leases"))
                && let Some(head) = line.first_mut()
            {
                let semaphore = if semaphore.is_empty() { "/" } else { semaphore };
                graph.waits.extend(self.waits_at_head(semaphore, head).await?);
            }
            graph.waits.extend(waits_of(lock, &line, bases));
        }
        Ok(graph)
    }

    async fn waits_at_head(&self, semaphore: &str, head: &mut Participant) -> Result<Vec<Wait>> {
        let path = join(semaphore, "leases");
        let mut leases = participants(&self.client, &path, semaphore::BASES).await?;
        for lease in &mut leases {
            if let Some((_, owner)) = semaphore::split_lease_time(&lease.data) {
                lease.data = owner.to_vec();
            }
        }
        Ok(waits_for_a_lease(semaphore, head, leases))
    }

    /// The deadlocks there are.
    pub async fn detect(&self) -> Result<Vec<Deadlock>> {
        let first = self.graph().await?;
        if first.cycles().is_empty() {
            return Ok(Vec::new());
        }
        // What was there at both looks was there all the time between them, and so all at once.
        let mut lasting = self.graph().await?;
        let seen: HashSet<_> = first.waits.iter().map(Wait::identity).collect();
        lasting.waits.retain(|wait| seen.contains(&wait.identity()));
        Ok(lasting.cycles())
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
        let cycle = deadlock.to_string();
        let mut told = 0;
        for wait in deadlock.waits.iter().filter(|wait| is_meant(wait)) {
            if self.write_to(wait, |data| notice(&cycle, data)).await? {
                told += 1;
            }
        }
        Ok(told)
    }

    /// Writes to the node of a waiter what becomes of its data. Says whether it was still waiting.
    async fn write_to(&self, wait: &Wait, message: impl Fn(&[u8]) -> Vec<u8>) -> Result<bool> {
        let (client, path) = (&self.client, &wait.waiter.path);
        loop {
            let write = async || {
                let node = client.get(path).await?;
                // It has been granted, and what it says is by what others know when it ends.
                if wait.is_for_a_lease()
                    && semaphore::split_lease_time(own_data(&node.data)).is_some()
                {
                    return Ok(false);
                }
                client.set(path, message(&node.data), node.stat.version).await?;
                Ok(true)
            };
            match client.retry(&patient(), write).await {
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(false),
                // Its owner is just putting its words back.
                Err(error) if error.kind() == ErrorKind::BadVersion => {}
                written => return Ok(written?),
            }
        }
    }

    /// Tells the victim of a deadlock to give way, and the others of the deadlock. Says whether the
    /// victim was still waiting.
    pub async fn resolve(&self, deadlock: &Deadlock, victim: Victim) -> Result<bool> {
        let Some(wait) = deadlock.choose(victim) else { return Ok(false) };
        self.announce_to(deadlock, |other| other.waiter.path != wait.waiter.path).await?;
        let message = [DEADLOCK_MESSAGE, deadlock.to_string().as_bytes()].concat();
        self.write_to(wait, |_| message.clone()).await
    }

    async fn locks(&self) -> Result<BTreeMap<String, Bases>> {
        let mut found: BTreeMap<String, Bases> = BTreeMap::new();
        for root in &self.roots {
            // A walk whose connection breaks begins anew.
            let walk = || locks_below(&self.client, root);
            found.extend(self.client.retry(&patient(), walk).await?);
        }
        Ok(found)
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
            alternatives: 1,
        }));
    }
    waits
}

/// Edges from the head of the line of a semaphore, if it has a lease and waits for it, to the leases in its
/// way. It stands there only while it acquires, which takes long only if it has to wait.
///
/// The head and its lease are one party: if the data of one of them says more, the other has it afterwards.
fn waits_for_a_lease(
    semaphore: &str,
    head: &mut Participant,
    mut leases: Vec<Participant>,
) -> Vec<Wait> {
    let name =
        |one: &Participant| name_in(&one.data).filter(|name| !is_address(name)).map(<[u8]>::to_vec);
    let heads_name = name(head);
    // What is older than the place in the line was granted before.
    let is_of_head = |lease: &Participant| {
        lease.session == head.session
            && lease.czxid > head.czxid
            && (heads_name.is_none() || name(lease).is_none_or(|own| Some(own) == heads_name))
    };
    let Some(mut youngest) = leases.pop_if(|lease| is_of_head(lease)) else { return Vec::new() };
    if heads_name.is_some() {
        // Those that it has asked for together with the youngest are not in its way. Without names they may
        // as well be another task's, granted while this one stood in line.
        while leases.pop_if(|lease| is_of_head(lease)).is_some() {}
    }
    if heads_name.is_some() || name_in(&youngest.data).is_none() {
        youngest.data.clone_from(&head.data);
    } else {
        head.data.clone_from(&youngest.data);
    }
    youngest.is_granted = false;
    let alternatives = leases.len();
    let wait = |holder| Wait {
        lock: semaphore.to_owned(),
        waiter: youngest.clone(),
        holder: Participant { is_granted: true, ..holder },
        alternatives,
    };
    leases.into_iter().map(wait).collect()
}

/// Parties by number, and what each of them waits for.
#[derive(Debug, Default)]
struct Needs {
    of: Vec<Vec<Need>>,
}

/// Any one of some parties, each with the number of the wait. One party, unless it is a semaphore.
type Need = Vec<(usize, usize)>;

impl Needs {
    /// Whom nobody can help: everybody but those who need nobody, and those each of whose needs is met by
    /// somebody who is not stuck.
    fn stuck(&self) -> Vec<bool> {
        let mut needed_by: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.of.len()];
        for (party, needs) in self.of.iter().enumerate() {
            for (number, need) in needs.iter().enumerate() {
                for (holder, _) in need {
                    needed_by[*holder].push((party, number));
                }
            }
        }
        let mut unmet: Vec<usize> = self.of.iter().map(Vec::len).collect();
        let mut is_met: Vec<Vec<bool>> =
            self.of.iter().map(|needs| vec![false; needs.len()]).collect();
        let mut is_stuck = vec![true; self.of.len()];
        let mut free: Vec<usize> = (0..self.of.len()).filter(|party| unmet[*party] == 0).collect();
        while let Some(holder) = free.pop() {
            is_stuck[holder] = false;
            for (party, number) in &needed_by[holder] {
                if !std::mem::replace(&mut is_met[*party][*number], true) {
                    unmet[*party] -= 1;
                    if unmet[*party] == 0 {
                        free.push(*party);
                    }
                }
            }
        }
        is_stuck
    }

    /// The edges among the stuck, one for each need that is not met: any other one of it would show the same
    /// deadlock once more.
    fn edges(&self) -> Vec<Vec<(usize, usize)>> {
        let is_stuck = self.stuck();
        let unmet = |need: &&Need| need.iter().all(|(holder, _)| is_stuck[*holder]);
        let edges_of = |(party, needs): (usize, &Vec<Need>)| match is_stuck[party] {
            true => needs.iter().filter(unmet).filter_map(|need| need.first().copied()).collect(),
            false => Vec::new(),
        };
        self.of.iter().enumerate().map(edges_of).collect()
    }
}

impl WaitGraph {
    /// Cycles, so many that breaking each of them leaves at most further ones to be found by the next
    /// look. Of several for any one of whom somebody waits, all have to be stuck, and one of them is shown.
    pub fn cycles(&self) -> Vec<Deadlock> {
        self.cycles_of(&self.needs().edges())
    }

    fn needs(&self) -> Needs {
        // Whether a session without names waits for itself cannot be told; nor, then, whether any of
        // those will go on for whom it waits.
        let untold: HashSet<&str> = self
            .waits
            .iter()
            .filter(|wait| wait.alternatives > 1 && wait.may_be_of_two_tasks())
            .map(|wait| wait.waiter.path.as_str())
            .collect();
        let mut index: HashMap<Party, usize> = HashMap::new();
        let mut needs = Needs::default();
        // By the node of the waiter: whose need it is, and which of its needs.
        let mut alternatives: HashMap<&str, (usize, usize)> = HashMap::new();
        for (at, wait) in self.waits.iter().enumerate() {
            let path = wait.waiter.path.as_str();
            let is_untold = match wait.alternatives > 1 {
                true => untold.contains(path),
                false => wait.may_be_of_two_tasks(),
            };
            if is_untold {
                continue;
            }
            let mut number = |party: Party| {
                let next = index.len();
                *index.entry(party).or_insert(next)
            };
            let (from, to) = (number(Party::of(&wait.waiter)), number(Party::of(&wait.holder)));
            needs.of.resize_with(index.len(), Vec::new);
            let next = (from, needs.of[from].len());
            let (party, need) = match wait.alternatives > 1 {
                true => *alternatives.entry(path).or_insert(next),
                false => next,
            };
            match needs.of[party].get_mut(need) {
                Some(need) => need.push((to, at)),
                None => needs.of[party].push(vec![(to, at)]),
            }
        }
        needs
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
    use proptest::collection::vec;
    use proptest::prelude::*;

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

    /// Each text is a semaphore, as in "s: one two | three four": the holders of leases, the head of the line,
    /// which has a lease and waits for it, and those behind it.
    fn semaphores(lines: &[&str]) -> WaitGraph {
        let mut graph = WaitGraph::default();
        for text in lines {
            let (semaphore, both) = text.split_once(": ").unwrap();
            let (holders, line) = both.split_once(" | ").unwrap();
            let mut line: Vec<Participant> = line
                .split(' ')
                .enumerate()
                .map(|(at, who)| {
                    participant(&format!("{semaphore}/locks"), who, 100 + at as i32, at == 0)
                })
                .collect();
            let head = line[0].id();
            let leases = holders.split(' ').chain([head.as_str()]).enumerate().map(|(at, who)| {
                let number = if who == head { 200 + at } else { at };
                lease(semaphore, who, number as i32)
            });
            let leases = leases.collect();
            graph.waits.extend(waits_for_a_lease(semaphore, &mut line[0], leases));
            graph.waits.extend(waits_of(&format!("{semaphore}/locks"), &line, LINES[0]));
        }
        graph
    }

    fn lease(semaphore: &str, who: &str, number: i32) -> Participant {
        let mut lease = participant(semaphore, who, number, false);
        lease.path = format!("{semaphore}/leases/lease-{number:010}");
        lease
    }

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str]) {
        check_graph(&graph(lines), expected);
    }

    #[track_caller]
    fn check_with_semaphores(lines: &[&str], with: &[&str], expected: &[&str]) {
        let mut both = graph(lines);
        both.waits.extend(semaphores(with).waits);
        check_graph(&both, expected);
    }

    #[track_caller]
    fn check_graph(graph: &WaitGraph, expected: &[&str]) {
        let cycles: Vec<String> = graph
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
        // Threads of one Curator client, which names its nodes after the host.
        check(&["a: 10.0.0.7 10.0.0.7"], &[]);
        check(&["a: fe80::1 fe80::1 one", "b: one fe80::1"], &["one fe80::1"]);
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

    #[test]
    fn whoever_waits_for_any_of_several_is_stuck_when_all_of_them_are() {
        check_with_semaphores(&[], &["s: one | two", "t: two | one"], &["two one"]);
        // One of two can go on.
        check_with_semaphores(&["a: three one"], &["s: one two | three"], &[]);
        // Both cannot, and it is one deadlock.
        let both = ["a: three one", "b: three two"];
        check_with_semaphores(&both, &["s: one two | three"], &["one three"]);
        // One of two waits for somebody who can go on.
        check_with_semaphores(&["a: three one", "b: x two"], &["s: one two | three"], &[]);
        // Those behind the head of the line wait with it.
        check_with_semaphores(&["a: four one"], &["s: one | three four"], &["one four three"]);
        // A lease that the head of the line had before is in its way, if it is named.
        let mut head = participant("s/locks", "one", 100, true);
        let leases = vec![lease("s", "one", 1), lease("s", "one", 101)];
        let waits = waits_for_a_lease("s", &mut head, leases);
        check_graph(&WaitGraph { waits }, &["one"]);
    }

    /// Each lease is a czxid and a name. The place of the head of the line was created at 100.
    #[track_caller]
    fn check_leases(head: &str, leases: &[(i32, &str)], expected: &[&str]) {
        let mut head = participant("s/locks", head, 100, true);
        let leases = leases.iter().map(|(number, who)| lease("s", who, *number)).collect();
        let waits = waits_for_a_lease("s", &mut head, leases);
        let parties = waits.iter().map(|wait| {
            assert_eq!(Party::of(&wait.waiter), Party::of(&head), "they are one");
            format!("{} {}", wait.waiter.id(), wait.holder.czxid.0)
        });
        assert_eq!(parties.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_head_of_the_line_is_told_to_wait_by_its_youngest_lease() {
        check_leases("one", &[(1, "x"), (2, "y"), (101, "one")], &["one 1", "one 2"]);
        // It has not asked for one yet: what it has is older, or another task's.
        check_leases("one", &[(1, "x"), (2, "one")], &[]);
        check_leases("one", &[(1, "x"), (101, "two")], &[]);
        check_leases("one", &[], &[]);
        // Several at once.
        check_leases("one", &[(1, "one"), (101, "one"), (102, "one")], &["one 1"]);
        // Without a name, the other one may be another task's.
        check_leases("", &[(1, "x"), (101, ""), (102, "")], &[" 1", " 101"]);
        // Curator's, with a name for leases alone and without.
        check_leases("10.0.0.1", &[(1, "x"), (101, "one")], &["one 1"]);
        check_leases("10.0.0.1", &[(1, "x"), (101, "10.0.0.1")], &["10.0.0.1 1"]);
        // The words of the lease have been written over.
        check_leases("one", &[(1, "x"), (101, "__DEADLOCK__ x")], &["one 1"]);
    }

    #[test]
    fn a_session_without_names_may_be_several_tasks_that_have_leases() {
        for nobody in ["", "10.0.0.1", "::1"] {
            let mut head = participant("s/locks", nobody, 100, true);
            let leases = vec![lease("s", nobody, 1), lease("s", "x", 2), lease("s", nobody, 101)];
            let mut waits = waits_for_a_lease("s", &mut head, leases);
            let line = [participant("a", nobody, 1, true), participant("a", "x", 2, false)];
            waits.extend(waits_of("a", &line, LINES[0]));
            assert_eq!(waits.len(), 3);
            check_graph(&WaitGraph { waits: waits.clone() }, &[]);
            // With nothing of its own in the way, it is a circle.
            waits.remove(0);
            waits[0].alternatives = 1;
            assert_eq!(WaitGraph { waits }.cycles().len(), 1, "{nobody}");
        }
    }

    #[test]
    fn a_wait_says_whom_it_is_for() {
        let graph = semaphores(&["/s: one | x", "/t: one two | x", "/u: one two three | x"]);
        let text: Vec<String> = graph.waits.iter().map(Wait::to_string).collect();
        assert!(text[0].ends_with("(x) waits at /s for session 0x1 (one)"), "{}", text[0]);
        assert!(text[2].ends_with("waits at /t for session 0x1 (two) or another"), "{}", text[2]);
        assert!(text[3].ends_with("(one) or any of 2 others"), "{}", text[3]);
    }

    #[test]
    fn a_lease_that_is_given_back_makes_it_another_wait() {
        let (before, after) = (semaphores(&["s: one two | x"]), semaphores(&["s: one | x"]));
        let after = Wait { waiter: before.waits[0].waiter.clone(), ..after.waits[0].clone() };
        assert_eq!(before.waits[0].holder.path, after.holder.path);
        assert_ne!(before.waits[0].identity(), after.identity());
    }

    #[test]
    fn many_leases_and_a_long_line_are_no_burden() {
        let names = |prefix: &str| {
            let names: Vec<String> = (0..20_000).map(|at| format!("{prefix}{at}")).collect();
            names.join(" ")
        };
        check_with_semaphores(&[], &[&format!("s: {} | {}", names("h"), names("p"))], &[]);
    }

    const PARTIES: usize = 6;

    /// By the meaning of the word: the stuck are all who are in a set in which everybody needs somebody and
    /// finds nobody outside.
    fn stuck_by_definition(needs: &Needs) -> Vec<bool> {
        let mut is_stuck = vec![false; PARTIES];
        for set in 0..1_u32 << PARTIES {
            let has = |party: usize| set & (1 << party) != 0;
            let lacks = |party: usize| {
                needs.of[party].iter().any(|need| need.iter().all(|(holder, _)| has(*holder)))
            };
            if (0..PARTIES).filter(|party| has(*party)).all(lacks) {
                (0..PARTIES).filter(|party| has(*party)).for_each(|party| is_stuck[party] = true);
            }
        }
        is_stuck
    }

    /// Needs of so many alternatives at most. Each wait has a number of its own, and there are as many waits.
    fn needs(alternatives_max: usize) -> impl Strategy<Value = (Needs, WaitGraph)> {
        let need = vec(0..PARTIES, 1..=alternatives_max);
        vec(vec(need, 0..3), PARTIES).prop_map(|parties| {
            let mut waits = Vec::new();
            let mut number = |holder: usize| {
                let waiter = lease("s", "x", waits.len() as i32);
                let holder_node = lease("s", &format!("p{holder}"), 0);
                let lock = "s".to_owned();
                waits.push(Wait { lock, waiter, holder: holder_node, alternatives: 1 });
                (holder, waits.len() - 1)
            };
            let of = parties
                .into_iter()
                .map(|needs| {
                    let needs = needs.into_iter();
                    needs.map(|need| need.into_iter().map(&mut number).collect()).collect()
                })
                .collect();
            (Needs { of }, WaitGraph { waits })
        })
    }

    proptest! {
        #[test]
        fn the_stuck_are_those_whom_nobody_can_help((needs, graph) in needs(3)) {
            let is_stuck = needs.stuck();
            prop_assert_eq!(&is_stuck, &stuck_by_definition(&needs));
            let edges = needs.edges();
            let cycles = graph.cycles_of(&edges);
            prop_assert_eq!(cycles.is_empty(), !is_stuck.contains(&true));
            for (party, edges) in edges.iter().enumerate() {
                prop_assert_eq!(edges.is_empty(), !is_stuck[party]);
                prop_assert!(edges.iter().all(|(holder, _)| is_stuck[*holder]));
            }
        }

        #[test]
        fn without_alternatives_every_cycle_counts((needs, graph) in needs(1)) {
            let all: Vec<Vec<(usize, usize)>> =
                needs.of.iter().map(|needs| needs.iter().map(|need| need[0]).collect()).collect();
            prop_assert_eq!(graph.cycles_of(&needs.edges()), graph.cycles_of(&all));
        }
    }
}
