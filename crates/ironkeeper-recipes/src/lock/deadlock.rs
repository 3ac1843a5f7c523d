//! Deadlock detection: the wait-for graph of all locks below a path, its cycles, and the choice of
//! a victim.
//!
//! # On the tree
//! The detector creates no nodes. It reads the nodes of [`Mutex`](super::Mutex),
//! [`ReadWriteLock`](super::ReadWriteLock), [`Semaphore`](super::Semaphore) and
//! [`SemaphoreMutex`](super::SemaphoreMutex), including Curator's.
//!
//! To announce a deadlock it writes `__IN_DEADLOCK__` and the cycle into the waiting nodes, in
//! front of their data. A waiter whose lock was made with `heeding_deadlocks()` receives
//! [`LockEvent::Deadlocked`](super::LockEvent::Deadlocked) and restores its data. To resolve a
//! deadlock the detector announces it to the other waiters and writes `__DEADLOCK__` and the cycle
//! into the node of the victim, whose wait ends with
//! [`RecipeError::Deadlock`](crate::RecipeError::Deadlock). The waiting node of the head of a
//! semaphore's queue is its youngest lease.
//!
//! # Steps
//! 1. Walk the subtree, and find the nodes whose children are contenders.
//! 2. Draw an edge from each waiter to the contenders that block it: the holders and its direct
//!    predecessor. The head of a semaphore's queue, once it has a lease node, has an OR-wait: it
//!    waits for any one of the leases before it.
//! 3. Find the deadlocked parties: the largest set in which every member has at least one wait
//!    whose alternatives are all in the set. Search for cycles among them. Read everything a second
//!    time and keep the cycles that remain: the reads are not atomic, but a deadlock persists.
//! 4. On request, announce the cycle to all its waiters; or choose a victim, and notify it and the
//!    others.
//!
//! # Who is who
//! A party is a session together with the data of its nodes: `with_data("task 1")` distinguishes
//! the tasks of one client. Nodes without data belong to the session as a whole. Such a session
//! that waits for itself is not a deadlock, because the nodes may belong to two tasks.
//!
//! The same holds for a semaphore: while an unnamed lease of the same session blocks the waiter,
//! another task may release it. If such a session requests several leases at once, the first ones
//! cannot be distinguished from leases of other tasks, so name the tasks. The lease time in the
//! data of a lease that expires is not part of the name.
//!
//! An IP address is not a name: Curator writes the host's address into every node without data of
//! its own, so all threads that share a client have the same.
//!
//! # Guarantees
//! The detector finds every deadlock among the locks below the path that exists during both reads.
//! A reported cycle was present in both reads; it may have ended since, because a waiter gave up.
//! The detector sets no watches and holds nothing. It waits while the connection is lost, and
//! returns an error when the session ends.
//!
//! An announcement costs one watch event at each participant with `heeding_deadlocks()` and one at
//! the contender right behind it, and the same again when the participant restores its data. A
//! waiting lease is watched by its owner only.
//!
//! # What semaphores do not show
//! - The limit of a semaphore is unknown to the detector. The head of the queue counts as waiting
//!   if it has a lease node and both reads find it at the head with the same leases before it. So a
//!   head that could proceed but does not for that long, for example because its connection is
//!   lost, is reported as waiting.
//! - A request for several leases may need several releases. It counts as deadlocked when the
//!   owners of all leases before it are.
//! - A lease that expires ends by itself, and a deadlock over it ends with it. Until then the
//!   deadlock is reported.
//! - Curator's `setNodeData` names the leases and not the queue nodes. Then only the head of the
//!   queue is known to own both.

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

/// The node names of the supported locks. Leases are not a queue; see [`waits_for_a_lease`].
const LINES: [Bases; 4] =
    [mutex::BASES, &["__READ__", "__WRIT__"], &["-R-", "-W-"], semaphore::BASES];

/// An edge of the wait-for graph: a waiter and a participant that blocks it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The path of the lock.
    pub lock: String,
    /// The participant that waits.
    pub waiter: Participant,
    /// The participant that blocks it.
    pub holder: Participant,
    /// The number of alternatives of an OR-wait, this holder included: the release of any one of
    /// them is enough. Each alternative has its own `Wait` with the same waiter node. Larger than 1
    /// for semaphores only.
    pub alternatives: usize,
}

impl Wait {
    fn is_for_a_lease(&self) -> bool {
        Contender::parse(name_of(&self.waiter.path), semaphore::BASES).is_some()
    }

    /// Returns whether waiter and holder may be two tasks of one session: same session, no name.
    fn may_be_of_two_tasks(&self) -> bool {
        let (waiter, holder) = (Party::of(&self.waiter), Party::of(&self.holder));
        waiter == holder && waiter.name.as_deref().is_none_or(is_address)
    }

    /// Returns a key that is constant while the wait lasts. It includes the number of alternatives,
    /// because one released alternative ends an OR-wait even if the others remain.
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

/// The wait-for graph.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WaitGraph {
    /// The edges.
    pub waits: Vec<Wait>,
}

/// A cycle in the wait-for graph: each participant blocks the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waits of the cycle. The waiter of each is the party that the wait before it waits for.
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

/// The choice of the participant whose wait is ended to resolve a deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Victim {
    /// The participant that began to wait last, which has probably done the least work.
    Youngest,
    /// The participant that began to wait first.
    Oldest,
    /// The waiter of the wait with this index in [`Deadlock::waits`].
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

/// A session, or a named task of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Party {
    session: i64,
    /// `None` if the data of the node contains no name.
    name: Option<Vec<u8>>,
}

impl Party {
    fn of(participant: &Participant) -> Party {
        let name = name_in(&participant.data).map(<[u8]>::to_vec);
        Party { session: participant.session.0, name }
    }
}

/// Returns the name of the owner in the data of a node, if there is one.
fn name_in(data: &[u8]) -> Option<&[u8]> {
    let is_message = data == REVOKE_MESSAGE || data.starts_with(DEADLOCK_MESSAGE);
    (!data.is_empty() && !is_message).then_some(data)
}

/// Returns whether a name is an IP address, which Curator writes into nodes without other data.
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
    /// Returns a detector for all locks at and below `root`. Makes no request.
    pub fn new(client: &Client, root: impl Into<String>) -> DeadlockDetector {
        DeadlockDetector { client: client.clone(), roots: vec![root.into()] }
    }

    /// Adds all locks at and below another path; a cycle may include locks of both.
    pub fn and(mut self, root: impl Into<String>) -> DeadlockDetector {
        self.roots.push(root.into());
        self
    }

    /// Reads the wait-for graph.
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

    /// Returns the present deadlocks.
    pub async fn detect(&self) -> Result<Vec<Deadlock>> {
        let first = self.graph().await?;
        if first.cycles().is_empty() {
            return Ok(Vec::new());
        }
        // A wait that is in both graphs existed all the time between the two reads. So there was a
        // moment at which all of these waits existed.
        let mut lasting = self.graph().await?;
        let seen: HashSet<_> = first.waits.iter().map(Wait::identity).collect();
        lasting.waits.retain(|wait| seen.contains(&wait.identity()));
        Ok(lasting.cycles())
    }

    /// Announces a deadlock to all its waiters. Returns how many were still waiting.
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

    /// Replaces the data of a waiter's node by `message(data)`. Returns whether it was still
    /// waiting.
    async fn write_to(&self, wait: &Wait, message: impl Fn(&[u8]) -> Vec<u8>) -> Result<bool> {
        let (client, path) = (&self.client, &wait.waiter.path);
        loop {
            let write = async || {
                let node = client.get(path).await?;
                // The lease was granted: its data is its lease time, which others need.
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
                // The owner is restoring the data of its node: read it again.
                Err(error) if error.kind() == ErrorKind::BadVersion => {}
                written => return Ok(written?),
            }
        }
    }

    /// Ends the wait of the victim and announces the deadlock to the other waiters. Returns whether
    /// the victim was still waiting.
    pub async fn resolve(&self, deadlock: &Deadlock, victim: Victim) -> Result<bool> {
        let Some(wait) = deadlock.choose(victim) else { return Ok(false) };
        self.announce_to(deadlock, |other| other.waiter.path != wait.waiter.path).await?;
        let message = [DEADLOCK_MESSAGE, deadlock.to_string().as_bytes()].concat();
        self.write_to(wait, |_| message.clone()).await
    }

    async fn locks(&self) -> Result<BTreeMap<String, Bases>> {
        let mut found: BTreeMap<String, Bases> = BTreeMap::new();
        for root in &self.roots {
            // A walk that loses its connection starts again at the root.
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

/// Returns the edges from each waiter of a queue to the holders that block it and to its direct
/// predecessor, which has edges to the rest of the queue. A reader has one edge, to the nearest
/// writer before it.
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

/// Returns the edges from the head of a semaphore's queue, if it has created its lease, to the
/// leases before that one. A client is at the head only while it acquires, which takes long only if
/// it has to wait.
///
/// The head and its lease are one party: if only one of them has a name, its data is copied to the
/// other.
fn waits_for_a_lease(
    semaphore: &str,
    head: &mut Participant,
    mut leases: Vec<Participant>,
) -> Vec<Wait> {
    let name =
        |one: &Participant| name_in(&one.data).filter(|name| !is_address(name)).map(<[u8]>::to_vec);
    let heads_name = name(head);
    // A lease older than the queue node was granted before.
    let is_of_head = |lease: &Participant| {
        lease.session == head.session
            && lease.czxid > head.czxid
            && (heads_name.is_none() || name(lease).is_none_or(|own| Some(own) == heads_name))
    };
    let Some(mut youngest) = leases.pop_if(|lease| is_of_head(lease)) else { return Vec::new() };
    if heads_name.is_some() {
        // Leases requested in the same `acquire_many` do not block it. Unnamed leases of the
        // session could belong to another task, granted while this one was queued, so they are
        // kept.
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

/// The wait-for graph with numbered parties: for each party the AND of its OR-waits.
#[derive(Debug, Default)]
struct Needs {
    of: Vec<Vec<Need>>,
}

/// An OR-wait: its alternatives, each a party and the index of the `Wait`. More than one
/// alternative for semaphores only.
type Need = Vec<(usize, usize)>;

impl Needs {
    /// Returns for each party whether it is deadlocked. The deadlocked parties are the largest set
    /// in which every member has at least one wait whose alternatives are all in the set.
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

    /// Returns the edges among the deadlocked parties, one for each wait whose alternatives are all
    /// deadlocked: the other alternatives would report the same deadlock again.
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
    /// Returns a set of cycles, empty if and only if there is no deadlock. After these cycles are
    /// broken, further ones may remain; call again. For an OR-wait all alternatives must be
    /// deadlocked; one of them is reported.
    pub fn cycles(&self) -> Vec<Deadlock> {
        self.cycles_of(&self.needs().edges())
    }

    fn needs(&self) -> Needs {
        // OR-waits of an unnamed session with an alternative of the same session. That alternative
        // may belong to another task, which can release it, so the whole OR-wait is left out.
        let untold: HashSet<&str> = self
            .waits
            .iter()
            .filter(|wait| wait.alternatives > 1 && wait.may_be_of_two_tasks())
            .map(|wait| wait.waiter.path.as_str())
            .collect();
        let mut index: HashMap<Party, usize> = HashMap::new();
        let mut needs = Needs::default();
        // For each waiter node with alternatives: the party and the index of its OR-wait.
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

    /// Finds cycles by a depth-first search, without recursion because a queue may be long.
    fn cycles_of(&self, edges: &[Vec<(usize, usize)>]) -> Vec<Deadlock> {
        let mut cycles = Vec::new();
        let mut is_done = vec![false; edges.len()];
        let mut depth: Vec<Option<usize>> = vec![None; edges.len()];
        for start in 0..edges.len() {
            if is_done[start] {
                continue;
            }
            // Each step is a party and the number of its edges already followed.
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

    /// Returns the graph of locks, each given as its name and its queue, as in "a: one two".
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

    /// Returns the graph of semaphores, each given as in "s: one two | three four": the holders of
    /// leases, then the queue. The head of the queue has a lease that is not granted yet.
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
        // A waiter in the middle of the queue blocks the ones behind it, too.
        check(&["a: one two three", "b: three two"], &["two three"]);
        check(&["a: one one"], &["one"]);
        // Threads of one Curator client, whose nodes contain the address of the host.
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
        // One of two holders is not blocked.
        check_with_semaphores(&["a: three one"], &["s: one two | three"], &[]);
        // Both holders are blocked: one deadlock.
        let both = ["a: three one", "b: three two"];
        check_with_semaphores(&both, &["s: one two | three"], &["one three"]);
        // One of two holders waits for a party that is not blocked.
        check_with_semaphores(&["a: three one", "b: x two"], &["s: one two | three"], &[]);
        // The contenders behind the head of the queue are deadlocked with it.
        check_with_semaphores(&["a: four one"], &["s: one | three four"], &["one four three"]);
        // A lease that the head of the queue had before blocks it, if it is named.
        let mut head = participant("s/locks", "one", 100, true);
        let leases = vec![lease("s", "one", 1), lease("s", "one", 101)];
        let waits = waits_for_a_lease("s", &mut head, leases);
        check_graph(&WaitGraph { waits }, &["one"]);
    }

    /// Each lease is a czxid and a name. The queue node of the head has czxid 100.
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
        // It has not created one yet: its leases are older, or belong to another task.
        check_leases("one", &[(1, "x"), (2, "one")], &[]);
        check_leases("one", &[(1, "x"), (101, "two")], &[]);
        check_leases("one", &[], &[]);
        // Several at once.
        check_leases("one", &[(1, "one"), (101, "one"), (102, "one")], &["one 1"]);
        // Without a name, the other lease may belong to another task.
        check_leases("", &[(1, "x"), (101, ""), (102, "")], &[" 1", " 101"]);
        // Nodes of Curator, with a name for leases only and without.
        check_leases("10.0.0.1", &[(1, "x"), (101, "one")], &["one 1"]);
        check_leases("10.0.0.1", &[(1, "x"), (101, "10.0.0.1")], &["10.0.0.1 1"]);
        // The data of the lease was overwritten.
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
            // Without a lease of its own before it, there is a cycle.
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

    /// Computes the deadlocked parties by the definition: the union of all sets in which every
    /// member has a wait whose alternatives are all in the set.
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

    /// Generates waits with at most `alternatives_max` alternatives, and a graph with one `Wait`
    /// for each alternative.
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
