//! One history: every server delivers a prefix of the same sequence, and an established leader has
//! everything that any server has delivered.

use std::collections::BTreeMap;

use ironkeeper_proto::{Epoch, Zxid};

use crate::zab::node::Process;
use crate::zab::state::State;

#[derive(Debug, Default)]
pub struct Agreement {
    /// The committed transactions by number: zxid and chain. An entry is `None` if servers have the
    /// transaction only as a part of a snapshot.
    history: Vec<Option<(Zxid, u64)>>,
    /// The last committed request of each origin.
    origins: BTreeMap<u64, u64>,
}

impl Agreement {
    /// Returns the number of committed transactions.
    pub fn count(&self) -> u64 {
        self.history.len() as u64
    }

    /// Checks the state of a server whose last transaction is committed.
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

    /// Checks a transaction that a server delivered. Its origin and number give the order of the
    /// requests.
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

    /// Checks a new leader: it has everything that was committed in earlier epochs, at the same
    /// place, and everything that it has is committed. Transactions of later epochs may be missing:
    /// the server may have been paused while they were committed, and no server will follow it.
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
