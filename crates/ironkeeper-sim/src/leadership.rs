//! Checks that an epoch has at most one established leader, and that epochs only grow.

use std::collections::BTreeMap;

use ironkeeper_proto::{Epoch, ServerId};
use ironkeeper_zab::Epochs;

#[derive(Debug, Default)]
pub struct Leadership {
    /// The established leader of each epoch, with its boot number.
    leaders: BTreeMap<i64, (ServerId, u64)>,
    promises: BTreeMap<ServerId, Epochs>,
}

impl Leadership {
    pub fn established(&mut self, epoch: Epoch, who: ServerId, boot: u64) -> Result<(), String> {
        match self.leaders.insert(epoch.0, (who, boot)) {
            None => Ok(()),
            Some((other, life)) => Err(format!(
                "leadership: {who} (life {boot}) leads in epoch {epoch}, which was {other}'s (life {life})"
            )),
        }
    }

    /// Returns the newest epoch, its leader, and the leader's boot number.
    pub fn newest(&self) -> Option<(Epoch, ServerId, u64)> {
        self.leaders.last_key_value().map(|(epoch, (who, boot))| (Epoch(*epoch), *who, *boot))
    }

    /// Returns how often a leader was established.
    pub fn count(&self) -> usize {
        self.leaders.len()
    }

    /// Checks the epochs on a server's disk.
    pub fn promised(&mut self, who: ServerId, now: Epochs) -> Result<(), String> {
        let before = self.promises.insert(who, now).unwrap_or_default();
        if now.accepted < before.accepted || now.current < before.current {
            return Err(format!("epochs: {who} went back from {before:?} to {now:?}"));
        }
        if now.current > now.accepted {
            return Err(format!("epochs: {who} has {now:?}"));
        }
        Ok(())
    }
}
