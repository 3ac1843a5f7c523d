//! Operations of clients and their replies, and a check that the history is linearizable.
//!
//! Registers are nodes that are only set, and every set writes unique data. The server numbers the
//! versions of a node, so each reply contains its position in the order of writes, and the check
//! needs no search: the history of a register is linearizable iff the returned versions agree with
//! the data and with the real-time order of operations.

use std::collections::{BTreeMap, HashMap, HashSet};

/// One operation of one client on one register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub client: usize,
    pub register: usize,
    pub action: Action,
    /// Nanoseconds of one clock, read before the request was sent and after the reply arrived.
    pub began: u64,
    pub ended: u64,
    pub outcome: Outcome,
    /// The port of the member that replied, if it is known.
    pub server: Option<u16>,
}

/// A violation of a rule by a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The description of the violation.
    pub what: String,
    /// For a read after a sync that returned an old version: the member that replied.
    pub stale_on: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A set of this data, alone or in a multi. No two requests write the same data.
    Write(u64),
    /// A read after a sync: returns at least the newest version returned before it began.
    SyncedRead,
    /// A read from the client's server: never returns an older version than the client has
    /// received.
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done(Seen),
    /// The connection was lost: the request was applied, will be applied, or will never be applied.
    Unknown,
    /// The server rejected the request.
    Refused,
}

/// A version of a register: its number, the zxid of its transaction, its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub version: i32,
    pub zxid: i64,
    pub value: u64,
}

/// The initial data of registers, version 0.
pub const FIRST_VALUE: u64 = 0;

/// Returns all violations of a history; empty if it is linearizable.
pub fn violations(ops: &[Op]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut registers: BTreeMap<usize, Vec<&Op>> = BTreeMap::new();
    for op in ops {
        registers.entry(op.register).or_default().push(op);
    }
    let mut zxid_of: HashMap<u64, i64> = HashMap::new();
    for (register, ops) in &registers {
        let register =
            Register { number: *register, versions: versions(*register, ops, &mut broken) };
        register.check_origins(ops, &mut broken);
        register.check_zxids(&mut broken);
        register.check_real_time(ops, &mut broken);
        register.check_clients(ops, &mut broken);
        // A value on two registers is from one multi: both writes must have the same zxid.
        for seen in register.versions.values().filter(|seen| seen.value != FIRST_VALUE) {
            if *zxid_of.entry(seen.value).or_insert(seen.zxid) != seen.zxid {
                broken.push(rule(format!("the transaction of value {} was split", seen.value)));
            }
        }
    }
    broken
}

fn rule(what: String) -> Broken {
    Broken { what, stale_on: None }
}

/// Collects the returned versions; contradictory replies are violations.
fn versions(register: usize, ops: &[&Op], broken: &mut Vec<Broken>) -> BTreeMap<i32, Seen> {
    let mut versions: BTreeMap<i32, Seen> = BTreeMap::new();
    for op in ops {
        let Outcome::Done(seen) = op.outcome else { continue };
        let known = *versions.entry(seen.version).or_insert(seen);
        if known != seen {
            broken.push(rule(format!(
                "register {register}, version {}: {known:?} to one, {seen:?} to another",
                seen.version
            )));
        }
    }
    versions
}

struct Register {
    number: usize,
    versions: BTreeMap<i32, Seen>,
}

impl Register {
    /// Checks that every returned value was written exactly once, by a request that was not
    /// rejected, and that every version has a write that may have created it.
    fn check_origins(&self, ops: &[&Op], broken: &mut Vec<Broken>) {
        let number = self.number;
        let mut writers: HashMap<u64, &Op> = HashMap::new();
        for op in ops {
            if let Action::Write(value) = op.action {
                writers.insert(value, op);
            }
        }
        let mut seen_values = HashSet::new();
        for (version, seen) in &self.versions {
            if !seen_values.insert(seen.value) {
                broken.push(rule(format!(
                    "register {number}: value {} was written twice",
                    seen.value
                )));
            }
            let is_first = seen.value == FIRST_VALUE;
            match writers.get(&seen.value) {
                _ if is_first != (*version == 0) => broken.push(rule(format!(
                    "register {number}: version {version} holds {}, the first value and version 0 belong together",
                    seen.value
                ))),
                None if !is_first => broken.push(rule(format!(
                    "register {number}: value {} was never written",
                    seen.value
                ))),
                Some(op) if op.outcome == Outcome::Refused => broken.push(rule(format!(
                    "register {number}: value {} is there, though its write was refused",
                    seen.value
                ))),
                _ => {}
            }
        }
        let last = self.versions.keys().next_back().copied().unwrap_or(0);
        // Version 0 may be absent from all replies.
        let unseen = i64::from(last) - self.versions.range(1..).count() as i64;
        let may_have_made_them = writers
            .iter()
            .filter(|(value, op)| op.outcome == Outcome::Unknown && !seen_values.contains(value))
            .count() as i64;
        if unseen > may_have_made_them {
            broken.push(rule(format!(
                "register {number}: {unseen} versions nobody saw, {may_have_made_them} writes that may have made them"
            )));
        }
    }

    fn check_zxids(&self, broken: &mut Vec<Broken>) {
        for ((a, first), (b, second)) in self.versions.iter().zip(self.versions.iter().skip(1)) {
            if first.zxid >= second.zxid {
                broken.push(rule(format!(
                    "register {}: version {a} is of {:#x}, version {b} of {:#x}",
                    self.number, first.zxid, second.zxid
                )));
            }
        }
    }

    /// Checks that an operation that began after another had completed returns or writes no older
    /// version.
    fn check_real_time(&self, ops: &[&Op], broken: &mut Vec<Broken>) {
        let version_of: HashMap<u64, i32> =
            self.versions.iter().map(|(version, seen)| (seen.value, *version)).collect();
        let mut by_end: Vec<(u64, i32)> = ops
            .iter()
            .filter_map(|op| match op.outcome {
                Outcome::Done(seen) => Some((op.ended, seen.version)),
                _ => None,
            })
            .collect();
        by_end.sort_unstable();
        let mut by_begin = ops.to_vec();
        by_begin.sort_by_key(|op| op.began);
        let mut done = by_end.into_iter().peekable();
        let mut floor = 0;
        for op in by_begin {
            while let Some((_, version)) = done.next_if(|(ended, _)| *ended < op.began) {
                floor = floor.max(version);
            }
            let number = self.number;
            match (op.action, op.outcome) {
                (Action::SyncedRead, Outcome::Done(seen)) if seen.version < floor => {
                    broken.push(Broken {
                        what: format!(
                            "register {number}: client {} read version {} behind a sync on port {:?}, after {floor} was known",
                            op.client, seen.version, op.server
                        ),
                        stale_on: op.server,
                    });
                }
                (Action::Write(value), Outcome::Done(_) | Outcome::Unknown) => {
                    let version = version_of.get(&value);
                    if version.is_some_and(|version| *version <= floor) {
                        broken.push(rule(format!(
                            "register {number}: client {} wrote {value} as version {version:?}, after {floor} was known",
                            op.client
                        )));
                    }
                }
                _ => {}
            }
        }
        self.check_no_prophecy(ops, broken);
    }

    /// Checks that no reply contains a value before its write began.
    fn check_no_prophecy(&self, ops: &[&Op], broken: &mut Vec<Broken>) {
        let mut began: HashMap<u64, u64> = HashMap::new();
        for op in ops {
            if let Action::Write(value) = op.action {
                began.insert(value, op.began);
            }
        }
        for op in ops {
            let Outcome::Done(seen) = op.outcome else { continue };
            if began.get(&seen.value).is_some_and(|began| *began > op.ended) {
                broken.push(rule(format!(
                    "register {}: client {} saw {} before it was written",
                    self.number, op.client, seen.value
                )));
            }
        }
    }

    /// Checks that the versions a client receives never decrease, on any server.
    fn check_clients(&self, ops: &[&Op], broken: &mut Vec<Broken>) {
        let mut newest: HashMap<usize, i32> = HashMap::new();
        let mut in_order = ops.to_vec();
        in_order.sort_by_key(|op| (op.client, op.began));
        for op in in_order {
            let Outcome::Done(seen) = op.outcome else { continue };
            let newest = newest.entry(op.client).or_insert(0);
            if seen.version < *newest {
                broken.push(rule(format!(
                    "register {}: client {} went back from version {newest} to {}",
                    self.number, op.client, seen.version
                )));
            }
            *newest = seen.version.max(*newest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `client action began-ended outcome`: `1 w7 0-2 =1` wrote 7 as version 1; `?` unknown,
    /// `!` rejected.
    fn history(text: &str) -> Vec<Op> {
        text.split(';').map(|op| parse(op.trim())).collect()
    }

    fn parse(text: &str) -> Op {
        let words: Vec<&str> = text.split(' ').collect();
        let (began, ended) = words[2].split_once('-').unwrap();
        let (kind, value) = words[1].split_at(1);
        let value = value.parse().unwrap();
        let action = match kind {
            "w" => Action::Write(value),
            "s" => Action::SyncedRead,
            _ => Action::Read,
        };
        let outcome = match words[3] {
            "?" => Outcome::Unknown,
            "!" => Outcome::Refused,
            version => {
                let version = version.strip_prefix('=').unwrap().parse().unwrap();
                Outcome::Done(Seen { version, zxid: i64::from(version) + 100, value })
            }
        };
        Op {
            client: words[0].parse().unwrap(),
            register: 0,
            action,
            began: began.parse().unwrap(),
            ended: ended.parse().unwrap(),
            outcome,
            server: Some(2181),
        }
    }

    fn texts(ops: &[Op]) -> Vec<String> {
        violations(ops).into_iter().map(|broken| broken.what).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = texts(&history(text));
        match expected {
            "" => assert_eq!(found, Vec::<String>::new()),
            part => assert!(found.iter().any(|line| line.contains(part)), "{found:?}"),
        }
    }

    #[test]
    fn one_order_that_explains_all_is_enough() {
        check("1 w7 0-9 =2; 2 w8 1-5 =1; 2 s8 6-7 =1; 3 s7 10-11 =2; 3 r7 12-13 =2", "");
        // Overlapping operations may take effect in either order.
        check("1 w7 0-9 =1; 2 s0 1-8 =0", "");
        check("1 w7 0-9 =1; 2 s7 1-2 =1", "");
    }

    #[test]
    fn a_write_without_an_answer_may_have_happened_or_not() {
        check("1 w7 0-1 ?; 2 s0 2-3 =0", "");
        check("1 w7 0-1 ?; 2 s0 2-3 =0; 2 s7 4-5 =1", "");
        check("1 w7 0-1 ?; 2 w8 2-3 =2", "");
    }

    #[test]
    fn an_acknowledged_write_that_is_lost_is_found() {
        check("1 w7 0-1 =1; 2 s0 2-3 =0", "after 1 was known");
        check("1 w7 0-1 =1; 2 w8 2-3 =1", "to another");
        check("1 w7 0-1 =1; 2 w8 2-3 =2; 2 s7 4-5 =1", "after 2 was known");
    }

    #[test]
    fn a_stale_read_behind_a_sync_names_its_member() {
        let found = violations(&history("1 w7 0-1 =1; 2 s0 2-3 =0"));
        assert_eq!(found[0].stale_on, Some(2181));
        let found = violations(&history("1 w7 0-1 =1; 2 w8 2-3 =1"));
        assert!(found.iter().all(|broken| broken.stale_on.is_none()));
    }

    #[test]
    fn a_write_that_goes_in_behind_a_later_one_is_found() {
        check("1 w7 0-1 =2; 2 w8 2-3 =1", "as version Some(1), after 2");
        check("1 w7 0-1 =2; 2 w8 2-3 ?; 3 r8 4-5 =1", "as version Some(1), after 2");
    }

    #[test]
    fn values_from_nowhere_are_found() {
        check("1 s7 0-1 =1", "never written");
        check("1 w7 0-1 !; 1 s7 2-3 =1", "refused");
        check("1 w7 5-6 ?; 2 r7 0-1 =1", "before it was written");
        check("1 w7 0-1 ?; 2 s7 2-3 =1; 2 s7 4-5 =2", "written twice");
        check("1 w7 0-1 =2", "1 versions nobody saw, 0 writes");
        check("1 s0 0-1 =1", "belong together");
    }

    #[test]
    fn a_client_that_goes_back_is_found_and_an_old_read_of_another_is_not() {
        check("1 w7 0-1 =1; 2 r0 2-3 =0", "");
        check("1 w7 0-1 =1; 2 r7 2-3 =1; 2 r0 4-5 =0", "went back");
    }

    #[test]
    fn a_split_transaction_is_found() {
        let mut ops = history("1 w7 0-1 =1; 1 w7 0-1 =1");
        ops[1].register = 1;
        assert_eq!(texts(&ops), Vec::<String>::new());
        ops[1].outcome = Outcome::Done(Seen { version: 1, zxid: 102, value: 7 });
        assert_eq!(texts(&ops), ["the transaction of value 7 was split"]);
    }

    #[test]
    fn transactions_out_of_order_are_found() {
        let mut ops = history("1 w7 0-1 =1; 1 w8 2-3 =2");
        ops[0].outcome = Outcome::Done(Seen { version: 1, zxid: 103, value: 7 });
        assert!(texts(&ops)[0].contains("is of"));
    }
}
