//! The history of clients' writes and reads, and the check that one order of events explains it.
//!
//! Registers are nodes that are only set, and every set has a unique value. The server numbers the
//! versions of a node and the transactions, so each reply identifies its place in the order of all
//! writes, and every rule is checked when a reply arrives.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_proto::{Epoch, SessionId, Zxid};

/// The initial value of registers, as version 0.
pub const FIRST_VALUE: u64 = 0;

/// A version of a register: its number, its transaction, its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub version: i32,
    pub zxid: Zxid,
    pub value: u64,
}

#[derive(Debug)]
struct Register {
    versions: BTreeMap<i32, Seen>,
    /// The newest version that a client has received.
    newest: i32,
}

#[derive(Debug)]
struct Write {
    session: SessionId,
    /// The registers that it writes to, each with the newest version that a client had received
    /// before.
    floors: Vec<(usize, i32)>,
    /// The newest zxid that a client had received before.
    zxid_floor: Zxid,
    zxid: Option<Zxid>,
    /// The server rejected the write.
    refused: bool,
}

/// The known state of an ephemeral node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The create is in flight: the node may exist.
    Asked,
    Made,
    /// The delete is in flight: the node may not exist.
    Going,
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub struct Ephemeral {
    pub session: SessionId,
    pub standing: Standing,
}

/// The history of all clients.
#[derive(Debug)]
pub struct History {
    registers: Vec<Register>,
    writes: BTreeMap<u64, Write>,
    /// The zxid of each session's writes, by value.
    sessions: BTreeMap<SessionId, BTreeMap<u64, Zxid>>,
    /// The newest zxid of each epoch that a client has received.
    told: BTreeMap<Epoch, Zxid>,
    last_value: u64,
    /// Sessions that servers in read-only mode created.
    pub read_only_sessions: BTreeSet<SessionId>,
    pub ephemerals: BTreeMap<String, Ephemeral>,
}

impl History {
    pub fn new(registers: usize) -> History {
        let register = |_| Register { versions: BTreeMap::new(), newest: -1 };
        History {
            registers: (0..registers).map(register).collect(),
            writes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            told: BTreeMap::new(),
            last_value: FIRST_VALUE,
            read_only_sessions: BTreeSet::new(),
            ephemerals: BTreeMap::new(),
        }
    }

    /// Records a zxid that a client has received: the transaction must never be lost.
    pub fn tell(&mut self, zxid: Zxid) {
        let newest = self.told.entry(zxid.epoch()).or_insert(zxid);
        *newest = zxid.max(*newest);
    }

    /// Returns the newest zxid that a client has received.
    pub fn told(&self) -> Zxid {
        self.told.values().next_back().copied().unwrap_or(Zxid::ZERO)
    }

    /// Returns the newest zxid of earlier epochs that a client has received.
    pub fn told_before(&self, epoch: Epoch) -> Zxid {
        self.told.range(..epoch).next_back().map_or(Zxid::ZERO, |(_, zxid)| *zxid)
    }

    /// Returns the newest version of a register that a client has received, or -1.
    pub fn newest(&self, register: usize) -> i32 {
        self.registers[register].newest
    }

    /// Records the start of a write by a session and returns the value to write.
    pub fn begin_write(&mut self, session: SessionId, registers: &[usize]) -> u64 {
        self.last_value += 1;
        let floors = registers.iter().map(|at| (*at, self.newest(*at))).collect();
        let write = Write { session, floors, zxid_floor: self.told(), zxid: None, refused: false };
        self.writes.insert(self.last_value, write);
        self.last_value
    }

    /// Records that the server rejected a write: no client may ever read the value.
    pub fn refuse(&mut self, value: u64) -> Result<(), String> {
        let Some(write) = self.writes.get_mut(&value) else { return Ok(()) };
        write.refused = true;
        match write.zxid {
            None => Ok(()),
            Some(zxid) => Err(format!(
                "linearizability: value {value} was refused, but it is there as {zxid}"
            )),
        }
    }

    /// Checks a version of a register that a client has received.
    pub fn observe(&mut self, register: usize, seen: Seen) -> Result<(), String> {
        let Seen { version, zxid, value } = seen;
        let versions = &mut self.registers[register].versions;
        let known = *versions.entry(version).or_insert(seen);
        if known != seen {
            return Err(format!(
                "linearizability: register {register} was {known:?} to one, {seen:?} to another"
            ));
        }
        let before = versions.range(..version).next_back();
        let behind = versions.range(version + 1..).next();
        if before.is_some_and(|(_, before)| before.zxid >= zxid)
            || behind.is_some_and(|(_, behind)| behind.zxid <= zxid)
        {
            return Err(format!(
                "order: register {register} has {seen:?} between {before:?} and {behind:?}"
            ));
        }
        if (value == FIRST_VALUE) != (version == 0) {
            return Err(format!("linearizability: register {register} began with {seen:?}"));
        }
        self.registers[register].newest = self.registers[register].newest.max(version);
        match value == FIRST_VALUE {
            true => Ok(()),
            false => self.observe_write(register, seen),
        }
    }

    /// Checks a version that a client has received from a server without a leader. It need not
    /// become history, and no other client may ever receive it. But a client must have written it,
    /// and a write has at most one place in the order of writes.
    pub fn glimpse(&mut self, register: usize, seen: Seen) -> Result<(), String> {
        let Seen { version, zxid, value } = seen;
        if value == FIRST_VALUE || version == 0 {
            return match value == FIRST_VALUE && version == 0 {
                true => Ok(()),
                false => Err(format!("read-only: register {register} began with {seen:?}")),
            };
        }
        let write = self.writes.get_mut(&value).filter(|write| !write.refused);
        let place = write.map(|write| *write.zxid.get_or_insert(zxid));
        match place == Some(zxid) {
            true => Ok(()),
            false => Err(format!(
                "read-only: {seen:?} of register {register} was never asked for, or is {place:?}"
            )),
        }
    }

    fn observe_write(&mut self, register: usize, seen: Seen) -> Result<(), String> {
        let Seen { version, zxid, value } = seen;
        let Some(write) = self.writes.get_mut(&value) else {
            return Err(format!("linearizability: nobody has ever written {seen:?}"));
        };
        if write.refused {
            return Err(format!("linearizability: the write of {seen:?} was refused"));
        }
        let floor = write.floors.iter().find(|(at, _)| *at == register);
        if floor.is_none_or(|(_, floor)| version <= *floor) || zxid <= write.zxid_floor {
            return Err(format!(
                "linearizability: {seen:?} of register {register} is older than what was known \
                 when it was asked for: {write:?}"
            ));
        }
        if *write.zxid.get_or_insert(zxid) != zxid {
            return Err(format!("linearizability: {seen:?} was split: {write:?}"));
        }
        let session = self.sessions.entry(write.session).or_default();
        session.insert(value, zxid);
        let before = session.range(..value).next_back();
        let behind = session.range(value + 1..).next();
        // Two registers that are set in one transaction have one value, and so one entry.
        if before.is_some_and(|(_, before)| *before >= zxid)
            || behind.is_some_and(|(_, behind)| *behind <= zxid)
        {
            return Err(format!(
                "order: session {:x} wrote {value} as {zxid}, between {before:?} and {behind:?}",
                write.session.0
            ));
        }
        Ok(())
    }
}
