//! One history: every server delivers a beginning of the same sequence, and what was delivered anywhere
//! is never missing from an established leader.

use std::collections::BTreeMap;

use ironkeeper_proto::{Epoch, Zxid};

use crate::zab::node::Process;
use crate::zab::state::State;

#[derive(Debug, Default)]
pub struct Agreement {
    /// What has been committed, by number: zxid and chain. A hole is what a server has only as a part of
    /// somebody's tree.
    history: Vec<Option<(Zxid, u64)>>,
    /// The last request of each origin that became history.
    origins: BTreeMap<u64, u64>,
}

impl Agreement {
    /// How many transactions are history.
    pub fn count(&self) -> u64 {
        self.history.len() as u64
    }

    /// A server says that its state, up to its last transaction, is history.
    pub fn committed(&mut self, who: &str, state: &State) -> Result<(), String> {
        let Some(at) = state.index.checked_sub(1) else { return Ok(()) };
        let at = at as usize;
        if at >= self.history.len() {
            self.history.resize(at + 1, None);
        }
        let known = &mut self.history[at];
        match known {
            None => *known = Some((state.last, state.chain)),
            Some(known) if *known == (state.last, state.chain) => {}
            Some((zxid, _)) => {
                return Err(format!(
                    "agreement: {who} delivered {} as transaction {}, others {zxid} or another past",
                    state.last, state.index
                ));
            }
        }
        Ok(())
    }

    /// A server delivered one transaction; its origin and number tell the order in which it was asked
    /// for.
    pub fn delivered(
        &mut self,
        who: &str,
        state: &State,
        origin: u64,
        number: u64,
    ) -> Result<(), String> {
        let fresh = state.index > self.count();
        if fresh && state.index > self.count() + 1 {
            return Err(format!("order: {who} delivered transaction {} too early", state.index));
        }
        self.committed(who, state)?;
        if fresh {
            let last = self.origins.insert(origin, number);
            if last.is_some_and(|last| last >= number) {
                return Err(format!("order: request {number} of {origin:x} after {last:?}"));
            }
        }
        Ok(())
    }

    /// A leader is established: everything that became history in earlier epochs is in its own, at the
    /// same place, and everything in its own is history. What later epochs brought it need not have: it
    /// may have slept while they came, and will find nobody to follow it.
    pub fn established(
        &mut self,
        who: &str,
        epoch: Epoch,
        process: &Process,
    ) -> Result<(), String> {
        let state = process.state;
        let earlier =
            |known: &Option<(Zxid, u64)>| known.is_some_and(|(zxid, _)| zxid.epoch() < epoch);
        let needed = self.history.iter().rposition(earlier).map_or(0, |at| at as u64 + 1);
        if state.index < needed {
            return Err(format!(
                "durability: {who} leads with {} transactions, but {needed} are history",
                state.index,
            ));
        }
        for index in process.base.index.max(1)..=state.index {
            let Some((zxid, chain)) = process.at(index) else { continue };
            self.committed(who, &State { index, last: zxid, chain })?;
        }
        Ok(())
    }
}
